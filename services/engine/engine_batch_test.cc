// Oracle 7: the same bytes whatever shares the batch, for rows of prompts and for decode rows, in f32 and in
// bf16.
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

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
using testing::RandomTokens;
using testing::SampledLink;
using testing::Text;

constexpr LinkStrategy kLegoLink8{StrategyKind::kLegoLink, 8};
constexpr LinkStrategy kFull{StrategyKind::kFull, 0};

class EngineBatchTest : public ::testing::TestWithParam<std::tuple<std::string, ComputeFormat>> {
 protected:
  EngineBatchTest() : model_(testing::LoadTiny(testing::TinyCaseOf(std::get<0>(GetParam())).spec)) {}

  std::unique_ptr<Engine> MakeEngine(uint32_t panel_tokens, uint32_t max_sequences = 80) const {
    EngineOptions options = testing::TinyOptions(std::get<1>(GetParam()));
    options.panel_tokens = panel_tokens;
    options.max_sequences = max_sequences;
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

void Submit(Engine* engine, const std::vector<PromptPiece>& pieces, const Subject& subject) {
  EXPECT_OK(engine->SubmitScore({.pieces = pieces, .strategy = kLegoLink8, .continuation = {4, 9, 2}},
                                subject.score));
  EXPECT_OK(engine->SubmitLink(SampledLink(pieces, kLegoLink8, 10), subject.link));
}

Subject RunAmong(Engine* engine, const std::vector<PromptPiece>& pieces, uint32_t others) {
  EngineHold hold(engine);
  std::vector<std::shared_ptr<CollectLink>> sinks;
  Subject subject;
  for (uint32_t i = 0; i < others; ++i) {
    if (i == others / 2) Submit(engine, pieces, subject);
    sinks.push_back(std::make_shared<CollectLink>(1));
    std::vector<PromptPiece> mine = {Text(RandomTokens(100 + i, 1 + i * 7 % 60, engine->config().vocab))};
    if (i % 3 == 0) mine.insert(mine.begin(), pieces[1]);
    EXPECT_OK(
        engine->SubmitLink(SampledLink(mine, i % 2 == 0 ? kFull : kLegoLink8, 1 + i % 15), sinks.back()));
  }
  if (others == 0) Submit(engine, pieces, subject);
  hold.Release();
  EXPECT_OK(subject.score->done.Wait());
  EXPECT_OK(subject.link->done.Wait());
  for (const auto& sink : sinks) EXPECT_OK(sink->done.Wait());
  return subject;
}

bool HaveSameBytes(const Subject& a, const Subject& b) {
  if (a.score->logits.size() != b.score->logits.size()) return false;
  for (size_t i = 0; i < a.score->logits.size(); ++i) {
    const std::vector<float>& x = a.score->logits[i];
    const std::vector<float>& y = b.score->logits[i];
    if (x.size() != y.size() || std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) != 0) return false;
  }
  return testing::HaveSameBytes(*a.link, *b.link);
}

// Panels of one row run each row of the prompt alone: the steps of larger ones are batches of that many rows,
// of this request and of those that share its step.
TEST_P(EngineBatchTest, APromptRowsBytesDoNotDependOnWhatSharesItsBatch) {
  std::unique_ptr<Engine> single = MakeEngine(1);
  ASSERT_OK_AND_ASSIGN(const PromptPiece a, Context(single.get(), Tokens(1, 61)));
  ASSERT_OK_AND_ASSIGN(const PromptPiece b, Context(single.get(), Tokens(2, 45)));
  const std::vector<PromptPiece> pieces = {Text(Tokens(3, 5)), a, b, Text(Tokens(4, 33))};
  const Subject alone = RunAmong(single.get(), pieces, 0);
  ASSERT_EQ(alone.score->logits.size(), 3u);
  ASSERT_EQ(alone.link->tokens[0].size(), 10u);
  EXPECT_TRUE(HaveSameBytes(RunAmong(single.get(), pieces, 3), alone));
  for (const uint32_t panel : {2u, 5u, 16u, 48u, 64u, 512u}) {
    const auto engine = MakeEngine(panel);
    for (const uint32_t others : {0u, 1u, 15u, 63u}) {
      EXPECT_TRUE(HaveSameBytes(RunAmong(engine.get(), pieces, others), alone))
          << "panels of " << panel << " rows, " << others << " other requests";
    }
  }
}

TEST_P(EngineBatchTest, ADecodeRowsBytesDoNotDependOnHowManyDecodeWithIt) {
  const auto engine = MakeEngine(600, 512);
  ASSERT_OK_AND_ASSIGN(const PromptPiece chunk, Context(engine.get(), Tokens(1, 61)));
  const std::vector<PromptPiece> pieces = {Text(Tokens(3, 5)), chunk, Text(Tokens(4, 12))};
  const auto alone = testing::DecodeAmong(engine.get(), pieces, kLegoLink8, 8, 1);
  ASSERT_EQ(alone->tokens[0].size(), 8u);
  for (const uint32_t batch : {2u, 5u, 16u, 64u, 512u}) {
    const auto among = testing::DecodeAmong(engine.get(), pieces, kLegoLink8, 8, batch);
    EXPECT_TRUE(testing::HaveSameBytes(*among, *alone)) << "batch of " << batch;
  }
}

// The control of all comparisons here.
TEST_P(EngineBatchTest, OneBitOfOneStoredValueChangesTheBytes) {
  const auto engine = MakeEngine(64);
  ASSERT_OK_AND_ASSIGN(const PromptPiece a, Context(engine.get(), Tokens(1, 61)));
  ASSERT_OK_AND_ASSIGN(const PromptPiece b, Context(engine.get(), Tokens(2, 45)));
  const std::vector<PromptPiece> pieces = {Text(Tokens(3, 5)), a, b, Text(Tokens(4, 33))};
  std::vector<PromptPiece> other = pieces;
  other[2] = testing::WithOneBitFlipped(b, 0, 30);
  const Subject good = RunAmong(engine.get(), pieces, 0);
  const Subject bad = RunAmong(engine.get(), other, 0);
  EXPECT_NE(bad.score->logits, good.score->logits);
  EXPECT_FALSE(testing::HaveSameBytes(*bad.link, *good.link));
  // In a row that the link recomputes it is not read at all.
  other[2] = testing::WithOneBitFlipped(b, 0, 7);
  EXPECT_TRUE(HaveSameBytes(RunAmong(engine.get(), other, 0), good));
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

struct ShortChunk {
  std::vector<TokenId> prefix, tokens;
  std::shared_ptr<testing::PlainObject> alone;
};

// Chunks of these lengths, each compiled alone by an engine whose steps have one row; every third behind a
// compile prefix.
std::vector<ShortChunk> ShortChunks(Engine* single, const std::vector<size_t>& lengths) {
  std::vector<ShortChunk> chunks;
  for (size_t i = 0; i < lengths.size(); ++i) {
    ShortChunk& chunk = chunks.emplace_back();
    if (i % 3 == 2) chunk.prefix = {1, 1, 1, 1};
    chunk.tokens = RandomTokens(50 + i, lengths[i], single->config().vocab);
    auto alone = testing::Compile(single, chunk.tokens, chunk.prefix);
    EXPECT_OK(alone.status());
    chunk.alone = *std::move(alone);
  }
  return chunks;
}

// Compiles them together and returns how many steps that took. Fails the test where bytes differ from alone.
uint64_t CompileTogether(Engine* engine, const std::vector<ShortChunk>& chunks) {
  EXPECT_TRUE(testing::BecomesIdle(*engine));
  const uint64_t before = engine->Gauges().steps;
  EngineHold hold(engine);
  std::vector<std::shared_ptr<testing::CollectCompile>> sinks;
  for (const ShortChunk& chunk : chunks) {
    sinks.push_back(std::make_shared<testing::CollectCompile>(chunk.alone->layout()));
    EXPECT_OK(engine->SubmitCompile({.prefix_tokens = chunk.prefix, .tokens = chunk.tokens}, sinks.back()));
  }
  hold.Release();
  for (size_t i = 0; i < chunks.size(); ++i) {
    EXPECT_OK(sinks[i]->done.Wait());
    for (uint32_t layer = 0; layer < engine->config().layers; ++layer) {
      EXPECT_EQ(AsText(sinks[i]->object->Layer(layer)), AsText(chunks[i].alone->Layer(layer)))
          << "chunk " << i << " of " << chunks[i].tokens.size() << " tokens, layer " << layer;
    }
  }
  EXPECT_TRUE(testing::BecomesIdle(*engine));
  return engine->Gauges().steps - before - 1;  // one was the hold's
}

TEST_P(EngineBatchTest, ShortChunksFillOneStepTogetherAndHaveTheBytesOfEachAlone) {
  const auto single = MakeEngine(1);
  const std::vector<size_t> lengths = {16, 128, 1, 64, 33, 100, 17, 16, 97, 28};
  const std::vector<ShortChunk> chunks = ShortChunks(single.get(), lengths);  // 512 rows with their prefixes
  EXPECT_EQ(CompileTogether(MakeEngine(512).get(), chunks), 1u);
  EXPECT_EQ(CompileTogether(MakeEngine(511).get(), chunks), 2u);
  EXPECT_EQ(CompileTogether(MakeEngine(48).get(), chunks), 11u);
  // More of them than sequences may run at once; one at a time where they are too long for one step.
  EXPECT_EQ(CompileTogether(MakeEngine(512, 1).get(), chunks), 1u);
  EXPECT_GE(CompileTogether(MakeEngine(100, 1).get(), chunks), 6u);
}

TEST_P(EngineBatchTest, FortyEightChunksOfSixteenTokensTakeTwoSteps) {
  const auto engine = MakeEngine(384, 4);
  const std::vector<ShortChunk> chunks = ShortChunks(MakeEngine(1).get(), std::vector<size_t>(44, 16));
  EXPECT_EQ(CompileTogether(engine.get(), chunks), 2u);
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
