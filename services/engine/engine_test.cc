// The engine's promises to its callers: answers, usage, cancellation, bounds, errors, and stopping.
#include "services/engine/engine.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "kernels/sampling/sampling.h"
#include "services/engine/testing/engine_harness.h"
#include "services/engine/testing/tiny_engines.h"

namespace epic {
namespace {

using testing::CollectCompile;
using testing::CollectLink;
using testing::Context;
using testing::Done;
using testing::Link;
using testing::Score;
using testing::Text;

constexpr LinkStrategy kFull{StrategyKind::kFull, 0};
constexpr LinkStrategy kPrefix{StrategyKind::kPrefix, 0};
constexpr LinkStrategy LegoLink(uint32_t k) { return {StrategyKind::kLegoLink, k}; }

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() : model_(testing::LoadTiny(testing::TinyCaseOf("qwen2").spec)) {}

  void Start(const EngineOptions& options) { engine_ = testing::MakeEngine(model_, options); }
  void Start() { Start(testing::TinyOptions(ComputeFormat::kF32)); }

  std::vector<TokenId> Tokens(uint64_t seed, size_t count) const {
    return testing::RandomTokens(seed, count, model_->config().vocab);
  }
  LinkRequest Greedy(std::vector<PromptPiece> pieces, uint32_t max_tokens,
                     const LinkStrategy& strategy = kFull) const {
    LinkRequest request{.tenant = "default", .pieces = std::move(pieces), .strategy = strategy};
    request.sampling.temperature = 0;
    request.max_tokens = max_tokens;
    return request;
  }
  void ExpectIdle() const {
    const EngineGauges gauges = engine_->Gauges();
    EXPECT_EQ(gauges.running, 0u);
    EXPECT_EQ(gauges.waiting, 0u);
    EXPECT_EQ(gauges.private_rows, 0u);
    EXPECT_EQ(gauges.private_bytes, 0u);
    EXPECT_EQ(gauges.held_objects, 0u);
    EXPECT_TRUE(testing::BecomesIdle(*engine_));
  }

  const std::shared_ptr<const Model> model_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, AGreedyAnswerIsTheArgmaxOfTheTeacherForcedLogits) {
  Start();
  ASSERT_OK_AND_ASSIGN(const PromptPiece chunk, Context(engine_.get(), Tokens(1, 60)));
  const std::vector<PromptPiece> pieces = {Text(Tokens(2, 9)), chunk, Text(Tokens(3, 20))};
  ASSERT_OK_AND_ASSIGN(const auto link, Link(engine_.get(), Greedy(pieces, 12, LegoLink(8))));
  const std::vector<TokenId> ids = link->Ids(0);
  ASSERT_EQ(ids.size(), 12u);
  EXPECT_EQ(link->ends[0], std::vector<FinishReason>{FinishReason::kLength});
  EXPECT_EQ(link->linked, 1);
  ASSERT_OK_AND_ASSIGN(const auto score, Score(engine_.get(), pieces, LegoLink(8), ids));
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ArgMax(score->logits[i]), ids[i]);
  EXPECT_EQ(link->stats.prompt_tokens, 89u);
  EXPECT_EQ(link->stats.cached_tokens, 52u);
  EXPECT_EQ(link->stats.recomputed_tokens, 8u);
  EXPECT_EQ(link->stats.fresh_tokens, 29u);
  ExpectIdle();
}

TEST_F(EngineTest, ChoicesShareThePromptAndAnswerAsTheyWouldAlone) {
  Start();
  LinkRequest request{.pieces = {Text(Tokens(1, 70))}, .strategy = kFull};
  request.sampling.temperature = 1.5f;
  request.sampling.seed = 11;
  request.sampling.presence_penalty = 0.5f;
  request.choices = 3;
  request.max_tokens = 10;
  ASSERT_OK_AND_ASSIGN(const auto together, Link(engine_.get(), request));
  std::set<std::vector<TokenId>> answers;
  for (uint32_t i = 0; i < 3; ++i) {
    LinkRequest alone = request;
    alone.choices = 1;
    alone.sampling.seed = 11 + i;
    ASSERT_OK_AND_ASSIGN(const auto one, Link(engine_.get(), alone));
    EXPECT_EQ(together->Ids(i), one->Ids(0));
    answers.insert(one->Ids(0));
  }
  EXPECT_EQ(answers.size(), 3u);
}

TEST_F(EngineTest, AStopTokenEndsAChoiceAndIsNotReported) {
  Start();
  LinkRequest request{.pieces = {Text(Tokens(1, 20))}, .strategy = kFull};
  request.sampling.seed = 5;
  request.sampling.temperature = 1.3f;
  request.max_tokens = 8;
  ASSERT_OK_AND_ASSIGN(const auto free, Link(engine_.get(), request));
  const std::vector<TokenId> ids = free->Ids(0);
  ASSERT_EQ(ids.size(), 8u);
  request.stop_tokens = {ids[3], 17};
  ASSERT_OK_AND_ASSIGN(const auto stopped, Link(engine_.get(), request));
  const auto first = std::find(ids.begin(), ids.end(), ids[3]) - ids.begin();
  EXPECT_EQ(stopped->Ids(0), std::vector<TokenId>(ids.begin(), ids.begin() + first));
  EXPECT_EQ(stopped->ends[0], std::vector<FinishReason>{FinishReason::kStop});
}

TEST_F(EngineTest, ASinkThatHasEnoughEndsItsChoice) {
  Start();
  auto sink = std::make_shared<CollectLink>(1);
  sink->on_token = [&](const GeneratedToken&) { return sink->tokens[0].size() < 3; };
  ASSERT_OK(engine_->SubmitLink(Greedy({Text(Tokens(1, 20))}, 50), sink));
  ASSERT_OK(sink->done.Wait());
  sink->on_token = nullptr;
  EXPECT_EQ(sink->tokens[0].size(), 3u);
  EXPECT_EQ(sink->ends[0], std::vector<FinishReason>{FinishReason::kStop});
}

TEST_F(EngineTest, LogprobsAreThoseOfTheModelsOwnDistribution) {
  Start();
  LinkRequest request{.pieces = {Text(Tokens(1, 30))}, .strategy = kFull};
  request.sampling.temperature = 2.0f;
  request.sampling.logit_bias = {{7, 100.0f}};
  request.sampling.logprobs = true;
  request.sampling.top_logprobs = 4;
  request.max_tokens = 2;
  ASSERT_OK_AND_ASSIGN(const auto link, Link(engine_.get(), request));
  ASSERT_EQ(link->Ids(0), (std::vector<TokenId>{7, 7}));
  ASSERT_OK_AND_ASSIGN(const auto score, Score(engine_.get(), {Text(Tokens(1, 30))}, kFull, {7, 7}));
  std::vector<float> expected(score->logits[0].size());
  LogSoftmax(score->logits[0], expected);
  const GeneratedToken& token = link->tokens[0][0];
  EXPECT_NEAR(token.logprob, expected[7], 1e-4);
  ASSERT_EQ(token.top_logprobs.size(), 4u);
  EXPECT_EQ(token.top_logprobs[0].token, ArgMax(expected));
  for (const TokenLogprob& top : token.top_logprobs) EXPECT_NEAR(top.logprob, expected[top.token], 1e-4);
}

TEST_F(EngineTest, ThePrefixStrategyReadsWhatFullAndPrefixComputedAndStaysExact) {
  EngineOptions options = testing::TinyOptions(ComputeFormat::kF32);
  options.prefix_cache_bytes = 4ull << 20;
  Start(options);
  const auto first = Tokens(1, 100);
  const std::vector<TokenId> continuation = {5, 6, 7};
  ASSERT_OK_AND_ASSIGN(const auto full, Score(engine_.get(), {Text(first)}, kFull, continuation));
  EXPECT_GT(engine_->Gauges().prefix_cache_bytes, 0u);
  ASSERT_OK_AND_ASSIGN(const auto again, Score(engine_.get(), {Text(first)}, kPrefix, continuation));
  EXPECT_EQ(again->stats.cached_tokens, 99u);
  EXPECT_EQ(again->stats.fresh_tokens, 1u);
  // A longer prompt goes on from there, and is published in its turn.
  auto longer = first;
  for (const TokenId id : Tokens(2, 60)) longer.push_back(id);
  ASSERT_OK_AND_ASSIGN(const auto part, Score(engine_.get(), {Text(longer)}, kPrefix, continuation));
  EXPECT_EQ(part->stats.cached_tokens, 100u);
  ASSERT_OK_AND_ASSIGN(const auto whole, Score(engine_.get(), {Text(longer)}, kPrefix, continuation));
  EXPECT_EQ(whole->stats.cached_tokens, 159u);
  ASSERT_OK_AND_ASSIGN(const auto fresh, Score(engine_.get(), {Text(longer)}, kFull, continuation));
  EXPECT_EQ(fresh->stats.cached_tokens, 0u);
  for (size_t i = 0; i < continuation.size(); ++i) {
    EXPECT_LE(testing::RelativeDifference(again->logits[i], full->logits[i]), 1e-4);
    EXPECT_LE(testing::RelativeDifference(part->logits[i], fresh->logits[i]), 1e-4);
    EXPECT_LE(testing::RelativeDifference(whole->logits[i], fresh->logits[i]), 1e-4);
  }
  EXPECT_LE(engine_->Gauges().prefix_cache_bytes, options.prefix_cache_bytes);
}

TEST_F(EngineTest, WhatOneTenantComputedIsNeitherReadNorMeasurableByAnother) {
  EngineOptions options = testing::TinyOptions(ComputeFormat::kF32);
  options.prefix_cache_bytes = 4ull << 20;
  Start(options);
  const auto cached = [&](const std::string& tenant, const LinkStrategy& strategy) {
    const auto score = Score(engine_.get(), {Text(Tokens(1, 50))}, strategy, {5}, tenant);
    EXPECT_OK(score.status());
    return (*score)->stats.cached_tokens;
  };
  cached("a", kFull);
  EXPECT_EQ(cached("b", kPrefix), 0u);
  EXPECT_EQ(cached("b", kPrefix), 49u);
  EXPECT_EQ(cached("a", kPrefix), 49u);
  // Without a tenant nothing is read, and nothing is left.
  const uint64_t bytes = engine_->Gauges().prefix_cache_bytes;
  EXPECT_EQ(cached("", kPrefix), 0u);
  EXPECT_EQ(cached("", kFull), 0u);
  EXPECT_EQ(engine_->Gauges().prefix_cache_bytes, bytes);
  // The same through a link.
  LinkRequest request = Greedy({Text(Tokens(2, 30))}, 1, kPrefix);
  for (const auto& [tenant, rows] : {std::pair{"a", 0u}, {"b", 0u}, {"a", 29u}}) {
    request.tenant = tenant;
    ASSERT_OK_AND_ASSIGN(const auto link, Link(engine_.get(), request));
    EXPECT_EQ(link->stats.cached_tokens, rows) << tenant;
  }
}

TEST_F(EngineTest, RepairedRowsAreNeverPublishedAsExact) {
  EngineOptions options = testing::TinyOptions(ComputeFormat::kF32);
  options.prefix_cache_bytes = 4ull << 20;
  Start(options);
  ASSERT_OK_AND_ASSIGN(const PromptPiece chunk, Context(engine_.get(), Tokens(1, 40)));
  const std::vector<PromptPiece> pieces = {Text(Tokens(2, 10)), chunk, Text(Tokens(3, 10))};
  ASSERT_OK(Link(engine_.get(), Greedy(pieces, 1, LegoLink(4))).status());
  EXPECT_EQ(engine_->Gauges().prefix_cache_bytes, 0u);
}

// --- cancellation

TEST_F(EngineTest, CancelledInDecodeEverythingIsFree) {
  Start();
  CancelSource cancel;
  auto sink = std::make_shared<CollectLink>(2);
  sink->on_token = [&](const GeneratedToken&) {
    if (sink->tokens[0].size() == 4) cancel.Cancel();
    return true;
  };
  LinkRequest request = Greedy({Text(Tokens(1, 20))}, 400);
  request.choices = 2;
  request.cancel = cancel.token();
  ASSERT_OK(engine_->SubmitLink(std::move(request), sink));
  EXPECT_THAT(sink->done.Wait(), testing::StatusIs(absl::StatusCode::kCancelled));
  EXPECT_LT(sink->tokens[0].size(), 10u);
  EXPECT_EQ(sink->ends[0], std::vector<FinishReason>{FinishReason::kCancelled});
  EXPECT_EQ(sink->ends[1], std::vector<FinishReason>{FinishReason::kCancelled});
  sink->on_token = nullptr;
  ExpectIdle();
}

// Runs a decoding request whose first token calls `submit` and whose third cancels `cancel`, and waits for
// it.
void CancelAmongDecodeSteps(Engine* engine, LinkRequest request, const std::function<void()>& submit,
                            CancelSource* cancel) {
  auto sink = std::make_shared<CollectLink>(1);
  sink->on_token = [&](const GeneratedToken&) {
    if (sink->tokens[0].size() == 1) submit();
    if (sink->tokens[0].size() == 3) cancel->Cancel();
    return true;
  };
  ASSERT_OK(engine->SubmitLink(std::move(request), sink));
  ASSERT_OK(sink->done.Wait());
  sink->on_token = nullptr;
}

TEST_F(EngineTest, CancelledInItsPanelsACompileIsNotPublishedAndEverythingIsFree) {
  EngineOptions options = testing::TinyOptions(ComputeFormat::kF32);
  options.panel_tokens = 16;
  Start(options);
  CancelSource cancel;
  auto sink = std::make_shared<CollectCompile>(engine_->LayoutOf(500, 0));
  const auto submit = [&] {
    ASSERT_OK(engine_->SubmitCompile({.tokens = Tokens(1, 500), .cancel = cancel.token()}, sink));
  };
  CancelAmongDecodeSteps(engine_.get(), Greedy({Text(Tokens(2, 5))}, 30), submit, &cancel);
  EXPECT_THAT(sink->done.Wait(), testing::StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(sink->layers, 0u);
  ExpectIdle();
}

TEST_F(EngineTest, CancelledInItsPanelsALinkEndsBeforeItsFirstToken) {
  EngineOptions options = testing::TinyOptions(ComputeFormat::kF32);
  options.panel_tokens = 16;
  Start(options);
  ASSERT_OK_AND_ASSIGN(const PromptPiece chunk, Context(engine_.get(), Tokens(1, 400)));
  CancelSource cancel;
  auto sink = std::make_shared<CollectLink>(1);
  LinkRequest request = Greedy({Text({3}), chunk, Text(Tokens(3, 5))}, 20, LegoLink(400));
  request.cancel = cancel.token();
  const auto submit = [&] { ASSERT_OK(engine_->SubmitLink(std::move(request), sink)); };
  CancelAmongDecodeSteps(engine_.get(), Greedy({Text(Tokens(2, 5))}, 30), submit, &cancel);
  EXPECT_THAT(sink->done.Wait(), testing::StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(sink->linked, 0);
  EXPECT_EQ(sink->ends[0], std::vector<FinishReason>{FinishReason::kCancelled});
  ExpectIdle();
  EXPECT_EQ(chunk.object.use_count(), 1);
}

TEST_F(EngineTest, CancelledInTheQueueARequestNeverRuns) {
  EngineOptions options = testing::TinyOptions(ComputeFormat::kF32);
  options.max_sequences = 1;
  Start(options);
  CancelSource cancel;
  auto running = std::make_shared<CollectLink>(1);
  auto waiting = std::make_shared<CollectLink>(1);
  running->on_token = [&](const GeneratedToken&) {
    cancel.Cancel();
    return true;
  };
  ASSERT_OK(engine_->SubmitLink(Greedy({Text(Tokens(1, 5))}, 40), running));
  LinkRequest request = Greedy({Text(Tokens(1, 5))}, 40);
  request.cancel = cancel.token();
  ASSERT_OK(engine_->SubmitLink(std::move(request), waiting));
  EXPECT_THAT(waiting->done.Wait(), testing::StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(waiting->linked, 0);
  ASSERT_OK(running->done.Wait());
  running->on_token = nullptr;
  ExpectIdle();
}

// --- faults

// A copy of the object with one of its keys set to NaN.
std::shared_ptr<KvObject> Poisoned(const KvObject& object) {
  auto copy = std::make_shared<testing::PlainObject>(object.layout());
  for (uint32_t l = 0; l < object.layout().layers; ++l) {
    std::memcpy(copy->MutableLayer(l).data(), object.Layer(l).data(), object.layout().LayerBytes());
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(copy->MutableLayer(0).data(), &nan, sizeof(nan));
  return copy;
}

TEST_F(EngineTest, AnObjectWithNanFailsItsRequestAndChangesNoByteOfTheNeighbours) {
  Start();
  ASSERT_OK_AND_ASSIGN(const PromptPiece chunk, Context(engine_.get(), Tokens(1, 60)));
  const std::vector<PromptPiece> good = {chunk, Text(Tokens(3, 20))};
  const std::vector<PromptPiece> bad = {{.tokens = chunk.tokens, .object = Poisoned(*chunk.object)},
                                        Text(Tokens(3, 20))};
  LinkRequest request = Greedy(good, 20, LegoLink(8));
  request.sampling.logprobs = true;
  request.sampling.top_logprobs = 20;
  ASSERT_OK_AND_ASSIGN(const auto alone, Link(engine_.get(), request));
  auto neighbour = std::make_shared<CollectLink>(1);
  auto failing = std::make_shared<CollectLink>(1);
  ASSERT_OK(engine_->SubmitLink(std::move(request), neighbour));
  ASSERT_OK(engine_->SubmitLink(Greedy(bad, 20, LegoLink(8)), failing));
  const absl::Status status = failing->done.Wait();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(CodeOf(status), ErrorCode::kInternal);
  EXPECT_TRUE(failing->tokens[0].empty());
  EXPECT_EQ(failing->ends[0], std::vector<FinishReason>{FinishReason::kError});
  ASSERT_OK(neighbour->done.Wait());
  ASSERT_EQ(neighbour->Ids(0), alone->Ids(0));
  for (size_t i = 0; i < alone->tokens[0].size(); ++i) {
    for (size_t t = 0; t < 20; ++t) {
      EXPECT_EQ(neighbour->tokens[0][i].top_logprobs[t].logprob, alone->tokens[0][i].top_logprobs[t].logprob);
    }
  }
  ExpectIdle();
}

TEST_F(EngineTest, ACompileWhoseSinkFailsEndsWithThatError) {
  Start();
  struct Failing final : CompileSink {
    absl::Status OnLayer(uint32_t layer, ByteSpan) override {
      return layer == 0 ? absl::OkStatus() : Error(ErrorCode::kStorageFull, "full");
    }
    void OnDone(const absl::Status& status) override { done.Set(status); }
    Done done;
  };
  auto sink = std::make_shared<Failing>();
  ASSERT_OK(engine_->SubmitCompile({.tokens = Tokens(1, 20)}, sink));
  EXPECT_EQ(CodeOf(sink->done.Wait()), ErrorCode::kStorageFull);
  ExpectIdle();
}

TEST_F(EngineTest, ACompileCancelledBetweenItsLayersIsNotDone) {
  Start();
  struct Cancelling final : CompileSink {
    absl::Status OnLayer(uint32_t, ByteSpan) override {
      ++layers;
      cancel.Cancel();
      return absl::OkStatus();
    }
    void OnDone(const absl::Status& status) override { done.Set(status); }
    CancelSource cancel;
    uint32_t layers = 0;
    Done done;
  };
  auto sink = std::make_shared<Cancelling>();
  ASSERT_OK(engine_->SubmitCompile({.tokens = Tokens(1, 20), .cancel = sink->cancel.token()}, sink));
  EXPECT_THAT(sink->done.Wait(), testing::StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(sink->layers, 1u);
  ExpectIdle();
}

// --- bounds

TEST_F(EngineTest, BeyondTheQueueSubmissionsAreRefusedWithAnAdvice) {
  EngineOptions options = testing::TinyOptions(ComputeFormat::kF32);
  options.max_sequences = 1;
  options.max_queue = 2;
  Start(options);
  Done first_token, go_on;
  auto running = std::make_shared<CollectLink>(1);
  running->on_token = [&](const GeneratedToken&) {
    if (running->tokens[0].size() == 1) {
      first_token.Set(absl::OkStatus());
      EXPECT_OK(go_on.Wait());
    }
    return true;
  };
  ASSERT_OK(engine_->SubmitLink(Greedy({Text(Tokens(1, 5))}, 4), running));
  ASSERT_OK(first_token.Wait());
  std::vector<std::shared_ptr<CollectLink>> queued;
  for (int i = 0; i < 2; ++i) {
    queued.push_back(std::make_shared<CollectLink>(1));
    ASSERT_OK(engine_->SubmitLink(Greedy({Text(Tokens(1, 5))}, 4), queued.back()));
  }
  EXPECT_EQ(engine_->Gauges().waiting, 2u);
  const absl::Status refused =
      engine_->SubmitLink(Greedy({Text(Tokens(1, 5))}, 4), std::make_shared<CollectLink>(1));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(CodeOf(refused), ErrorCode::kQueueFull);
  EXPECT_TRUE(RetryAfterMsOf(refused).has_value());
  go_on.Set(absl::OkStatus());
  ASSERT_OK(running->done.Wait());
  for (const auto& sink : queued) ASSERT_OK(sink->done.Wait());
  running->on_token = nullptr;
  ExpectIdle();
}

TEST_F(EngineTest, RequestsWaitUntilTheirMemoryFitsAndOnesThatNeverCanAreRefused) {
  EngineOptions options = testing::TinyOptions(ComputeFormat::kF32);
  const KvLayout row = testing::MakeEngine(model_, options)->LayoutOf(1, 0);
  // What all share is 80 rows of all activations, 32 rows of logits, and cos and sin of twice the context;
  // above it there is room for 150 rows.
  const ModelConfig& config = model_->config();
  const uint64_t activations =
      2 * config.hidden + (2 * config.heads + 2 * config.kv_heads) * config.head_dim + 2 * config.ffn;
  const uint64_t rotary = 2 * 2 * config.context_length * config.head_dim / 2;
  options.memory_bytes = 4 * (80 * activations + 32 * config.vocab + rotary) + 150 * row.TotalBytes();
  Start(options);
  const absl::Status never =
      engine_->SubmitLink(Greedy({Text(Tokens(1, 100))}, 52), std::make_shared<CollectLink>(1));
  ASSERT_FALSE(never.ok());
  EXPECT_EQ(CodeOf(never), ErrorCode::kInvalidRequest);
  std::vector<std::shared_ptr<CollectLink>> sinks;
  for (int i = 0; i < 3; ++i) {
    sinks.push_back(std::make_shared<CollectLink>(1));
    sinks.back()->on_token = [&](const GeneratedToken&) {
      EXPECT_EQ(engine_->Gauges().running, 1u);
      EXPECT_LE(engine_->Gauges().private_rows, 150u);
      return true;
    };
    ASSERT_OK(engine_->SubmitLink(Greedy({Text(Tokens(i, 100))}, 51), sinks.back()));
  }
  for (const auto& sink : sinks) ASSERT_OK(sink->done.Wait());
  for (const auto& sink : sinks) sink->on_token = nullptr;
  ExpectIdle();
}

TEST_F(EngineTest, APromptAboveTheContextIsRefusedWithBothNumbers) {
  Start();
  const absl::Status status =
      engine_->SubmitLink(Greedy({Text(Tokens(1, 500))}, 13), std::make_shared<CollectLink>(1));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(CodeOf(status), ErrorCode::kContextLengthExceeded);
  EXPECT_NE(MessageOf(status).find("512"), std::string::npos);
  EXPECT_NE(MessageOf(status).find("513"), std::string::npos);
  EXPECT_OK(Link(engine_.get(), Greedy({Text(Tokens(1, 500))}, 12)).status());
}

TEST_F(EngineTest, StopEndsWhatRunsAndWaitsAndRefusesWhatComes) {
  EngineOptions options = testing::TinyOptions(ComputeFormat::kF32);
  options.max_sequences = 1;
  Start(options);
  Done first_token;
  auto running = std::make_shared<CollectLink>(1);
  running->on_token = [&](const GeneratedToken&) {
    if (running->tokens[0].size() == 1) first_token.Set(absl::OkStatus());
    return true;
  };
  auto waiting = std::make_shared<CollectLink>(1);
  ASSERT_OK(engine_->SubmitLink(Greedy({Text(Tokens(1, 5))}, 500), running));
  ASSERT_OK(engine_->SubmitLink(Greedy({Text(Tokens(1, 5))}, 500), waiting));
  ASSERT_OK(first_token.Wait());
  engine_->Stop();
  engine_->Stop();
  ASSERT_TRUE(running->done.IsSet());
  ASSERT_TRUE(waiting->done.IsSet());
  EXPECT_EQ(CodeOf(waiting->done.Wait()), ErrorCode::kDraining);
  const absl::Status late =
      engine_->SubmitLink(Greedy({Text(Tokens(1, 5))}, 5), std::make_shared<CollectLink>(1));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(CodeOf(late), ErrorCode::kDraining);
  running->on_token = nullptr;
  ExpectIdle();
}

TEST_F(EngineTest, AScratchThatDoesNotFitIsAClearErrorAtStart) {
  EngineOptions options = testing::TinyOptions(ComputeFormat::kF32);
  options.memory_bytes = 1000;
  const auto engine = Engine::Create(model_, options, SystemClock::Get());
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(CodeOf(engine.status()), ErrorCode::kInvalidRequest);
}

TEST_F(EngineTest, AContextLengthThatAFileMerelyClaimsIsAClearErrorAndTakesNoMemory) {
  testing::TinyModelSpec spec;
  spec.context_length = 1u << 24;
  const auto engine =
      Engine::Create(testing::LoadTiny(spec), testing::TinyOptions(ComputeFormat::kF32), SystemClock::Get());
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(CodeOf(engine.status()), ErrorCode::kInvalidRequest);
  EXPECT_NE(MessageOf(engine.status()).find("16777216"), std::string::npos);
}

}  // namespace
}  // namespace epic
