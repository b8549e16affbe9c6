// What the engine does about numbers that are none, and how its gauges tell a stuck loop from a busy one.
#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/engine/engine.h"
#include "services/engine/testing/engine_harness.h"
#include "services/engine/testing/tiny_engines.h"

namespace epic {
namespace {

using testing::CollectCompile;
using testing::CollectLink;
using testing::Link;
using testing::Text;

constexpr TokenId kPoison = 84;
constexpr uint32_t kAnswer = 6;

LinkRequest Greedy(std::vector<TokenId> tokens) {
  LinkRequest request{.pieces = {Text(std::move(tokens))}, .strategy = {StrategyKind::kFull, 0}};
  request.sampling.temperature = 0;
  request.sampling.logprobs = true;
  // The clean ones must not come upon the poison by themselves.
  request.sampling.logit_bias = {{kPoison, -100.0f}};
  request.max_tokens = kAnswer;
  return request;
}

std::vector<TokenId> Clean(uint64_t seed, size_t count, uint32_t vocab) {
  std::vector<TokenId> tokens = testing::RandomTokens(seed, count, vocab);
  for (TokenId& token : tokens) token += token == kPoison;
  return tokens;
}

void ExpectSame(const CollectLink& a, const CollectLink& b) {
  ASSERT_EQ(a.Ids(0), b.Ids(0));
  for (size_t i = 0; i < a.tokens[0].size(); ++i) {
    EXPECT_EQ(a.tokens[0][i].logprob, b.tokens[0][i].logprob) << i;
  }
}

class EngineNanTest : public ::testing::TestWithParam<ComputeFormat> {
 protected:
  EngineNanTest()
      : engine_(testing::MakeEngine(testing::LoadGguf(testing::PoisonedTiny(kPoison)),
                                    testing::TinyOptions(GetParam()))) {}
  std::vector<TokenId> Clean(uint64_t seed, size_t count) const {
    return epic::Clean(seed, count, engine_->config().vocab);
  }
  std::vector<TokenId> Poisoned(uint64_t seed, size_t count) const {
    std::vector<TokenId> tokens = Clean(seed, count);
    tokens[count / 2] = kPoison;
    return tokens;
  }
  std::unique_ptr<Engine> engine_;
};

TEST_P(EngineNanTest, AWeightThatIsNoNumberFailsOnlyThePromptsThatTouchIt) {
  ASSERT_OK_AND_ASSIGN(const auto alone, Link(engine_.get(), Greedy(Clean(1, 60))));
  auto before = std::make_shared<CollectLink>(1);
  auto failing = std::make_shared<CollectLink>(1);
  auto behind = std::make_shared<CollectLink>(1);
  ASSERT_OK(engine_->SubmitLink(Greedy(Clean(1, 60)), before));
  ASSERT_OK(engine_->SubmitLink(Greedy(Poisoned(2, 40)), failing));
  ASSERT_OK(engine_->SubmitLink(Greedy(Clean(1, 60)), behind));
  const absl::Status status = failing->done.Wait();
  EXPECT_EQ(CodeOf(status), ErrorCode::kInternal);
  EXPECT_FALSE(IsUnexpected(status)) << "clients must be told";
  EXPECT_TRUE(failing->tokens[0].empty());
  ASSERT_OK(before->done.Wait());
  ASSERT_OK(behind->done.Wait());
  ExpectSame(*before, *alone);
  ExpectSame(*behind, *alone);
  EXPECT_EQ(engine_->Gauges().not_finite_outputs, 1u);
  EXPECT_EQ(engine_->Gauges().not_finite_compiles, 0u);
}

TEST_P(EngineNanTest, AnAnswerThatRunsIntoItFailsAfterItsFirstToken) {
  ASSERT_OK_AND_ASSIGN(const auto alone, Link(engine_.get(), Greedy(Clean(1, 60))));
  LinkRequest request = Greedy(Clean(3, 30));
  request.sampling.logit_bias = {{kPoison, 1e6f}};
  auto failing = std::make_shared<CollectLink>(1);
  auto neighbour = std::make_shared<CollectLink>(1);
  ASSERT_OK(engine_->SubmitLink(std::move(request), failing));
  ASSERT_OK(engine_->SubmitLink(Greedy(Clean(1, 60)), neighbour));
  EXPECT_EQ(CodeOf(failing->done.Wait()), ErrorCode::kInternal);
  EXPECT_EQ(failing->Ids(0), std::vector<TokenId>{kPoison});
  EXPECT_EQ(failing->ends[0], std::vector<FinishReason>{FinishReason::kError});
  ASSERT_OK(neighbour->done.Wait());
  ExpectSame(*neighbour, *alone);
}

TEST_P(EngineNanTest, ACompileGivesNoLayerAndAScoreFails) {
  const KvLayout layout = engine_->LayoutOf(30, 0);
  auto compile = std::make_shared<CollectCompile>(layout);
  ASSERT_OK(engine_->SubmitCompile({.tokens = Poisoned(4, 30)}, compile));
  EXPECT_EQ(CodeOf(compile->done.Wait()), ErrorCode::kInternal);
  EXPECT_EQ(compile->layers, 0u);
  EXPECT_OK(testing::Compile(engine_.get(), Clean(4, 30)));
  const auto scored = testing::Score(engine_.get(), {Text(Clean(5, 20))}, {StrategyKind::kFull, 0},
                                     {Clean(6, 1)[0], kPoison, Clean(6, 1)[0]});
  EXPECT_EQ(CodeOf(scored.status()), ErrorCode::kInternal);
  EXPECT_EQ(engine_->Gauges().not_finite_outputs, 1u);
  EXPECT_EQ(engine_->Gauges().not_finite_compiles, 1u);
}

INSTANTIATE_TEST_SUITE_P(Formats, EngineNanTest, ::testing::ValuesIn(testing::NativeFormats()),
                         [](const auto& info) { return testing::NameOf(info.param); });

// A door that one thread waits behind until another opens it, and that tells when somebody waits.
class Barrier {
 public:
  void Pass() {
    MutexLock lock(&mu_);
    waits_ = true;
    changed_.SignalAll();
    while (!open_) changed_.Wait(&mu_);
  }
  void AwaitSomebody() {
    MutexLock lock(&mu_);
    while (!waits_) changed_.Wait(&mu_);
  }
  void Open() {
    MutexLock lock(&mu_);
    open_ = true;
    changed_.SignalAll();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool waits_ ABSL_GUARDED_BY(mu_) = false;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

// A sink whose last call blocks.
struct BlockedEnd final : CompileSink {
  absl::Status OnLayer(uint32_t, ByteSpan) override { return absl::OkStatus(); }
  void OnDone(const absl::Status&) override { barrier.Pass(); }
  Barrier barrier;
};

// A clock on which every look takes a second.
class SlowClock final : public Clock {
 public:
  static constexpr int64_t kLookNs = 1'000'000'000;
  int64_t UnixMs() const override { return 0; }
  int64_t SteadyNs() const override { return now_ns_.fetch_add(kLookNs) + kLookNs; }
  int64_t last_ns() const { return now_ns_.load(); }

 private:
  mutable std::atomic<int64_t> now_ns_{0};
};

class EngineProgressTest : public ::testing::Test {
 protected:
  void Start(const Clock* clock, const testing::TinyCase& tiny) {
    auto engine =
        Engine::Create(testing::LoadTiny(tiny.spec), testing::TinyOptions(ComputeFormat::kF32), clock);
    ASSERT_OK(engine);
    engine_ = *std::move(engine);
  }
  int64_t StillMs() const {
    return (clock_.SteadyNs() - engine_->Gauges().last_progress_steady_ns) / 1'000'000;
  }
  ManualClock clock_;
  SlowClock slow_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineProgressTest, ABlockedStepStandsStillAndMovesAgain) {
  Start(&clock_, testing::TinyCaseOf("llama"));
  EXPECT_FALSE(engine_->Gauges().busy);
  clock_.AdvanceMs(3'600'000);  // an hour without work
  Barrier barrier;
  auto sink = std::make_shared<CollectLink>(1);
  sink->on_token = [&](const GeneratedToken&) {
    barrier.Pass();
    return true;
  };
  ASSERT_OK(engine_->SubmitLink(Greedy(testing::RandomTokens(1, 20, 300)), sink));
  barrier.AwaitSomebody();
  EXPECT_TRUE(engine_->Gauges().busy);
  EXPECT_EQ(StillMs(), 0) << "the hour without work is none without progress";
  clock_.AdvanceMs(20'000);
  EXPECT_TRUE(engine_->Gauges().busy);
  EXPECT_EQ(StillMs(), 20'000);
  auto waiting = std::make_shared<CollectLink>(1);
  ASSERT_OK(engine_->SubmitLink(Greedy(testing::RandomTokens(2, 20, 300)), waiting));
  EXPECT_EQ(engine_->Gauges().waiting, 1u);
  EXPECT_EQ(StillMs(), 20'000) << "new work moves nothing";
  barrier.Open();
  EXPECT_OK(sink->done.Wait());
  EXPECT_OK(waiting->done.Wait());
  EXPECT_TRUE(testing::BecomesIdle(*engine_));
  EXPECT_EQ(StillMs(), 0);
}

TEST_F(EngineProgressTest, ASinkThatBlocksAtTheEndStandsStillThoughNothingRuns) {
  Start(&clock_, testing::TinyCaseOf("llama"));
  auto sink = std::make_shared<BlockedEnd>();
  ASSERT_OK(engine_->SubmitCompile({.tokens = testing::RandomTokens(1, 20, 300)}, sink));
  sink->barrier.AwaitSomebody();
  clock_.AdvanceMs(20'000);
  EXPECT_EQ(engine_->Gauges().running, 0u);
  EXPECT_TRUE(engine_->Gauges().busy);
  EXPECT_EQ(StillMs(), 20'000);
  sink->barrier.Open();
  EXPECT_TRUE(testing::BecomesIdle(*engine_));
}

TEST_F(EngineProgressTest, AStepThatTakesLongIsBusyForItsLayersShow) {
  testing::TinyCase tiny = testing::TinyCaseOf("llama");
  tiny.spec.layers = 40;
  Start(&slow_, tiny);
  auto sink = std::make_shared<CollectLink>(1);
  int64_t still_ns = 0;
  sink->on_linked = [&] { still_ns = slow_.last_ns() - engine_->Gauges().last_progress_steady_ns; };
  const int64_t begin_ns = slow_.last_ns();
  ASSERT_OK(engine_->SubmitLink(Greedy(testing::RandomTokens(1, 20, 300)), sink));
  ASSERT_OK(sink->done.Wait());
  EXPECT_GE(slow_.last_ns() - begin_ns, 40 * SlowClock::kLookNs);
  EXPECT_LE(still_ns, 3 * SlowClock::kLookNs);
}

}  // namespace
}  // namespace epic
