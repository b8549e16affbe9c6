#include "services/link_worker/core/quality.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/engine/testing/engine_harness.h"
#include "services/engine/testing/tiny_engines.h"
#include "services/worker_api/testing/fake_text.h"

namespace epic {
namespace {

TEST(QualityTest, KlMatchesAHandComputedValueAndIsZeroForShiftedLogits) {
  const std::vector<float> p = {std::log(0.5f), std::log(0.25f), std::log(0.25f)};
  const std::vector<float> q = {std::log(0.25f), std::log(0.5f), std::log(0.25f)};
  EXPECT_NEAR(KlDivergence(p, q), 0.5 * std::log(2) - 0.25 * std::log(2), 1e-6);
  std::vector<float> shifted = p;
  for (float& logit : shifted) logit += 7;
  EXPECT_NEAR(KlDivergence(p, shifted), 0, 1e-6);
}

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

// Compiles on the engine, one object per key, and remembers what it was asked for.
class DirectCompiler final : public Compiler {
 public:
  explicit DirectCompiler(Engine* engine) : engine_(engine) {}
  absl::StatusOr<CompileTicket> Ensure(CompileJob job, Done done) override {
    ++asked;
    auto object = testing::Compile(engine_, job.tokens, job.prefix_tokens);
    if (object.ok()) {
      done(CompileOutcome{*object, true});
    } else {
      done(object.status());
    }
    return 1;
  }
  void Abandon(CompileTicket) override {}
  bool Detach(CompileTicket) override { return false; }
  void Forget(std::string_view, const CacheId&) override {}
  int asked = 0;

 private:
  Engine* const engine_;
};

class QualityProbeTest : public ::testing::Test {
 protected:
  QualityProbeTest()
      : engine_(testing::MakeEngine(testing::LoadTiny(testing::TinyCaseOf("llama").spec),
                                    testing::TinyOptions(ComputeFormat::kF32))),
        compiler_(engine_.get()) {
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
  DirectCompiler compiler_;
  ServedModel model_;
};

TEST_F(QualityProbeTest, RecomputingEveryRowEqualsFull) {
  EngineQualityProbe probe(&model_, &compiler_);
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
  EngineQualityProbe probe(&model_, &compiler_);
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
  EngineQualityProbe probe(&model_, &compiler_);
  CancelSource source;
  source.Cancel();
  EXPECT_THAT(probe.Compare(Job({.kind = StrategyKind::kNaive}), source.token()),
              testing::StatusIs(absl::StatusCode::kCancelled));
  EXPECT_OK(probe.Compare(Job({.kind = StrategyKind::kNaive}), {}));
}

}  // namespace
}  // namespace epic
