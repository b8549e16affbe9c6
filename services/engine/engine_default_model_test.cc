// Oracles 1, 2, 3, 4, 5, 7 and 9 on the default model's real weights, in f32 and, where the CPU has it, in
// bf16.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/cancel.h"
#include "common/base/clock.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "kernels/api/dtype.h"
#include "services/engine/testing/batch_harness.h"
#include "services/engine/testing/engine_harness.h"
#include "services/engine/testing/tiny_engines.h"

namespace epic {
namespace {

using testing::Context;
using testing::Score;
using testing::Text;

constexpr LinkStrategy kFull{StrategyKind::kFull, 0};
constexpr LinkStrategy kPrefix{StrategyKind::kPrefix, 0};
constexpr LinkStrategy kNaive{StrategyKind::kNaive, 0};
constexpr LinkStrategy kLegoLink0{StrategyKind::kLegoLink, 0, CompilePrefixKind::kBos4};
constexpr LinkStrategy kCacheBlend{.kind = StrategyKind::kCacheBlend, .k = 0};    // 0.15
constexpr LinkStrategy kQueryGuided{.kind = StrategyKind::kQueryGuided, .k = 0};  // 16 rows a chunk
constexpr LinkStrategy LegoLink(uint32_t k) { return {StrategyKind::kLegoLink, k}; }

using Logits = std::vector<std::vector<float>>;

// The object as if its keys had been rotated `steps` further where it was compiled: in double, by the
// formula. REQUIRES: plain rotary embedding.
std::shared_ptr<const KvObject> WithKeysRotated(const KvObject& object, const ModelConfig& config,
                                                uint32_t steps, RopePairing pairing) {
  EXPECT_EQ(config.rope.scaling, RopeScaling::kNone);
  KvLayout layout = object.layout();
  const bool f32 = layout.dtype == KvDtype::kF32;
  const size_t half = layout.head_dim / 2;
  auto copy = std::make_shared<testing::PlainObject>([&] {
    KvLayout shifted = layout;
    shifted.first_position += steps;
    return shifted;
  }());
  for (uint32_t layer = 0; layer < layout.layers; ++layer) {
    const MutableByteSpan slab = copy->MutableLayer(layer);
    std::memcpy(slab.data(), object.Layer(layer).data(), slab.size());
    auto* const k32 = reinterpret_cast<float*>(slab.data());
    auto* const k16 = reinterpret_cast<Bf16*>(slab.data());
    for (size_t row = 0; row < size_t{layout.kv_heads} * layout.tokens; ++row) {
      for (size_t j = 0; j < half; ++j) {
        const bool norm = pairing == RopePairing::kNorm;
        const size_t at = row * layout.head_dim + (norm ? 2 * j : j);
        const size_t partner = at + (norm ? 1 : half);
        const double x = f32 ? k32[at] : ToF32(k16[at]);
        const double y = f32 ? k32[partner] : ToF32(k16[partner]);
        const double angle =
            steps * std::pow(config.rope.base, -2.0 * static_cast<double>(j) / layout.head_dim);
        const auto a = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
        const auto b = static_cast<float>(x * std::sin(angle) + y * std::cos(angle));
        if (f32) {
          k32[at] = a;
          k32[partner] = b;
        } else {
          k16[at] = ToBf16(a);
          k16[partner] = ToBf16(b);
        }
      }
    }
  }
  return copy;
}

class EngineDefaultModelTest : public ::testing::TestWithParam<ComputeFormat> {
 protected:
  void SetUp() override {
    const std::optional<std::string> path = testing::DefaultModelPath();
    if (!path.has_value()) GTEST_SKIP() << "the default model is not there: run deploy/fetch_model.sh";
    auto model = Model::Load(*path);
    ASSERT_OK(model.status());
    EngineOptions options;
    options.compute = GetParam();
    options.kv_dtype = GetParam() == ComputeFormat::kF32 ? KvDtype::kF32 : KvDtype::kBf16;
    options.panel_tokens = 128;
    options.max_sequences = 512;
    options.prefix_cache_bytes = 0;
    engine_ = testing::MakeEngine(*std::move(model), options);
    ids_ = testing::EnglishIds();
    ASSERT_GT(ids_.size(), 300u);
  }

  std::vector<TokenId> Ids(size_t begin, size_t end) const {
    return {ids_.begin() + begin, ids_.begin() + end};
  }
  PromptPiece Compiled(std::vector<TokenId> tokens, std::vector<TokenId> prefix = {}) {
    auto piece = Context(engine_.get(), std::move(tokens), std::move(prefix));
    EXPECT_OK(piece.status());
    return *std::move(piece);
  }
  Logits Run(std::vector<PromptPiece> pieces, const LinkStrategy& strategy) {
    auto score = Score(engine_.get(), std::move(pieces), strategy, {260, 327, 284});
    EXPECT_OK(score.status());
    return (*score)->logits;
  }
  void ExpectEqual(const Logits& a, const Logits& reference, const std::string& what) {
    for (size_t i = 0; i < reference.size(); ++i) {
      if (GetParam() == ComputeFormat::kF32) {
        EXPECT_LE(testing::RelativeDifference(a[i], reference[i]), 1e-4) << what;
      } else {
        EXPECT_LE(testing::KlDivergence(reference[i], a[i]), 1e-3) << what;
      }
    }
  }

  std::unique_ptr<Engine> engine_;
  std::vector<TokenId> ids_;
};

TEST_P(EngineDefaultModelTest, LegoLinkOverWholeChunksEqualsFullAndReuseAloneDoesNot) {
  const std::vector<PromptPiece> pieces = {Compiled(Ids(0, 20)), Compiled(Ids(20, 85)), Text(Ids(85, 90)),
                                           Compiled(Ids(90, 140)), Text(Ids(140, 156))};
  const Logits full = Run(pieces, kFull);
  ExpectEqual(Run(pieces, LegoLink(65)), full, "legolink-65");
  EXPECT_GT(testing::KlDivergence(full[0], Run(pieces, kNaive)[0]), 3e-3);
}

TEST_P(EngineDefaultModelTest, EveryRowPickedEqualsFull) {
  const std::vector<PromptPiece> pieces = {Compiled(Ids(0, 20)), Compiled(Ids(20, 85)), Text(Ids(85, 90)),
                                           Compiled(Ids(90, 140)), Text(Ids(140, 156))};
  const Logits full = Run(pieces, kFull);
  for (const char* name :
       {"cacheblend-1.0", "cacheblend-1.0:paper", "cacheblend-1.0:attention", "query-guided-65"}) {
    ASSERT_OK_AND_ASSIGN(const LinkStrategy strategy, ParseStrategy(name));
    ExpectEqual(Run(pieces, strategy), full, name);
  }
}

TEST_P(EngineDefaultModelTest, PickedRowsHaveTheSameBytesInAnyCompany) {
  const std::vector<PromptPiece> pieces = {Text(Ids(0, 10)), Compiled(Ids(10, 80)), Compiled(Ids(90, 150)),
                                           Text(Ids(80, 90))};
  for (const char* name : {"cacheblend-0.15", "cacheblend-0.15:attention", "query-guided-16"}) {
    ASSERT_OK_AND_ASSIGN(const LinkStrategy strategy, ParseStrategy(name));
    const Logits alone = Run(pieces, strategy);
    std::vector<std::shared_ptr<testing::CollectScore>> sinks;
    for (int i = 0; i < 4; ++i) {
      sinks.push_back(std::make_shared<testing::CollectScore>());
      std::vector<PromptPiece> mine = pieces;
      if (i % 2 == 1) mine.insert(mine.begin(), Text(Ids(120, 125 + 9 * i)));
      ASSERT_OK(engine_->SubmitScore({.pieces = mine, .strategy = strategy, .continuation = {260, 327, 284}},
                                     sinks.back()));
    }
    for (int i = 0; i < 4; ++i) {
      ASSERT_OK(sinks[i]->done.Wait());
      if (i % 2 == 0) {
        EXPECT_EQ(sinks[i]->logits, alone) << name;
      }
    }
  }
}

TEST_P(EngineDefaultModelTest, ChunksExactInPlaceEqualFull) {
  const auto head = Ids(0, 25);
  const std::vector<PromptPiece> pieces = {Compiled(head), Compiled(Ids(25, 100), head), Text(Ids(100, 118))};
  const Logits full = Run(pieces, kFull);
  for (const LinkStrategy& strategy : {kNaive, LegoLink(16), kLegoLink0, kCacheBlend, kQueryGuided}) {
    ExpectEqual(Run(pieces, strategy), full, strategy.Name());
  }
  const std::vector<TokenId> bos4(4, 0);
  const std::vector<PromptPiece> behind = {Text(bos4), Compiled(Ids(25, 100), bos4), Text(Ids(100, 118))};
  ExpectEqual(Run(behind, kLegoLink0), Run(behind, kFull), "bos4");
}

TEST_P(EngineDefaultModelTest, WithoutChunksEveryStrategyEqualsAPlainPrefill) {
  const Logits plain = Run({Text(Ids(0, 90))}, kFull);
  for (const LinkStrategy& strategy :
       {kPrefix, kNaive, LegoLink(16), kLegoLink0, kCacheBlend, kQueryGuided}) {
    EXPECT_EQ(Run({Text(Ids(0, 50)), Text(Ids(50, 90))}, strategy), plain) << strategy.Name();
  }
}

TEST_P(EngineDefaultModelTest, ALinkEqualsKeysRotatedToAbsolutePositionsAndNotTheOtherPairing) {
  constexpr uint32_t kOffset = 75;
  const PromptPiece chunk = Compiled(Ids(80, 180));
  const PromptPiece before = Text(Ids(0, kOffset));
  const PromptPiece question = Text(Ids(180, 200));
  // Claims to be compiled behind so many other tokens: queries then turn by their absolute positions.
  PromptPiece absolute = chunk;
  absolute.prefix_tokens.assign(kOffset, 1);
  PromptPiece wrong = absolute;
  absolute.object = WithKeysRotated(*chunk.object, engine_->config(), kOffset, RopePairing::kNorm);
  wrong.object = WithKeysRotated(*chunk.object, engine_->config(), kOffset, RopePairing::kNeox);
  for (const LinkStrategy& strategy : {kNaive, LegoLink(16)}) {
    const Logits expected = Run({before, absolute, question}, strategy);
    ExpectEqual(Run({before, chunk, question}, strategy), expected, strategy.Name());
    const Logits control = Run({before, wrong, question}, strategy);
    EXPECT_GT(testing::KlDivergence(expected[0], control[0]), 1e-2) << strategy.Name();
  }
}

TEST_P(EngineDefaultModelTest, ADecodeRowsBytesDoNotDependOnHowManyDecodeWithIt) {
  const std::vector<PromptPiece> pieces = {Text(Ids(0, 10)), Compiled(Ids(10, 80)), Text(Ids(80, 95))};
  const auto alone = testing::DecodeAmong(engine_.get(), pieces, LegoLink(16), 3, 1);
  ASSERT_EQ(alone->tokens[0].size(), 3u);
  for (const uint32_t batch : {2u, 5u, 16u, 64u, 512u}) {
    const auto among = testing::DecodeAmong(engine_.get(), pieces, LegoLink(16), 3, batch);
    EXPECT_TRUE(testing::HaveSameBytes(*among, *alone)) << "batch of " << batch;
  }
  std::vector<PromptPiece> other = pieces;
  other[1] = testing::WithOneBitFlipped(pieces[1], 0, 40);
  EXPECT_FALSE(
      testing::HaveSameBytes(*testing::DecodeAmong(engine_.get(), other, LegoLink(16), 3, 1), *alone));
}

TEST_P(EngineDefaultModelTest, AnotherOrderEqualsObjectsCompiledForItAndAnyBatchGivesTheSameBytes) {
  const PromptPiece a = Compiled(Ids(0, 60));
  const PromptPiece b = Compiled(Ids(60, 105));
  const std::vector<PromptPiece> moved = {b, a, Text(Ids(105, 120))};
  Run({a, b, Text(Ids(105, 120))}, LegoLink(16));
  const Logits logits = Run(moved, LegoLink(16));
  EXPECT_EQ(logits, Run({Compiled(Ids(60, 105)), Compiled(Ids(0, 60)), Text(Ids(105, 120))}, LegoLink(16)));
  // The same request six times at once, with other rows between.
  std::vector<std::shared_ptr<testing::CollectScore>> sinks;
  for (int i = 0; i < 6; ++i) {
    sinks.push_back(std::make_shared<testing::CollectScore>());
    std::vector<PromptPiece> pieces = moved;
    if (i % 2 == 1) pieces.insert(pieces.begin(), Text(Ids(120, 120 + 3 * i)));
    ASSERT_OK(engine_->SubmitScore(
        {.pieces = pieces, .strategy = LegoLink(16), .continuation = {260, 327, 284}}, sinks.back()));
  }
  for (int i = 0; i < 6; ++i) {
    ASSERT_OK(sinks[i]->done.Wait());
    if (i % 2 == 0) {
      EXPECT_EQ(sinks[i]->logits, logits);
    }
  }
}

// Oracle 7 for prompt rows: panels of one row run each row alone, those of others fill with neighbours.
TEST(EngineDefaultModelBatchTest, APromptRowHasTheBytesOfItselfAloneInBatchesOfEverySize) {
  const std::optional<std::string> path = testing::DefaultModelPath();
  if (!path.has_value()) GTEST_SKIP() << "the default model is not there: run deploy/fetch_model.sh";
  const std::vector<TokenId> ids = testing::EnglishIds();
  const auto part = [&](size_t begin, size_t end) {
    return std::vector<TokenId>(ids.begin() + begin, ids.begin() + end);
  };
  constexpr uint32_t kRows = 34;  // own text, the repaired rows of the chunk, and the continuation behind it
  for (const ComputeFormat format : testing::NativeFormats()) {
    std::shared_ptr<const KvObject> object;
    Logits alone;
    for (const uint32_t panel : {1u, 2u, 5u, 16u, 64u, 512u}) {
      EngineOptions options;
      options.compute = format;
      options.decode_weights = DecodeWeights::kSameAsPrompt;  // no rows of that kind here
      options.panel_tokens = panel;
      ASSERT_OK_AND_ASSIGN(auto model, Model::Load(*path));
      const auto engine = testing::MakeEngine(std::move(model), options);
      ASSERT_OK_AND_ASSIGN(const PromptPiece chunk, Context(engine.get(), part(20, 60)));
      if (object == nullptr) object = chunk.object;
      for (uint32_t layer = 0; layer < engine->config().layers; ++layer) {
        EXPECT_EQ(AsText(chunk.object->Layer(layer)), AsText(object->Layer(layer))) << "panel " << panel;
      }
      const std::vector<PromptPiece> pieces = {Text(part(0, 5)), chunk, Text(part(60, 70))};
      testing::EngineHold hold(engine.get());
      std::vector<std::shared_ptr<testing::CollectScore>> sinks;
      const auto submit = [&](std::vector<PromptPiece> prompt, std::vector<TokenId> continuation) {
        sinks.push_back(std::make_shared<testing::CollectScore>());
        ASSERT_OK(engine->SubmitScore(
            {.pieces = std::move(prompt), .strategy = LegoLink(16), .continuation = std::move(continuation)},
            sinks.back()));
      };
      submit(pieces, {260, 327, 284});
      for (uint32_t left = panel > kRows ? panel - kRows : 0; left > 0;) {
        const uint32_t rows = std::min(left, 120u);
        submit({Text(part(100 + left % 50, 100 + left % 50 + rows))}, {1});
        left -= rows;
      }
      hold.Release();
      for (const auto& sink : sinks) ASSERT_OK(sink->done.Wait());
      EXPECT_EQ(sinks[0]->stats.fresh_tokens + sinks[0]->stats.recomputed_tokens + 3, kRows);
      if (alone.empty()) alone = sinks[0]->logits;
      EXPECT_EQ(sinks[0]->logits, alone) << "panel " << panel;
    }
  }
}

// The neighbour's rows stay in the step that the cancelled request leaves.
TEST(EngineDefaultModelCancelTest, ACancelledPrefillIsFreeWithinASecondThoughItsStepHasOthers) {
  const std::optional<std::string> path = testing::DefaultModelPath();
  if (!path.has_value()) GTEST_SKIP() << "the default model is not there: run deploy/fetch_model.sh";
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> model, Model::Load(*path));
  EngineOptions options;
  options.panel_tokens = 256;
  options.prefix_cache_bytes = 0;
  const std::unique_ptr<Engine> engine = testing::MakeEngine(model, options);
  const SystemClock* const clock = SystemClock::Get();
  std::vector<std::shared_ptr<testing::CollectLink>> sinks;
  std::vector<CancelSource> cancels(2);
  for (int i = 0; i < 2; ++i) {
    LinkRequest request{.pieces = {Text(testing::RandomTokens(i, 4000, model->config().vocab))},
                        .strategy = kFull,
                        .max_tokens = 1};
    request.cancel = cancels[i].token();
    sinks.push_back(std::make_shared<testing::CollectLink>(1));
    ASSERT_OK(engine->SubmitLink(std::move(request), sinks[i]));
  }
  // Into a step in which both have rows, late in their prompts, where attention costs most.
  while (engine->Gauges().steps < 26) std::this_thread::yield();
  for (int i = 0; i < 2; ++i) {
    const uint64_t steps = engine->Gauges().steps;
    while (engine->Gauges().steps == steps) std::this_thread::yield();
    const int64_t begin = clock->SteadyNs();
    cancels[i].Cancel();
    EXPECT_THAT(sinks[i]->done.Wait(), testing::StatusIs(absl::StatusCode::kCancelled));
    EXPECT_EQ(engine->Gauges().running, 1u - i);
    const int64_t spent_ms = (clock->SteadyNs() - begin) / 1'000'000;
    EXPECT_LT(spent_ms, 1000) << "of request " << i;
  }
  EXPECT_EQ(engine->Gauges().private_rows, 0u);
}

INSTANTIATE_TEST_SUITE_P(Formats, EngineDefaultModelTest, ::testing::ValuesIn(testing::NativeFormats()),
                         [](const auto& info) { return testing::NameOf(info.param); });

}  // namespace
}  // namespace epic
