// How the gauges of an engine tell a stuck loop from a busy one.
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
