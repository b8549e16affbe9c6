// Links over objects that are still on their way: a layer computes once it is there, nothing but the link
// waits for it, and what comes out has the bytes of a link over whole objects, whatever the schedule.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/cancel.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/status/error.h"
#include "common/storage/testing/scripted_object.h"
#include "common/testing/status_matchers.h"
#include "services/engine/testing/batch_harness.h"
#include "services/engine/testing/engine_harness.h"
#include "services/engine/testing/tiny_engines.h"

namespace epic {
namespace {

using testing::CollectLink;
using testing::CollectScore;
using testing::Context;
using testing::EngineHold;
using testing::HaveSameBytes;
using testing::RandomTokens;
using testing::SampledLink;
using testing::ScriptedObject;
using testing::StatusIs;
using testing::Text;

constexpr uint32_t kLayers = 6;
constexpr uint32_t kAnswer = 4;

LinkStrategy Parsed(const std::string& name) {
  auto strategy = ParseEvaluationStrategy(name);
  EXPECT_OK(strategy.status());
  return *strategy;
}

// With and without a scout phase, and of each kind of phase.
const char* const kReading[] = {"naive",
                                "legolink-8",
                                "cacheblend-0.3",
                                "cacheblend-0.3:paper",
                                "cacheblend-0.3:attention",
                                "query-guided-6",
                                "query-guided-6:norm=1,blind=0"};

testing::TinyModelSpec Deep() {
  testing::TinyModelSpec spec = testing::TinyCaseOf("llama").spec;
  spec.layers = kLayers;
  return spec;
}

// A prompt whose objects are on their way. A context that stands there twice has one object.
struct Awaited {
  std::vector<PromptPiece> pieces;
  std::vector<std::shared_ptr<ScriptedObject>> objects;  // in the order of the pieces

  explicit Awaited(const std::vector<PromptPiece>& whole) : pieces(whole) {
    std::map<const KvObject*, std::shared_ptr<ScriptedObject>> scripted;
    for (PromptPiece& piece : pieces) {
      if (piece.object == nullptr) continue;
      std::shared_ptr<ScriptedObject>& object = scripted[piece.object.get()];
      if (object == nullptr) {
        object = std::make_shared<ScriptedObject>(piece.object);
        objects.push_back(object);
      }
      piece.object = object;
    }
  }
  void Release(uint32_t layers) const {
    for (const auto& object : objects) object->Release(layers);
  }
  // Nobody but this holds an object, or waits to be called by one.
  bool IsAlone() {
    pieces.clear();
    return std::all_of(objects.begin(), objects.end(),
                       [](const auto& object) { return object.use_count() == 1; });
  }
};

class EngineOverlapTest : public ::testing::TestWithParam<ComputeFormat> {
 protected:
  EngineOverlapTest()
      : model_(testing::LoadTiny(Deep())),
        engine_(testing::MakeEngine(model_, testing::TinyOptions(GetParam()))) {
    const auto compiled = [&](uint64_t seed, size_t count) {
      auto piece = Context(engine_.get(), Tokens(seed, count));
      EXPECT_OK(piece.status());
      return *std::move(piece);
    };
    // The first is exact in place; the second stands there twice; more rows than a panel has.
    const PromptPiece second = compiled(2, 30);
    whole_ = {compiled(1, 20), second, Text(Tokens(3, 4)), compiled(4, 37), second, Text(Tokens(5, 60))};
  }
  ~EngineOverlapTest() override {
    EXPECT_TRUE(testing::BecomesIdle(*engine_));
    const EngineGauges gauges = engine_->Gauges();
    EXPECT_EQ(gauges.suspended, 0u);
    EXPECT_EQ(gauges.held_objects, 0u);
    EXPECT_EQ(gauges.private_rows, 0u);
    EXPECT_EQ(gauges.private_bytes, 0u);
  }

  std::vector<TokenId> Tokens(uint64_t seed, size_t count) const {
    return RandomTokens(seed, count, model_->config().vocab);
  }
  std::shared_ptr<CollectLink> Submit(std::vector<PromptPiece> pieces, const LinkStrategy& strategy,
                                      CancelToken cancel = {}, uint32_t tokens = kAnswer) {
    LinkRequest request = SampledLink(std::move(pieces), strategy, tokens);
    request.cancel = std::move(cancel);
    auto sink = std::make_shared<CollectLink>(1);
    EXPECT_OK(engine_->SubmitLink(std::move(request), sink));
    return sink;
  }
  std::shared_ptr<CollectLink> WholeLink(const LinkStrategy& strategy) {
    auto link = testing::Link(engine_.get(), SampledLink(whole_, strategy, kAnswer));
    EXPECT_OK(link.status());
    return *link;
  }
  // Until so many requests wait for a layer, or `sink` has ended.
  void AwaitSuspended(uint32_t requests, CollectLink* sink) {
    while (engine_->Gauges().suspended < requests && !sink->done.IsSet()) std::this_thread::yield();
  }

  const std::shared_ptr<const Model> model_;
  const std::unique_ptr<Engine> engine_;
  std::vector<PromptPiece> whole_;
};

void ExpectSameLink(const CollectLink& link, const CollectLink& whole, const std::string& name) {
  EXPECT_TRUE(HaveSameBytes(link, whole)) << name;
  EXPECT_EQ(link.linked, 1) << name;
  EXPECT_EQ(link.stats.read_rows, whole.stats.read_rows) << name;
  EXPECT_EQ(link.stats.recomputed_tokens, whole.stats.recomputed_tokens) << name;
}

// --- bytes

TEST_P(EngineOverlapTest, SuspendedBeforeEveryLayerALinkHasTheBytesOfOneOverWholeObjects) {
  for (const char* name : kReading) {
    const auto whole = WholeLink(Parsed(name));
    Awaited awaited(whole_);
    const auto link = Submit(awaited.pieces, Parsed(name));
    for (uint32_t layers = 1; layers <= kLayers; ++layers) {
      AwaitSuspended(1, link.get());
      EXPECT_EQ(link->linked, 0) << name << ": before layer " << layers - 1;
      awaited.Release(layers);
    }
    ASSERT_OK(link->done.Wait()) << name;
    ExpectSameLink(*link, *whole, name);
    EXPECT_GT(link->stats.suspended_ns, 0) << name;
    EXPECT_TRUE(awaited.IsAlone()) << name;
  }
}

TEST_P(EngineOverlapTest, WhateverTheScheduleTheBytesAreTheSame) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const char* name : kReading) {
    const auto whole = WholeLink(Parsed(name));
    for (uint64_t round = 0; round < 6; ++round) {
      Rng rng(seed + round);
      Awaited awaited(whole_);
      std::vector<uint32_t> released(awaited.objects.size(), 0);
      // Beside it a neighbour, so that steps have decode rows and smaller panels.
      const auto neighbour = round % 2 == 0 ? Submit({Text(Tokens(9, 9))}, Parsed("full"), {}, 40) : nullptr;
      const auto link = Submit(awaited.pieces, Parsed(name));
      while (std::any_of(released.begin(), released.end(), [](uint32_t l) { return l < kLayers; })) {
        const size_t i = rng.Below(released.size());
        released[i] = std::min<uint32_t>(kLayers, released[i] + static_cast<uint32_t>(rng.Below(3)));
        awaited.objects[i]->Release(released[i]);
        if (rng.Below(3) == 0) AwaitSuspended(1, link.get());
        if (rng.Below(3) == 0) std::this_thread::yield();
      }
      ASSERT_OK(link->done.Wait()) << name;
      ExpectSameLink(*link, *whole, name);
      if (neighbour != nullptr) {
        ASSERT_OK(neighbour->done.Wait());
      }
      EXPECT_TRUE(awaited.IsAlone()) << name;
    }
  }
}

TEST_P(EngineOverlapTest, AScoreOverThemHasTheSameLogits) {
  const std::vector<TokenId> continuation = Tokens(7, 5);
  for (const char* name : {"legolink-8", "cacheblend-0.3", "query-guided-6"}) {
    ASSERT_OK_AND_ASSIGN(const auto whole, testing::Score(engine_.get(), whole_, Parsed(name), continuation));
    Awaited awaited(whole_);
    auto sink = std::make_shared<CollectScore>();
    ASSERT_OK(engine_->SubmitScore(
        {.pieces = awaited.pieces, .strategy = Parsed(name), .continuation = continuation}, sink));
    for (uint32_t layers = 1; layers <= kLayers; ++layers) awaited.Release(layers);
    ASSERT_OK(sink->done.Wait());
    EXPECT_EQ(sink->logits, whole->logits) << name;
  }
}

TEST_P(EngineOverlapTest, SequencesThatShareAnObjectOnItsWayAllHaveTheirBytes) {
  std::vector<std::shared_ptr<CollectLink>> whole, links;
  for (const char* name : kReading) whole.push_back(WholeLink(Parsed(name)));
  Awaited awaited(whole_);
  for (const char* name : kReading) links.push_back(Submit(awaited.pieces, Parsed(name)));
  for (uint32_t layers = 1; layers <= kLayers; ++layers) {
    // All of them, whatever layer each waits for.
    AwaitSuspended(static_cast<uint32_t>(links.size()), links.front().get());
    awaited.Release(layers);
  }
  for (size_t i = 0; i < links.size(); ++i) {
    ASSERT_OK(links[i]->done.Wait());
    ExpectSameLink(*links[i], *whole[i], kReading[i]);
  }
  links.clear();
  EXPECT_TRUE(awaited.IsAlone());
}

// --- who waits, and who does not

TEST_P(EngineOverlapTest, OnlyWhatIsReadIsWaitedFor) {
  const auto full = WholeLink(Parsed("full"));
  Awaited none(whole_);
  const auto reads_none = Submit(none.pieces, Parsed("full"));
  ASSERT_OK(reads_none->done.Wait());
  ExpectSameLink(*reads_none, *full, "full");
  EXPECT_EQ(reads_none->stats.suspended_ns, 0);

  const auto prefix = WholeLink(Parsed("prefix"));
  Awaited first(whole_);
  const auto reads_first = Submit(first.pieces, Parsed("prefix"));
  for (uint32_t layers = 1; layers <= kLayers; ++layers) {
    AwaitSuspended(1, reads_first.get());
    EXPECT_EQ(engine_->Gauges().suspended, 1u);
    first.objects[0]->Release(layers);  // exact in place
  }
  ASSERT_OK(reads_first->done.Wait());
  ExpectSameLink(*reads_first, *prefix, "prefix");
}

TEST_P(EngineOverlapTest, ALinkThatWaitsCostsTheOthersNoStep) {
  constexpr uint32_t kTokens = 30;
  const auto whole = WholeLink(Parsed("legolink-8"));
  const auto alone = Submit({Text(Tokens(9, 20))}, Parsed("full"), {}, kTokens);
  ASSERT_OK(alone->done.Wait());
  for (const uint32_t layers : {0u, 3u}) {
    Awaited awaited(whole_);
    awaited.Release(layers);
    EngineHold hold(engine_.get());
    const auto link = Submit(awaited.pieces, Parsed("legolink-8"));
    const auto neighbour = Submit({Text(Tokens(9, 20))}, Parsed("full"), {}, kTokens);
    const uint64_t before = engine_->Gauges().steps;
    uint64_t after = 0;
    neighbour->on_token = [&](const GeneratedToken&) {
      after = engine_->Gauges().steps;
      return true;
    };
    hold.Release();
    ASSERT_OK(neighbour->done.Wait());
    EXPECT_TRUE(HaveSameBytes(*neighbour, *alone));
    // The hold's own step, then one for each token. With three layers there, the link's rows share the
    // prompt's panel, which takes some more steps until they wait.
    EXPECT_LE(after - before, kTokens + (layers == 0 ? 0 : 4)) << layers;
    EXPECT_GE(after - before, kTokens - 1) << layers;
    EXPECT_EQ(engine_->Gauges().suspended, 1u);
    EXPECT_TRUE(link->tokens[0].empty());
    neighbour->on_token = nullptr;
    awaited.Release(kLayers);
    ASSERT_OK(link->done.Wait());
    ExpectSameLink(*link, *whole, "legolink-8");
  }
}

TEST_P(EngineOverlapTest, NoTokenIsOutBeforeTheLastLayerIsThere) {
  for (const char* name : kReading) {
    Awaited awaited(whole_);
    awaited.Release(kLayers - 1);
    const auto link = Submit(awaited.pieces, Parsed(name));
    for (size_t i = 0; i < awaited.objects.size(); ++i) {
      AwaitSuspended(1, link.get());
      EXPECT_EQ(engine_->Gauges().suspended, 1u) << name;
      EXPECT_EQ(link->linked, 0) << name;
      EXPECT_TRUE(link->tokens[0].empty()) << name;
      awaited.objects[i]->Release(kLayers);
    }
    ASSERT_OK(link->done.Wait());
  }
}

TEST_P(EngineOverlapTest, ASuspendedLinkHoldsItsRowsAndTheirResidualStreamAndNoMore) {
  Awaited awaited(whole_);
  awaited.Release(2);
  const auto link = Submit(awaited.pieces, Parsed("legolink-8"));
  AwaitSuspended(1, link.get());
  const EngineGauges gauges = engine_->Gauges();
  const ModelConfig& config = model_->config();
  const uint64_t rows = 8 + 4 + 8 + 8 + 60;  // of three chunks and own text
  EXPECT_EQ(gauges.private_rows, rows + kAnswer - 1);
  const uint64_t row_bytes = engine_->LayoutOf(1, 0).TotalBytes();
  EXPECT_EQ(gauges.private_bytes,
            gauges.private_rows * row_bytes + rows * (sizeof(uint32_t) + sizeof(float) * config.hidden));
  awaited.Release(kLayers);
  ASSERT_OK(link->done.Wait());
}

// --- the end

TEST_P(EngineOverlapTest, AnObjectThatIsLostAtAnyLayerEndsTheLinkWithItsErrorAndNothingElse) {
  for (const char* name : kReading) {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      Awaited awaited(whole_);
      awaited.Release(layer);
      const auto neighbour = Submit({Text(Tokens(9, 20))}, Parsed("full"));
      const auto link = Submit(awaited.pieces, Parsed(name));
      AwaitSuspended(1, link.get());
      for (const auto& object : awaited.objects) {
        if (object != awaited.objects[1]) object->Release(kLayers);
      }
      awaited.objects[1]->Fail(ErrorCode::kLayerDamaged, "damaged");
      EXPECT_EQ(CodeOf(link->done.Wait()), ErrorCode::kLayerDamaged) << name << ", layer " << layer;
      EXPECT_EQ(link->lost, std::vector<size_t>{1}) << name;
      EXPECT_EQ(link->linked, 0);
      EXPECT_TRUE(link->tokens[0].empty());
      EXPECT_EQ(link->ends[0], std::vector<FinishReason>{FinishReason::kError});
      ASSERT_OK(neighbour->done.Wait());
      EXPECT_TRUE(awaited.IsAlone());
    }
  }
}

TEST_P(EngineOverlapTest, AnObjectThatWasLostBeforeTheLinkBeganEndsItToo) {
  Awaited awaited(whole_);
  awaited.Release(2);
  awaited.objects[0]->Fail(ErrorCode::kLeaseEnded, "the lease ended");
  awaited.objects[2]->Release(kLayers);
  awaited.objects[1]->Release(kLayers);
  const auto link = Submit(awaited.pieces, Parsed("legolink-8"));
  EXPECT_EQ(CodeOf(link->done.Wait()), ErrorCode::kLeaseEnded);
  EXPECT_EQ(link->lost, std::vector<size_t>{0});
}

TEST_P(EngineOverlapTest, ASuspendedLinkCanBeCancelledAtAnyLayer) {
  for (const char* name : kReading) {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      Awaited awaited(whole_);
      awaited.Release(layer);
      CancelSource cancel;
      const auto link = Submit(awaited.pieces, Parsed(name), cancel.token());
      AwaitSuspended(1, link.get());
      cancel.Cancel();
      EXPECT_THAT(link->done.Wait(), StatusIs(absl::StatusCode::kCancelled)) << name << ", layer " << layer;
      EXPECT_TRUE(link->tokens[0].empty());
      EXPECT_TRUE(awaited.IsAlone()) << name << ", layer " << layer;
      awaited.Release(kLayers);  // calls those whose link is gone
    }
  }
}

TEST_P(EngineOverlapTest, StopEndsLinksThatWaitAndLayersMayComeLater) {
  Awaited awaited(whole_);
  auto engine = testing::MakeEngine(model_, testing::TinyOptions(GetParam()));
  std::vector<std::shared_ptr<CollectLink>> links;
  for (const char* name : kReading) {
    links.push_back(std::make_shared<CollectLink>(1));
    ASSERT_OK(engine->SubmitLink(SampledLink(awaited.pieces, Parsed(name), kAnswer), links.back()));
  }
  while (engine->Gauges().suspended < links.size()) std::this_thread::yield();
  awaited.Release(2);
  engine->Stop();
  for (const auto& link : links) EXPECT_EQ(CodeOf(link->done.Wait()), ErrorCode::kDraining);
  EXPECT_TRUE(awaited.IsAlone());
  engine.reset();
  awaited.Release(kLayers);
}

// --- what is told of it

TEST_P(EngineOverlapTest, ALoopWhoseLinksAllWaitIsNotStuck) {
  Awaited awaited(whole_);
  const auto link = Submit(awaited.pieces, Parsed("legolink-8"));
  AwaitSuspended(1, link.get());
  const int64_t before = engine_->Gauges().last_progress_steady_ns;
  while (engine_->Gauges().last_progress_steady_ns == before) std::this_thread::yield();
  EXPECT_TRUE(engine_->Gauges().busy);
  awaited.Release(kLayers);
  ASSERT_OK(link->done.Wait());
}

TEST_P(EngineOverlapTest, TheTimeOfWaitingIsToldApartFromThatOfComputing) {
  ManualClock clock;
  auto created = Engine::Create(model_, testing::TinyOptions(GetParam()), &clock);
  ASSERT_OK(created.status());
  Engine& engine = **created;
  const auto wait = [&](ScriptedObject* asked, uint32_t layer) {
    asked->AwaitAsker(layer);
    while (engine.Gauges().suspended == 0) std::this_thread::yield();
    clock.AdvanceMs(7);
  };
  for (const char* name : {"legolink-8", "query-guided-6"}) {
    Awaited awaited(whole_);
    auto link = std::make_shared<CollectLink>(1);
    ASSERT_OK(engine.SubmitLink(SampledLink(awaited.pieces, Parsed(name), kAnswer), link));
    wait(awaited.objects[0].get(), 0);
    awaited.Release(kLayers - 1);
    wait(awaited.objects[2].get(), kLayers - 1);
    awaited.Release(kLayers);
    ASSERT_OK(link->done.Wait());
    EXPECT_EQ(link->stats.suspended_ns, 14'000'000) << name;
    EXPECT_EQ(link->stats.decide_ns, 0) << name;
    EXPECT_EQ(link->stats.link_ns, 0) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, EngineOverlapTest, ::testing::ValuesIn(testing::NativeFormats()),
                         [](const auto& info) { return testing::NameOf(info.param); });

}  // namespace
}  // namespace epic
