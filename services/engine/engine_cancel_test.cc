// Requests that are cancelled while a step runs: they leave between two layers, and their neighbours do not
// notice.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/cancel.h"
#include "common/base/clock.h"
#include "common/testing/status_matchers.h"
#include "services/engine/testing/engine_harness.h"
#include "services/engine/testing/tiny_engines.h"

namespace epic {
namespace {

using testing::Done;
using testing::Text;

// Cancels a request when the engine looks at the time to admit the first one that waits: after it has looked
// for cancelled requests and before the step. From the sink that arms it on, that is the third look: the sink
// came back, there is work, admission. Compiles are admitted without a look: theirs is that before a layer.
class CancellingClock final : public Clock {
 public:
  int64_t UnixMs() const override { return SystemClock::Get()->UnixMs(); }
  int64_t SteadyNs() const override {
    if (looks_ > 0 && --looks_ == 0) cancel_.Cancel();
    return SystemClock::Get()->SteadyNs();
  }
  void Arm(int looks) { looks_ = looks; }
  CancelToken token() const { return cancel_.token(); }

 private:
  mutable std::atomic<int> looks_{0};  // left until it cancels; 0: none or over
  mutable CancelSource cancel_;
};

struct Sink final : LinkSink {
  void OnLinked(const LinkStats&) override {}
  bool OnToken(const GeneratedToken& token) override {
    tokens.push_back(token.token);
    logprobs.push_back(token.logprob);
    return true;
  }
  void OnFinish(uint32_t, FinishReason) override {}
  void OnDone(const absl::Status& status) override {
    if (on_done) on_done();
    done.Set(status);
  }

  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  std::function<void()> on_done;
  Done done;
};

class EngineCancelTest : public ::testing::TestWithParam<ComputeFormat> {
 protected:
  EngineCancelTest() : model_(testing::LoadTiny(testing::TinyCaseOf("llama").spec)) {
    EngineOptions options = testing::TinyOptions(GetParam());
    options.panel_tokens = 256;
    auto engine = Engine::Create(model_, options, &clock_);
    EXPECT_OK(engine.status());
    engine_ = *std::move(engine);
  }

  std::shared_ptr<Sink> Submit(uint64_t seed, size_t tokens, CancelToken cancel = {},
                               std::function<void()> on_done = {}) {
    LinkRequest request{.pieces = {Text(testing::RandomTokens(seed, tokens, model_->config().vocab))},
                        .strategy = {StrategyKind::kFull, 0}};
    request.max_tokens = 6;
    request.sampling.temperature = 0;
    request.sampling.logprobs = true;
    request.cancel = std::move(cancel);
    auto sink = std::make_shared<Sink>();
    sink->on_done = std::move(on_done);
    EXPECT_OK(engine_->SubmitLink(std::move(request), sink));
    return sink;
  }

  // Holds the engine's thread in the last call of a request until open_ is set, so that what is submitted
  // meanwhile shares a step; then arms the clock.
  void HoldEngine(int looks = 3) {
    Submit(9, 3, {}, [this, looks] {
      held_.Set(absl::OkStatus());
      EXPECT_OK(open_.Wait());
      clock_.Arm(looks);
    });
    EXPECT_OK(held_.Wait());
  }

  CancellingClock clock_;
  Done held_, open_;
  const std::shared_ptr<const Model> model_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(EngineCancelTest, CancelledInAStepRequestsLeaveItBetweenLayersAndTheOthersBytesStay) {
  const auto alone = Submit(2, 50);
  ASSERT_OK(alone->done.Wait());

  HoldEngine();
  CancelSource cancel_third;
  EngineGauges after_first, after_third;
  const auto first = Submit(1, 40, clock_.token(), [&] {
    after_first = engine_->Gauges();
    cancel_third.Cancel();
  });
  const auto second = Submit(2, 50);
  const auto third = Submit(3, 60, cancel_third.token(), [&] { after_third = engine_->Gauges(); });
  open_.Set(absl::OkStatus());

  EXPECT_THAT(first->done.Wait(), testing::StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(third->done.Wait(), testing::StatusIs(absl::StatusCode::kCancelled));
  ASSERT_OK(second->done.Wait());
  EXPECT_EQ(second->tokens, alone->tokens);
  EXPECT_EQ(second->logprobs, alone->logprobs);
  EXPECT_TRUE(first->tokens.empty());
  EXPECT_TRUE(third->tokens.empty());
  // Both were gone before the step had ended, each as soon as its turn came.
  EXPECT_EQ(after_first.running, 2u);
  EXPECT_EQ(after_third.running, 1u);
  EXPECT_EQ(after_third.steps, after_first.steps);
  EXPECT_LT(after_third.private_rows, after_first.private_rows);
  EXPECT_GE(after_third.private_rows, 50u);
  EXPECT_EQ(engine_->Gauges().private_rows, 0u);
}

TEST_P(EngineCancelTest, AStepWhoseOnlyRequestIsCancelledEnds) {
  HoldEngine();
  EngineGauges after;
  const auto only = Submit(1, 200, clock_.token(), [&] { after = engine_->Gauges(); });
  open_.Set(absl::OkStatus());
  EXPECT_THAT(only->done.Wait(), testing::StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(after.running, 0u);
  EXPECT_EQ(after.private_rows, 0u);
  ASSERT_OK(Submit(2, 20)->done.Wait());
  EXPECT_TRUE(testing::BecomesIdle(*engine_));
}

struct CompileEnd final : CompileSink {
  explicit CompileEnd(const KvLayout& layout) : collected(layout) {}
  absl::Status OnLayer(uint32_t layer, ByteSpan slab) override { return collected.OnLayer(layer, slab); }
  void OnDone(const absl::Status& status) override {
    if (on_done) on_done();
    collected.OnDone(status);
  }
  testing::CollectCompile collected;
  std::function<void()> on_done;
};

TEST_P(EngineCancelTest, CancelledAmongChunksOfOneStepACompileLeavesItAndTheOthersBytesStay) {
  const auto tokens = [&](uint64_t i) { return testing::RandomTokens(i, 20 + i, model_->config().vocab); };
  std::vector<std::shared_ptr<testing::PlainObject>> alone;
  for (uint64_t i = 0; i < 6; ++i) {
    ASSERT_OK_AND_ASSIGN(auto object, testing::Compile(engine_.get(), tokens(i)));
    alone.push_back(std::move(object));
  }
  ASSERT_TRUE(testing::BecomesIdle(*engine_));
  const uint64_t before = engine_->Gauges().steps;

  HoldEngine(4);  // the look before the second layer
  std::vector<std::shared_ptr<CompileEnd>> sinks;
  EngineGauges after;
  for (uint64_t i = 0; i < alone.size(); ++i) {
    sinks.push_back(std::make_shared<CompileEnd>(alone[i]->layout()));
    CompileRequest request{.tokens = tokens(i)};
    if (i == 2) {
      request.cancel = clock_.token();
      sinks[i]->on_done = [&] { after = engine_->Gauges(); };
    }
    ASSERT_OK(engine_->SubmitCompile(std::move(request), sinks[i]));
  }
  open_.Set(absl::OkStatus());

  for (size_t i = 0; i < sinks.size(); ++i) {
    if (i == 2) {
      EXPECT_THAT(sinks[i]->collected.done.Wait(), testing::StatusIs(absl::StatusCode::kCancelled));
      EXPECT_EQ(sinks[i]->collected.layers, 0u);
      continue;
    }
    ASSERT_OK(sinks[i]->collected.done.Wait());
    for (uint32_t layer = 0; layer < model_->config().layers; ++layer) {
      EXPECT_EQ(AsText(sinks[i]->collected.object->Layer(layer)), AsText(alone[i]->Layer(layer)));
    }
  }
  // It was gone before the step had ended, with its rows.
  EXPECT_EQ(after.running, 5u);
  EXPECT_EQ(after.private_rows, 20u + 21 + 23 + 24 + 25);
  ASSERT_TRUE(testing::BecomesIdle(*engine_));
  EXPECT_GT(engine_->Gauges().steps, after.steps);
  EXPECT_GT(after.steps, before) << "the hold's steps";
}

INSTANTIATE_TEST_SUITE_P(Formats, EngineCancelTest, ::testing::ValuesIn(testing::NativeFormats()),
                         [](const auto& info) { return testing::NameOf(info.param); });

}  // namespace
}  // namespace epic
