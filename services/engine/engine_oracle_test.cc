// Oracles 1, 3, 4, 5 and 9 of the linking design, on tiny random models of every architecture, in f32 and,
// where the CPU has it, in bf16; against the engine itself and against a reference in double precision.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "services/engine/link_policy.h"
#include "services/engine/testing/engine_harness.h"
#include "services/engine/testing/plain_object.h"
#include "services/engine/testing/reference_transformer.h"
#include "services/engine/testing/tiny_engines.h"

namespace epic {
namespace {

using testing::CollectScore;
using testing::Context;
using testing::RandomTokens;
using testing::ReferenceKv;
using testing::ReferenceTransformer;
using testing::Score;
using testing::Text;

constexpr LinkStrategy kFull{StrategyKind::kFull, 0};
constexpr LinkStrategy kPrefix{StrategyKind::kPrefix, 0};
constexpr LinkStrategy kNaive{StrategyKind::kNaive, 0};
constexpr LinkStrategy kLegoLink0{StrategyKind::kLegoLink, 0, CompilePrefixKind::kBos4};
constexpr LinkStrategy LegoLink(uint32_t k) { return {StrategyKind::kLegoLink, k}; }

using Logits = std::vector<std::vector<float>>;

// How far apart two runs are, by their worst row. `relative` is sensitive on models of random weights, whose
// probabilities mostly lie on one token; KL in nats is the bound that the design states.
struct Distance {
  double relative = 0;
  double kl = 0;
};

Distance DistanceOf(const Logits& a, const Logits& reference) {
  EXPECT_EQ(a.size(), reference.size());
  Distance distance;
  for (size_t i = 0; i < a.size(); ++i) {
    distance.relative = std::max(distance.relative, testing::RelativeDifference(a[i], reference[i]));
    distance.kl = std::max(distance.kl, testing::KlDivergence(reference[i], a[i]));
  }
  return distance;
}

constexpr double kKlBound = 1e-3;
// bf16 has 8 bits: equal sums over two or three layers were seen to differ by up to 0.006.
constexpr double RelativeBound(ComputeFormat format) { return format == ComputeFormat::kF32 ? 1e-4 : 1e-2; }

::testing::AssertionResult Same(ComputeFormat format, const Logits& a, const Logits& reference) {
  const Distance distance = DistanceOf(a, reference);
  const bool same = distance.relative <= RelativeBound(format) && distance.kl <= kKlBound;
  return (same ? ::testing::AssertionSuccess() : ::testing::AssertionFailure())
         << "relative difference " << distance.relative << ", KL " << distance.kl;
}

// The negative control: far beyond the noise, so that Same is worth something.
::testing::AssertionResult Differ(ComputeFormat format, const Logits& a, const Logits& reference) {
  const Distance distance = DistanceOf(a, reference);
  const bool differ = distance.relative > 2 * RelativeBound(format);
  return (differ ? ::testing::AssertionSuccess() : ::testing::AssertionFailure())
         << "relative difference " << distance.relative << ", KL " << distance.kl;
}

Logits ToFloat(const std::vector<std::vector<double>>& rows) {
  Logits out;
  for (const auto& row : rows) out.emplace_back(row.begin(), row.end());
  return out;
}

// The same bytes, with another place of the first row in the layout.
std::shared_ptr<const KvObject> AsIfCompiledAt(const KvObject& object, uint32_t first_position) {
  KvLayout layout = object.layout();
  layout.first_position = first_position;
  auto copy = std::make_shared<testing::PlainObject>(layout);
  for (uint32_t l = 0; l < layout.layers; ++l) {
    std::memcpy(copy->MutableLayer(l).data(), object.Layer(l).data(), layout.LayerBytes());
  }
  return copy;
}

using Param = std::tuple<std::string, ComputeFormat>;

class EngineOracleTest : public ::testing::TestWithParam<Param> {
 protected:
  EngineOracleTest()
      : format_(std::get<1>(GetParam())),
        model_(testing::LoadTiny(testing::TinyCaseOf(std::get<0>(GetParam())).spec)),
        engine_(testing::MakeEngine(model_, testing::TinyOptions(format_))),
        reference_(*model_) {}

  std::vector<TokenId> Tokens(uint64_t seed, size_t count) const {
    return RandomTokens(seed, count, model_->config().vocab);
  }
  PromptPiece Compiled(std::vector<TokenId> tokens, std::vector<TokenId> prefix = {}) {
    auto piece = Context(engine_.get(), std::move(tokens), std::move(prefix));
    EXPECT_OK(piece.status());
    return *std::move(piece);
  }
  Logits Run(std::vector<PromptPiece> pieces, const LinkStrategy& strategy) {
    auto score = Score(engine_.get(), std::move(pieces), strategy, continuation_);
    EXPECT_OK(score.status());
    stats_ = (*score)->stats;
    return (*score)->logits;
  }
  // The reference's logits of the same rows, by the definition of the strategy.
  Logits Reference(const ReferenceTransformer& reference, const std::vector<PromptPiece>& pieces,
                   const LinkStrategy& strategy) const {
    const RowPlan plan = PlanRows(pieces, strategy, 0);
    std::vector<TokenId> tokens = plan.tokens;
    ReferenceKv stored = StoredKv(reference, pieces);
    std::vector<uint32_t> rows = plan.rows;
    for (size_t i = 0; i + 1 < continuation_.size(); ++i) {
      rows.push_back(static_cast<uint32_t>(tokens.size()));
      tokens.push_back(continuation_[i]);
    }
    for (auto* side : {&stored.k, &stored.v}) {
      for (auto& layer : *side) layer.resize(tokens.size());
    }
    const Logits all = ToFloat(reference.Link(tokens, rows, stored).logits);
    return {all.end() - continuation_.size(), all.end()};
  }

  const ComputeFormat format_;
  const std::shared_ptr<const Model> model_;
  const std::unique_ptr<Engine> engine_;
  const ReferenceTransformer reference_;
  const std::vector<TokenId> continuation_ = RandomTokens(99, 4, 400);
  LinkStats stats_;

 private:
  ReferenceKv StoredKv(const ReferenceTransformer& reference, const std::vector<PromptPiece>& pieces) const {
    ReferenceKv stored;
    stored.k.resize(model_->config().layers);
    stored.v.resize(model_->config().layers);
    for (const PromptPiece& piece : pieces) {
      std::vector<TokenId> tokens = piece.prefix_tokens;
      tokens.insert(tokens.end(), piece.tokens.begin(), piece.tokens.end());
      const ReferenceKv compiled = reference.Prefill(tokens).kv;
      for (uint32_t l = 0; l < model_->config().layers; ++l) {
        const size_t skip = piece.prefix_tokens.size();
        stored.k[l].insert(stored.k[l].end(), compiled.k[l].begin() + skip, compiled.k[l].end());
        stored.v[l].insert(stored.v[l].end(), compiled.v[l].begin() + skip, compiled.v[l].end());
      }
    }
    return stored;
  }
};

TEST_P(EngineOracleTest, APlainPromptEqualsTheReference) {
  const std::vector<PromptPiece> pieces = {Text(Tokens(1, 131))};
  EXPECT_TRUE(Same(format_, Run(pieces, kFull), Reference(reference_, pieces, kFull)));
}

TEST_P(EngineOracleTest, WithoutChunksEveryStrategyEqualsAPlainPrefill) {
  const std::vector<PromptPiece> pieces = {Text(Tokens(1, 60)), Text(Tokens(2, 41))};
  const Logits plain = Run({Text(JoinTokens(pieces))}, kFull);
  for (const LinkStrategy& strategy : {kFull, kPrefix, kNaive, LegoLink(16), kLegoLink0}) {
    EXPECT_EQ(Run(pieces, strategy), plain) << strategy.Name();
    EXPECT_EQ(stats_.fresh_tokens, 101u);
  }
}

TEST_P(EngineOracleTest, OneChunkExactInPlaceMakesEveryStrategyEqualToFull) {
  const std::vector<PromptPiece> pieces = {Compiled(Tokens(1, 70)), Text(Tokens(2, 33))};
  const Logits full = Run(pieces, kFull);
  for (const LinkStrategy& strategy : {kPrefix, kNaive, LegoLink(16), kLegoLink0}) {
    EXPECT_TRUE(Same(format_, Run(pieces, strategy), full)) << strategy.Name();
    EXPECT_EQ(stats_.cached_tokens, 70u);
    EXPECT_EQ(stats_.recomputed_tokens, 0u);
    EXPECT_EQ(stats_.fresh_tokens, 33u);
  }
}

TEST_P(EngineOracleTest, LegoLinkOverWholeChunksEqualsFull) {
  const std::vector<PromptPiece> pieces = {Compiled(Tokens(1, 20)), Compiled(Tokens(2, 50)),
                                           Text(Tokens(3, 3)), Compiled(Tokens(4, 37)), Text(Tokens(5, 9))};
  const Logits full = Run(pieces, kFull);
  EXPECT_TRUE(Same(format_, Run(pieces, LegoLink(50)), full));
  EXPECT_EQ(stats_.recomputed_tokens, 87u);
  EXPECT_EQ(stats_.cached_tokens, 20u);
  // The test would notice: reuse without repair is something else.
  EXPECT_TRUE(Differ(format_, Run(pieces, kNaive), full));
}

TEST_P(EngineOracleTest, ALinkEqualsKeysRotatedToAbsolutePositionsAndNotTheOtherPairing) {
  const PromptPiece twice = Compiled(Tokens(1, 40));
  const std::vector<PromptPiece> pieces = {Text(Tokens(6, 5)), twice, Compiled(Tokens(2, 55), Tokens(7, 4)),
                                           Text(Tokens(3, 8)), twice, Text(Tokens(4, 6))};
  const RopePairing other =
      model_->config().rope.pairing == RopePairing::kNorm ? RopePairing::kNeox : RopePairing::kNorm;
  const ReferenceTransformer wrong(*model_, other);
  for (const LinkStrategy& strategy : {kNaive, LegoLink(1), LegoLink(16)}) {
    const Logits logits = Run(pieces, strategy);
    EXPECT_TRUE(Same(format_, logits, Reference(reference_, pieces, strategy))) << strategy.Name();
    EXPECT_TRUE(Differ(format_, logits, Reference(wrong, pieces, strategy))) << strategy.Name();
  }
}

TEST_P(EngineOracleTest, ObjectsInAnotherOrderEqualObjectsCompiledForThatOrder) {
  const PromptPiece a = Compiled(Tokens(1, 40));
  const PromptPiece b = Compiled(Tokens(2, 30));
  const PromptPiece c = Compiled(Tokens(3, 50));
  const PromptPiece question = Text(Tokens(4, 10));
  const Logits first = Run({a, b, c, question}, LegoLink(8));
  const Logits moved = Run({c, a, b, question}, LegoLink(8));
  EXPECT_TRUE(Differ(format_, first, moved));
  const Logits fresh =
      Run({Compiled(Tokens(3, 50)), Compiled(Tokens(1, 40)), Compiled(Tokens(2, 30)), question}, LegoLink(8));
  EXPECT_EQ(moved, fresh);
  EXPECT_TRUE(Same(format_, moved, Reference(reference_, {c, a, b, question}, LegoLink(8))));
  // Everything covered, in another order still: the last row is computed, and nothing else changes.
  EXPECT_TRUE(Same(format_, Run({b, c, a}, LegoLink(8)), Reference(reference_, {b, c, a}, LegoLink(8))));
}

TEST_P(EngineOracleTest, AChunkCompiledBehindAHeadEqualsFullDirectlyBehindThatHead) {
  const auto head = Tokens(5, 23);
  const std::vector<PromptPiece> pieces = {Compiled(head), Compiled(Tokens(1, 60), head), Text(Tokens(2, 7))};
  const Logits full = Run(pieces, kFull);
  for (const LinkStrategy& strategy : {kPrefix, kNaive, LegoLink(16), kLegoLink0}) {
    EXPECT_TRUE(Same(format_, Run(pieces, strategy), full)) << strategy.Name();
    EXPECT_EQ(stats_.cached_tokens, 83u);
  }
  // The place where its keys were rotated counts: a few positions off, and the difference shows.
  std::vector<PromptPiece> shifted = pieces;
  shifted[1].object = AsIfCompiledAt(*pieces[1].object, 15);
  shifted[1].prefix_tokens.resize(15);
  EXPECT_TRUE(Differ(format_, Run(shifted, kNaive), full));
  // Anywhere else it is not exact, and the difference shows.
  const std::vector<PromptPiece> moved = {Compiled(head), Text(Tokens(8, 20)), Compiled(Tokens(1, 60), head),
                                          Text(Tokens(2, 7))};
  EXPECT_TRUE(Differ(format_, Run(moved, kNaive), Run(moved, kFull)));
}

TEST_P(EngineOracleTest, ABos4ChunkEqualsFullBehindFourSuchTokens) {
  const std::vector<TokenId> bos4(4, 2);
  const std::vector<PromptPiece> pieces = {Text(bos4), Compiled(Tokens(1, 60), bos4), Text(Tokens(2, 7))};
  const Logits full = Run(pieces, kFull);
  for (const LinkStrategy& strategy : {kNaive, LegoLink(16), kLegoLink0}) {
    EXPECT_TRUE(Same(format_, Run(pieces, strategy), full)) << strategy.Name();
  }
  const std::vector<PromptPiece> linked = {Text(Tokens(3, 11)), Compiled(Tokens(1, 60), bos4),
                                           Compiled(Tokens(6, 30), bos4), Text(Tokens(2, 7))};
  EXPECT_TRUE(Same(format_, Run(linked, kLegoLink0), Reference(reference_, linked, kLegoLink0)));
}

TEST_P(EngineOracleTest, ChunksOfOneTokenAndShorterThanKLinkLikeTheReference) {
  const std::vector<PromptPiece> pieces = {Compiled({3}), Compiled({4}), Compiled(Tokens(1, 5)),
                                           Compiled(Tokens(2, 90)), Compiled({4})};
  EXPECT_TRUE(Same(format_, Run(pieces, LegoLink(16)), Reference(reference_, pieces, LegoLink(16))));
  EXPECT_TRUE(Same(format_, Run(pieces, kNaive), Reference(reference_, pieces, kNaive)));
}

// Sizes at the edge of what a model file may ask for: the kernels' narrowest tiles and their rests.
TEST(EngineShapesTest, ModelsOfTheOddestSizesEqualTheReference) {
  struct Shape {
    uint32_t layers, hidden, heads, kv_heads, head_dim, ffn;
  };
  for (const Shape& shape : {Shape{1, 2, 1, 1, 2, 1}, Shape{2, 6, 3, 3, 6, 5}, Shape{1, 20, 8, 1, 10, 33},
                             Shape{2, 34, 2, 1, 66, 17}}) {
    for (const Architecture architecture :
         {Architecture::kLlama, Architecture::kQwen2, Architecture::kQwen3}) {
      testing::TinyModelSpec spec;
      spec.architecture = architecture;
      spec.layers = shape.layers;
      spec.hidden = shape.hidden;
      spec.heads = shape.heads;
      spec.kv_heads = shape.kv_heads;
      spec.head_dim = shape.head_dim;
      spec.ffn = shape.ffn;
      const auto model = testing::LoadTiny(spec);
      const auto engine = testing::MakeEngine(model, testing::TinyOptions(ComputeFormat::kF32));
      const auto tokens = RandomTokens(3, 50, spec.vocab);
      ASSERT_OK_AND_ASSIGN(const auto score, Score(engine.get(), {Text(tokens)}, kFull, {1}));
      const Logits all = ToFloat(ReferenceTransformer(*model).Prefill(tokens).logits);
      EXPECT_TRUE(Same(ComputeFormat::kF32, score->logits, {all.back()}))
          << "hidden " << shape.hidden << " head size " << shape.head_dim;
    }
  }
}

std::vector<Param> Params() {
  std::vector<Param> params;
  for (const testing::TinyCase& tiny : testing::GoldenCases()) {
    for (const ComputeFormat format : testing::NativeFormats()) params.emplace_back(tiny.name, format);
  }
  return params;
}

INSTANTIATE_TEST_SUITE_P(Models, EngineOracleTest, ::testing::ValuesIn(Params()), [](const auto& info) {
  return std::get<0>(info.param) + "_" + testing::NameOf(std::get<1>(info.param));
});

}  // namespace
}  // namespace epic
