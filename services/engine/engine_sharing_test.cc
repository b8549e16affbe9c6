// Requests at once over the same contexts: one copy of each object, and memory of own rows only. By the
// engine's gauges, by who holds the objects, and by what is admitted into memory that own rows fill to the
// byte. What the process itself takes is measured by epic_engine_bench, section `sharing`.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "kernels/rope/rope.h"
#include "services/engine/forward.h"
#include "services/engine/testing/batch_harness.h"
#include "services/engine/testing/engine_harness.h"
#include "services/engine/testing/tiny_engines.h"

namespace epic {
namespace {

using testing::CollectLink;

constexpr uint32_t kRequests = 16;
constexpr uint32_t kContexts = 8;
constexpr uint32_t kContextTokens = 40;
constexpr uint32_t kOwnTokens = 9;
constexpr uint32_t kAnswerTokens = 6;  // the last one has no row
constexpr uint32_t kRepaired = 4;
constexpr LinkStrategy kLegoLink4{StrategyKind::kLegoLink, kRepaired};
// Of a prompt: every context but the first, which is exact in place, is repaired.
constexpr uint32_t kOwnRows = (kContexts - 1) * kRepaired + kOwnTokens + kAnswerTokens - 1;

struct Observed {
  uint32_t most_running = 0;
  uint64_t most_rows = 0;
  uint64_t most_bytes = 0;
  uint64_t most_held_objects = 0;
  int64_t most_uses = 0;  // of the first context's object
};

class EngineSharingTest : public ::testing::Test {
 protected:
  EngineSharingTest() : model_(testing::LoadTiny(testing::TinyCaseOf("qwen2").spec)) {
    options_ = testing::TinyOptions(ComputeFormat::kF32);
    options_.memory_bytes = SharedBytes() + kRequests * OwnBytes();
    Start();
    for (uint32_t i = 0; i < kContexts; ++i) {
      auto context = testing::Context(engine_.get(), Tokens(i, kContextTokens));
      EXPECT_OK(context);
      contexts_.push_back(*std::move(context));
    }
  }

  void Start() { engine_ = testing::MakeEngine(model_, options_); }

  // Scratch of a step and the rotary table.
  uint64_t SharedBytes() const {
    const ModelConfig& config = model_->config();
    return Forward::ScratchBytes(config, options_.panel_tokens + options_.max_sequences) +
           RopeTable::BytesOf(config.head_dim / 2, 2 * config.context_length);
  }
  uint64_t OwnBytes() const {
    const ModelConfig& config = model_->config();
    const KvShape shape = {config.layers, config.kv_heads, config.head_dim, options_.kv_dtype};
    return kOwnRows * shape.RowBytes();
  }

  std::vector<TokenId> Tokens(uint64_t seed, size_t count) const {
    return testing::RandomTokens(seed, count, model_->config().vocab);
  }
  // Each request has the contexts in an order of its own, and own text.
  LinkRequest Request(uint32_t i) const {
    std::vector<PromptPiece> pieces;
    for (uint32_t c = 0; c < kContexts; ++c) pieces.push_back(contexts_[(c + i) % kContexts]);
    pieces.push_back(testing::Text(Tokens(100 + i, kOwnTokens)));
    return testing::SampledLink(std::move(pieces), kLegoLink4, kAnswerTokens);
  }

  // All requests submitted while the engine is held, so that they are admitted together where they fit.
  std::vector<std::shared_ptr<CollectLink>> RunAll(Observed* observed) {
    std::vector<std::shared_ptr<CollectLink>> sinks;
    testing::EngineHold hold(engine_.get());
    for (uint32_t i = 0; i < kRequests; ++i) {
      sinks.push_back(std::make_shared<CollectLink>(1));
      sinks.back()->on_token = [this, observed](const GeneratedToken&) {
        const EngineGauges gauges = engine_->Gauges();
        observed->most_running = std::max(observed->most_running, gauges.running);
        observed->most_rows = std::max(observed->most_rows, gauges.private_rows);
        observed->most_bytes = std::max(observed->most_bytes, gauges.private_bytes);
        observed->most_held_objects = std::max(observed->most_held_objects, gauges.held_objects);
        observed->most_uses = std::max<int64_t>(observed->most_uses, contexts_[0].object.use_count());
        return true;
      };
      EXPECT_OK(engine_->SubmitLink(Request(i), sinks.back()));
    }
    hold.Release();
    for (const auto& sink : sinks) {
      EXPECT_OK(sink->done.Wait());
      sink->on_token = nullptr;
    }
    return sinks;
  }

  const std::shared_ptr<const Model> model_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  std::vector<PromptPiece> contexts_;
};

TEST_F(EngineSharingTest, SixteenRequestsOverTheSameContextsHoldOneCopyOfEachAndOwnRows) {
  // Room for own rows and not a byte more: they run at once all the same.
  Observed observed;
  const auto sinks = RunAll(&observed);
  EXPECT_EQ(observed.most_running, kRequests);
  EXPECT_EQ(observed.most_rows, uint64_t{kRequests} * kOwnRows);
  EXPECT_EQ(observed.most_bytes, kRequests * OwnBytes());
  EXPECT_EQ(observed.most_held_objects, uint64_t{kRequests} * kContexts);
  EXPECT_GT(observed.most_uses, int64_t{kRequests});  // all of them hold this very object
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->stats.recomputed_tokens, (kContexts - 1) * kRepaired);
    EXPECT_EQ(sink->stats.cached_tokens, kContexts * kContextTokens - (kContexts - 1) * kRepaired);
    EXPECT_EQ(sink->tokens[0].size(), kAnswerTokens);
  }
  EXPECT_TRUE(testing::BecomesIdle(*engine_));
  EXPECT_EQ(contexts_[0].object.use_count(), 1);
  EXPECT_EQ(engine_->Gauges().private_bytes, 0u);
}

TEST_F(EngineSharingTest, OneByteLessThanSixteenRequestsOwnRowsAndOneOfThemWaits) {
  options_.memory_bytes -= 1;
  Start();
  Observed observed;
  RunAll(&observed);
  EXPECT_EQ(observed.most_running, kRequests - 1);
  EXPECT_EQ(observed.most_rows, uint64_t{kRequests - 1} * kOwnRows);
}

TEST_F(EngineSharingTest, RequestsThatShareTheirContextsAnswerAsEachDoesAlone) {
  Observed observed;
  const auto together = RunAll(&observed);
  for (uint32_t i = 0; i < kRequests; ++i) {
    ASSERT_OK_AND_ASSIGN(const auto alone, testing::Link(engine_.get(), Request(i)));
    EXPECT_TRUE(testing::HaveSameBytes(*together[i], *alone)) << "request " << i;
  }
}

}  // namespace
}  // namespace epic
