// Oracle 7: the same bytes whatever shares the batch, for rows of prompts and for decode rows, in f32 and in
// bf16.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "services/engine/testing/engine_harness.h"
#include "services/engine/testing/tiny_engines.h"

namespace epic {
namespace {

using testing::CollectLink;
using testing::CollectScore;
using testing::Context;
using testing::Done;
using testing::RandomTokens;
using testing::Text;

constexpr LinkStrategy kLegoLink8{StrategyKind::kLegoLink, 8};
constexpr LinkStrategy kFull{StrategyKind::kFull, 0};

class EngineBatchTest : public ::testing::TestWithParam<std::tuple<std::string, ComputeFormat>> {
 protected:
  EngineBatchTest() : model_(testing::LoadTiny(testing::TinyCaseOf(std::get<0>(GetParam())).spec)) {}

  std::unique_ptr<Engine> MakeEngine(uint32_t panel_tokens) const {
    EngineOptions options = testing::TinyOptions(std::get<1>(GetParam()));
    options.panel_tokens = panel_tokens;
    options.max_sequences = 80;
    return testing::MakeEngine(model_, options);
  }
  std::vector<TokenId> Tokens(uint64_t seed, size_t count) const {
    return RandomTokens(seed, count, model_->config().vocab);
  }

  const std::shared_ptr<const Model> model_;
};

// The request under test: a linked prompt, scored at its end and decoded.
struct Subject {
  std::shared_ptr<CollectScore> score = std::make_shared<CollectScore>();
  std::shared_ptr<CollectLink> link = std::make_shared<CollectLink>(1);
};

// Holds the engine's thread in the first token of a small request until `open` is set, so that everything
// submitted meanwhile is admitted together.
std::shared_ptr<CollectLink> HoldEngine(Engine* engine, Done* held, Done* open) {
  auto sink = std::make_shared<CollectLink>(1);
  sink->on_token = [held, open](const GeneratedToken&) {
    held->Set(absl::OkStatus());
    EXPECT_OK(open->Wait());
    return true;
  };
  LinkRequest request{.pieces = {Text({1})}, .strategy = kFull};
  request.max_tokens = 1;
  EXPECT_OK(engine->SubmitLink(std::move(request), sink));
  EXPECT_OK(held->Wait());
  return sink;
}

LinkRequest LinkOf(std::vector<PromptPiece> pieces, uint32_t max_tokens, const LinkStrategy& strategy) {
  LinkRequest request{.pieces = std::move(pieces), .strategy = strategy};
  request.sampling.temperature = 0.9f;
  request.sampling.logprobs = true;
  request.sampling.top_logprobs = 20;
  request.max_tokens = max_tokens;
  return request;
}

Subject RunAmong(Engine* engine, const std::vector<PromptPiece>& pieces, uint32_t others, uint32_t vocab) {
  Done held, open;
  const auto holder = HoldEngine(engine, &held, &open);
  std::vector<std::shared_ptr<CollectLink>> sinks;
  Subject subject;
  for (uint32_t i = 0; i < others; ++i) {
    if (i == others / 2) {
      EXPECT_OK(engine->SubmitScore({.pieces = pieces, .strategy = kLegoLink8, .continuation = {4, 9, 2}},
                                    subject.score));
      EXPECT_OK(engine->SubmitLink(LinkOf(pieces, 10, kLegoLink8), subject.link));
    }
    sinks.push_back(std::make_shared<CollectLink>(1));
    std::vector<PromptPiece> mine = {Text(RandomTokens(100 + i, 1 + i * 7 % 60, vocab))};
    if (i % 3 == 0) mine.insert(mine.begin(), pieces[1]);
    EXPECT_OK(engine->SubmitLink(LinkOf(mine, 1 + i % 15, i % 2 == 0 ? kFull : kLegoLink8), sinks.back()));
  }
  if (others == 0) {
    EXPECT_OK(engine->SubmitScore({.pieces = pieces, .strategy = kLegoLink8, .continuation = {4, 9, 2}},
                                  subject.score));
    EXPECT_OK(engine->SubmitLink(LinkOf(pieces, 10, kLegoLink8), subject.link));
  }
  open.Set(absl::OkStatus());
  EXPECT_OK(holder->done.Wait());
  EXPECT_OK(subject.score->done.Wait());
  EXPECT_OK(subject.link->done.Wait());
  for (const auto& sink : sinks) EXPECT_OK(sink->done.Wait());
  return subject;
}

void ExpectSameBytes(const Subject& a, const Subject& b) {
  ASSERT_EQ(a.score->logits, b.score->logits);
  ASSERT_EQ(a.link->Ids(0), b.link->Ids(0));
  for (size_t i = 0; i < a.link->tokens[0].size(); ++i) {
    const GeneratedToken& x = a.link->tokens[0][i];
    const GeneratedToken& y = b.link->tokens[0][i];
    ASSERT_EQ(x.logprob, y.logprob);
    for (size_t t = 0; t < x.top_logprobs.size(); ++t) {
      ASSERT_EQ(x.top_logprobs[t].token, y.top_logprobs[t].token);
      ASSERT_EQ(x.top_logprobs[t].logprob, y.top_logprobs[t].logprob);
    }
  }
}

TEST_P(EngineBatchTest, ARowsBytesDoNotDependOnWhatSharesItsBatch) {
  const uint32_t vocab = model_->config().vocab;
  const auto engine = MakeEngine(48);
  ASSERT_OK_AND_ASSIGN(const PromptPiece a, Context(engine.get(), Tokens(1, 61)));
  ASSERT_OK_AND_ASSIGN(const PromptPiece b, Context(engine.get(), Tokens(2, 45)));
  const std::vector<PromptPiece> pieces = {Text(Tokens(3, 5)), a, b, Text(Tokens(4, 33))};
  const Subject alone = RunAmong(engine.get(), pieces, 0, vocab);
  EXPECT_EQ(alone.link->tokens[0].size(), 10u);
  for (const uint32_t others : {1u, 4u, 15u, 63u}) {
    SCOPED_TRACE(others);
    ExpectSameBytes(RunAmong(engine.get(), pieces, others, vocab), alone);
  }
  for (const uint32_t panel : {5u, 33u, 512u}) {
    SCOPED_TRACE(panel);
    const auto other = MakeEngine(panel);
    ExpectSameBytes(RunAmong(other.get(), pieces, 0, vocab), alone);
    ExpectSameBytes(RunAmong(other.get(), pieces, 15, vocab), alone);
  }
}

TEST_P(EngineBatchTest, ACompilesBytesDoNotDependOnPanelsOrNeighbours) {
  std::vector<std::shared_ptr<testing::PlainObject>> objects;
  for (const uint32_t panel : {5u, 48u, 512u}) {
    const auto engine = MakeEngine(panel);
    ASSERT_OK_AND_ASSIGN(auto alone, testing::Compile(engine.get(), Tokens(1, 150), Tokens(2, 4)));
    objects.push_back(alone);
    auto sink = std::make_shared<testing::CollectCompile>(alone->layout());
    auto other = std::make_shared<testing::CollectCompile>(engine->LayoutOf(90, 0));
    ASSERT_OK(engine->SubmitCompile({.tokens = Tokens(3, 90)}, other));
    ASSERT_OK(engine->SubmitCompile({.prefix_tokens = Tokens(2, 4), .tokens = Tokens(1, 150)}, sink));
    ASSERT_OK(sink->done.Wait());
    ASSERT_OK(other->done.Wait());
    objects.push_back(sink->object);
  }
  for (const auto& object : objects) {
    for (uint32_t layer = 0; layer < object->layout().layers; ++layer) {
      EXPECT_EQ(AsText(object->Layer(layer)), AsText(objects[0]->Layer(layer)));
    }
  }
}

std::vector<std::tuple<std::string, ComputeFormat>> Params() {
  std::vector<std::tuple<std::string, ComputeFormat>> params;
  for (const std::string name : {"llama", "qwen2", "qwen3"}) {
    for (const ComputeFormat format : testing::NativeFormats()) params.emplace_back(name, format);
  }
  return params;
}

INSTANTIATE_TEST_SUITE_P(Models, EngineBatchTest, ::testing::ValuesIn(Params()), [](const auto& info) {
  return std::get<0>(info.param) + "_" + testing::NameOf(std::get<1>(info.param));
});

}  // namespace
}  // namespace epic
