#include "services/link_worker/core/quality.h"

#include <functional>
#include <utility>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/testing/status_matchers.h"
#include "services/engine/testing/engine_harness.h"
#include "services/engine/testing/tiny_engines.h"
#include "services/worker_api/testing/fake_text.h"
#include "services/worker_api/testing/faulty_kv_store.h"

namespace epic {
namespace {

TEST(QualityTest, LogitsAreComparedRowByRow) {
  const std::vector<float> a = {2, 0, 0}, b = {0, 2, 0};
  const QualityReport same = CompareLogits({a, b, a}, {a, b, a});
  EXPECT_EQ(same.tokens, 3u);
  EXPECT_EQ(same.top1, 1.0);
  EXPECT_EQ(same.kl_mean, 0.0);
  const QualityReport first = CompareLogits({a, a, a}, {b, a, a});
  EXPECT_GT(first.kl_first, 0.1);
  EXPECT_NEAR(first.kl_mean, first.kl_first / 3, 1e-12);
  EXPECT_EQ(first.kl_median, 0.0);
  EXPECT_NEAR(first.top1, 2.0 / 3, 1e-12);
}

// Finds objects in the store or compiles them on the engine, and remembers what it was asked for.
class DirectCompiler final : public Compiler {
 public:
  DirectCompiler(Engine* engine, KvStore* store) : engine_(engine), store_(store) {}
  absl::StatusOr<CompileTicket> Ensure(CompileJob job, Done done) override {
    ++asked;
    if (!refuse.ok()) return refuse;
    if (on_ensure) {
      held_ = std::move(done);
      on_ensure();
      return 1;
    }
    const absl::StatusOr<std::shared_ptr<const KvObject>> object = Find(job);
    if (object.ok()) {
      done(CompileOutcome{*object, true});
    } else {
      done(object.status());
    }
    return 1;
  }
  void Abandon(CompileTicket) override {
    if (held_) std::exchange(held_, nullptr)(absl::CancelledError("no longer waited for"));
  }
  bool Detach(CompileTicket) override { return false; }
  void Forget(std::string_view, const CacheId&) override {}

  int asked = 0;
  absl::Status refuse;              // every Ensure returns it
  std::function<void()> on_ensure;  // set: compiles end when they are abandoned, and not before

 private:
  absl::StatusOr<std::shared_ptr<const KvObject>> Find(const CompileJob& job) {
    const KvLayout layout = engine_->LayoutOf(static_cast<uint32_t>(job.tokens.size()),
                                              static_cast<uint32_t>(job.prefix_tokens.size()));
    EPIC_ASSIGN_OR_RETURN(const AcquireResult stored, store_->Acquire(job.tenant, job.key, layout));
    if (stored.object != nullptr) return stored.object;
    EPIC_ASSIGN_OR_RETURN(const auto compiled, testing::Compile(engine_, job.tokens, job.prefix_tokens));
    EPIC_ASSIGN_OR_RETURN(const auto writer, store_->Reserve(job.tenant, job.key, layout));
    for (uint32_t layer = 0; layer < layout.layers; ++layer) {
      EPIC_RETURN_IF_ERROR(writer->WriteLayer(layer, compiled->Layer(layer)));
    }
    return writer->Commit();
  }

  Engine* const engine_;
  KvStore* const store_;
  Done held_;
};

class QualityProbeTest : public ::testing::Test {
 protected:
  QualityProbeTest()
      : engine_(testing::MakeEngine(testing::LoadTiny(testing::TinyCaseOf("llama").spec),
                                    testing::TinyOptions(ComputeFormat::kF32))),
        compiler_(engine_.get(), &store_) {
    model_.tokenizer = &tokenizer_;
    model_.engine = engine_.get();
  }

  LinkJob Job(const LinkStrategy& strategy) {
    LinkJob job;
    job.tenant = "default";
    const uint32_t vocab = engine_->config().vocab;
    for (uint64_t i = 0; i < 3; ++i) {
      LinkPiece piece;
      piece.kind = LinkPiece::Kind::kContext;
      piece.tokens = testing::RandomTokens(100 + i, 20, vocab);
      const auto created = store_.CreateContext({.tenant = job.tenant,
                                                 .model_identity = {},
                                                 .model = "m",
                                                 .tokens = piece.tokens,
                                                 .ttl_seconds = {},
                                                 .pin_until_ms = {},
                                                 .tags = {},
                                                 .name = {},
                                                 .compile_prefix = {}});
      EXPECT_OK(created);
      piece.context = created->record.id;
      piece.variant = VariantOf(*engine_, CompilePrefixKind::kNone, {});
      job.pieces.push_back(piece);
    }
    LinkPiece text;
    text.tokens = testing::RandomTokens(7, 9, vocab);
    job.pieces.push_back(text);
    job.strategy = strategy;
    job.max_tokens = 8;
    return job;
  }

  testing::ByteTokenizer tokenizer_;
  std::unique_ptr<Engine> engine_;
  testing::FaultyKvStore store_{SystemClock::Get()};
  DirectCompiler compiler_;
  ServedModel model_;
};

TEST_F(QualityProbeTest, RecomputingEveryRowEqualsFull) {
  EngineQualityProbe probe(&model_, &compiler_, &store_);
  ASSERT_OK_AND_ASSIGN(const QualityReport report,
                       probe.Compare(Job({.kind = StrategyKind::kLegoLink, .k = 1000}), {}));
  EXPECT_LT(report.kl_mean, 1e-12);
  EXPECT_EQ(report.top1, 1.0);
  EXPECT_GE(report.tokens, 1u);
  EXPECT_EQ(report.prompt_tokens, 69u);
  EXPECT_EQ(report.recomputed_tokens, 40u) << "the first chunk is exact in place";
  EXPECT_EQ(compiler_.asked, 3);
}

TEST_F(QualityProbeTest, RecomputingNothingIsSeenAsALoss) {
  EngineQualityProbe probe(&model_, &compiler_, &store_);
  ASSERT_OK_AND_ASSIGN(const QualityReport report, probe.Compare(Job({.kind = StrategyKind::kNaive}), {}));
  ASSERT_OK_AND_ASSIGN(const QualityReport exact,
                       probe.Compare(Job({.kind = StrategyKind::kLegoLink, .k = 1000}), {}));
  // The logits of a tiny random model are nearly flat, so the loss is small; it is far above that of
  // rounding.
  EXPECT_GT(report.kl_mean, 100 * exact.kl_mean);
  EXPECT_GT(report.kl_mean, 0);
  EXPECT_EQ(report.recomputed_tokens, 0u);
}

TEST_F(QualityProbeTest, ACancelledComparisonSaysSoAndTheNextOneRuns) {
  EngineQualityProbe probe(&model_, &compiler_, &store_);
  CancelSource source;
  source.Cancel();
  EXPECT_THAT(probe.Compare(Job({.kind = StrategyKind::kNaive}), source.token()),
              testing::StatusIs(absl::StatusCode::kCancelled));
  EXPECT_OK(probe.Compare(Job({.kind = StrategyKind::kNaive}), {}));
}

TEST_F(QualityProbeTest, ACancelWhileAContextIsCompiledEndsTheWait) {
  EngineQualityProbe probe(&model_, &compiler_, &store_);
  CancelSource source;
  compiler_.on_ensure = [&] { source.Cancel(); };
  EXPECT_THAT(probe.Compare(Job({.kind = StrategyKind::kNaive}), source.token()),
              testing::StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(compiler_.asked, 1);
  compiler_.on_ensure = nullptr;
  EXPECT_OK(probe.Compare(Job({.kind = StrategyKind::kNaive}), {}));
}

TEST_F(QualityProbeTest, ASecondComparisonAtOnceIsRefusedWithAnAdvice) {
  EngineQualityProbe probe(&model_, &compiler_, &store_);
  CancelSource source;
  absl::Status second;
  compiler_.on_ensure = [&] {
    second = probe.Compare(Job({.kind = StrategyKind::kNaive}), {}).status();
    source.Cancel();
  };
  EXPECT_FALSE(probe.Compare(Job({.kind = StrategyKind::kNaive}), source.token()).ok());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(CodeOf(second), ErrorCode::kQueueFull);
  EXPECT_TRUE(RetryAfterMsOf(second).has_value());
}

TEST_F(QualityProbeTest, ErrorsOfEngineAndCompilerComeThrough) {
  EngineQualityProbe probe(&model_, &compiler_, &store_);
  LinkJob longer = Job({.kind = StrategyKind::kNaive});
  longer.pieces.back().tokens = testing::RandomTokens(8, engine_->config().context_length, 300);
  EXPECT_EQ(CodeOf(probe.Compare(longer, {}).status()), ErrorCode::kContextLengthExceeded);
  compiler_.refuse = RetryLater(ErrorCode::kQueueFull, "too many compiles", 1000);
  EXPECT_EQ(CodeOf(probe.Compare(Job({.kind = StrategyKind::kNaive}), {}).status()), ErrorCode::kQueueFull);
  compiler_.refuse = absl::OkStatus();
  EXPECT_OK(probe.Compare(Job({.kind = StrategyKind::kNaive}), {}));
  engine_->Stop();
  EXPECT_EQ(CodeOf(probe.Compare(Job({.kind = StrategyKind::kNaive}), {}).status()), ErrorCode::kDraining);
}

TEST_F(QualityProbeTest, AnObjectThatHoldsNoNumbersFailsTheComparisonAndIsDropped) {
  Metrics metrics;
  EngineQualityProbe probe(&model_, &compiler_, &store_, &metrics);
  ASSERT_OK_AND_ASSIGN(const QualityReport before, probe.Compare(Job({.kind = StrategyKind::kNaive}), {}));
  store_.PoisonAllObjects();
  const auto failed = probe.Compare(Job({.kind = StrategyKind::kNaive}), {});
  EXPECT_EQ(CodeOf(failed.status()), ErrorCode::kInternal);
  EXPECT_FALSE(IsUnexpected(failed.status()));
  EXPECT_EQ(metrics.GetCounter(MetricId::kNotFiniteTotal, {"object"}).Value(), 3u);
  ASSERT_OK_AND_ASSIGN(const QualityReport after, probe.Compare(Job({.kind = StrategyKind::kNaive}), {}));
  EXPECT_EQ(after.kl_mean, before.kl_mean);
}

}  // namespace
}  // namespace epic
