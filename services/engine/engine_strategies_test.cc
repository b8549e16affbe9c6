// Strategies that look before they link: oracles 2, 3, 4 and 7 of the linking design, the definition of each
// against a reference in double precision, edge cases, usage, cancellation, faults and memory.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/engine/link_policy.h"
#include "services/engine/testing/batch_harness.h"
#include "services/engine/testing/engine_harness.h"
#include "services/engine/testing/reference_transformer.h"
#include "services/engine/testing/tiny_engines.h"

namespace epic {
namespace {

using testing::CollectLink;
using testing::CollectScore;
using testing::Context;
using testing::EngineHold;
using testing::Link;
using testing::RandomTokens;
using testing::ReferenceKv;
using testing::ReferenceLayerRows;
using testing::ReferenceTransformer;
using testing::SampledLink;
using testing::Score;
using testing::Text;

using Logits = std::vector<std::vector<float>>;
using Rows = std::vector<uint32_t>;

constexpr LinkStrategy kFull{StrategyKind::kFull, 0};
constexpr LinkStrategy kNaive{StrategyKind::kNaive, 0};

LinkStrategy Parsed(const std::string& name) {
  auto strategy = ParseEvaluationStrategy(name);
  EXPECT_OK(strategy.status());
  return *strategy;
}

// Deep enough to have layers on either side of every phase.
testing::TinyModelSpec SpecOf(const std::string& name) {
  testing::TinyModelSpec spec = testing::TinyCaseOf(name == "deep" ? "llama" : name).spec;
  if (name == "deep") spec.layers = 6;
  return spec;
}

double Furthest(const Logits& a, const Logits& b) {
  EXPECT_EQ(a.size(), b.size());
  double furthest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    furthest = std::max(furthest, testing::RelativeDifference(a[i], b[i]));
  }
  return furthest;
}

using Param = std::tuple<std::string, ComputeFormat>;

class EngineStrategiesTest : public ::testing::TestWithParam<Param> {
 protected:
  EngineStrategiesTest()
      : model_(testing::LoadTiny(SpecOf(std::get<0>(GetParam())))),
        engine_(testing::MakeEngine(model_, Options(48))) {}

  static EngineOptions Options(uint32_t panel_tokens) {
    EngineOptions options = testing::TinyOptions(std::get<1>(GetParam()));
    options.panel_tokens = panel_tokens;
    options.max_sequences = 80;
    return options;
  }
  // Oracle 6's tolerance, as in engine_oracle_test.
  static double Bound() { return std::get<1>(GetParam()) == ComputeFormat::kF32 ? 1e-4 : 1e-2; }
  ::testing::AssertionResult Same(const Logits& a, const Logits& b) const {
    const double furthest = Furthest(a, b);
    return (furthest <= Bound() ? ::testing::AssertionSuccess() : ::testing::AssertionFailure())
           << "relative difference " << furthest;
  }
  std::vector<TokenId> Tokens(uint64_t seed, size_t count) const {
    return RandomTokens(seed, count, model_->config().vocab);
  }
  PromptPiece Compiled(std::vector<TokenId> tokens, std::vector<TokenId> prefix = {}) {
    auto piece = Context(engine_.get(), std::move(tokens), std::move(prefix));
    EXPECT_OK(piece.status());
    return *std::move(piece);
  }
  Logits Run(const std::vector<PromptPiece>& pieces, const LinkStrategy& strategy) {
    auto score = Score(engine_.get(), pieces, strategy, continuation_);
    EXPECT_OK(score.status()) << strategy.Name();
    if (!score.ok()) return {};
    stats_ = (*score)->stats;
    EXPECT_EQ(stats_.cached_tokens + stats_.recomputed_tokens + stats_.fresh_tokens, stats_.prompt_tokens);
    uint32_t read = 0;
    for (const uint32_t rows : stats_.read_rows) read += rows;
    EXPECT_EQ(read, stats_.cached_tokens) << strategy.Name();
    return (*score)->logits;
  }

  const std::shared_ptr<const Model> model_;
  const std::unique_ptr<Engine> engine_;
  const std::vector<TokenId> continuation_ = RandomTokens(99, 4, 400);
  LinkStats stats_;
};

// --- oracles 2, 3, 4

TEST_P(EngineStrategiesTest, EveryRowPickedEqualsFull) {
  const std::vector<PromptPiece> pieces = {Compiled(Tokens(1, 20)), Compiled(Tokens(2, 50)),
                                           Text(Tokens(3, 3)),      Compiled(Tokens(4, 37)),
                                           Compiled({7}),           Text(Tokens(5, 9))};
  const Logits full = Run(pieces, kFull);
  for (const char* name :
       {"cacheblend-1.0", "cacheblend-1.0:paper", "cacheblend-1.0:attention", "query-guided-50",
        "query-guided-64:first=8,norm=1", "query-guided-64:scope=chunk"}) {
    EXPECT_TRUE(Same(Run(pieces, Parsed(name)), full)) << name;
    const bool paper = Parsed(name).pick == BlendPick::kPaper;
    EXPECT_EQ(stats_.recomputed_tokens, paper ? 108u : 88u) << name;
    EXPECT_EQ(stats_.cached_tokens, paper ? 0u : 20u) << name;
  }
  // The test would notice: reuse without repair is something else, and so is half of it.
  EXPECT_GT(Furthest(Run(pieces, kNaive), full), 2 * Bound());
  EXPECT_GT(Furthest(Run(pieces, Parsed("query-guided-4")), full), 2 * Bound());
}

TEST_P(EngineStrategiesTest, WithoutChunksTheyEqualAPlainPrefillAndExactInPlaceTheyEqualFull) {
  const std::vector<PromptPiece> text = {Text(Tokens(1, 60)), Text(Tokens(2, 41))};
  const std::vector<PromptPiece> exact = {Compiled(Tokens(1, 70)), Text(Tokens(2, 33))};
  const Logits plain = Run(text, kFull);
  const Logits full = Run(exact, kFull);
  for (const char* name : {"cacheblend-0.15", "cacheblend-0.15:attention", "query-guided"}) {
    EXPECT_EQ(Run(text, Parsed(name)), plain) << name;
    EXPECT_EQ(stats_.fresh_tokens, 101u);
    EXPECT_TRUE(Same(Run(exact, Parsed(name)), full)) << name;
    EXPECT_EQ(stats_.cached_tokens, 70u) << name;
    EXPECT_EQ(stats_.recomputed_tokens, 0u) << name;
  }
  EXPECT_EQ(Run(text, Parsed("cacheblend-0.15:paper")), plain);
}

TEST_P(EngineStrategiesTest, ObjectsInAnotherOrderEqualObjectsCompiledForThatOrder) {
  const PromptPiece a = Compiled(Tokens(1, 40));
  const PromptPiece b = Compiled(Tokens(2, 30));
  const PromptPiece c = Compiled(Tokens(3, 50));
  const PromptPiece question = Text(Tokens(4, 10));
  for (const char* name :
       {"cacheblend-0.2", "cacheblend-0.2:paper", "cacheblend-0.2:attention", "query-guided-6"}) {
    const LinkStrategy strategy = Parsed(name);
    const Logits first = Run({a, b, c, question}, strategy);
    const Logits moved = Run({c, a, b, question}, strategy);
    EXPECT_GT(Furthest(first, moved), 2 * Bound()) << name;
    EXPECT_EQ(
        moved,
        Run({Compiled(Tokens(3, 50)), Compiled(Tokens(1, 40)), Compiled(Tokens(2, 30)), question}, strategy))
        << name;
  }
}

// --- the definitions, in double precision

class Definition {
 public:
  Definition(const ReferenceTransformer& reference, const Model& model,
             const std::vector<PromptPiece>& pieces)
      : reference_(reference), config_(model.config()), prompt_(pieces) {
    stored_.k.resize(config_.layers);
    stored_.v.resize(config_.layers);
    for (const PromptPiece& piece : pieces) {
      const ReferenceKv compiled = reference.Prefill(piece.tokens).kv;
      for (uint32_t l = 0; l < config_.layers; ++l) {
        stored_.k[l].insert(stored_.k[l].end(), compiled.k[l].begin(), compiled.k[l].end());
        stored_.v[l].insert(stored_.v[l].end(), compiled.v[l].begin(), compiled.v[l].end());
      }
    }
    all_.resize(prompt_.rows());
    std::iota(all_.begin(), all_.end(), 0u);
  }

  // Logits of the last row by cacheblend over `picked` rows.
  std::vector<float> CacheBlend(const Rows& picked) const {
    const Rows rows = PlanReading(prompt_, picked).rows;
    std::vector<ReferenceLayerRows> layers(config_.layers, {.keys = rows, .through = rows});
    layers[0] = {.keys = all_, .through = all_};
    layers[1] = {.keys = all_, .through = rows};
    return Last(reference_.LinkByLayer(prompt_.tokens, layers, stored_).logits);
  }
  std::vector<float> QueryGuided(const Rows& picked) const {
    return Last(reference_.Link(prompt_.tokens, PlanReading(prompt_, picked).rows, stored_).logits);
  }

  // Squared distance of fresh values in layer 1.
  std::vector<double> ValueDistances() const {
    const ReferenceKv fresh = reference_.Prefill(prompt_.tokens).kv;
    std::vector<double> scores(prompt_.rows(), 0.0);
    for (const uint32_t row : all_) {
      for (size_t i = 0; i < fresh.v[1][row].size(); ++i) {
        scores[row] += std::pow(fresh.v[1][row][i] - stored_.v[1][row][i], 2);
      }
    }
    return scores;
  }

  // Sum over heads and rows of |weights over fresh keys - weights over stored keys| in layer 1.
  std::vector<double> MapChanges() const {
    std::map<std::pair<uint32_t, uint32_t>, std::vector<double>> fresh;
    std::vector<double> scores(prompt_.rows(), 0.0);
    std::vector<ReferenceLayerRows> layers(config_.layers, {.keys = all_, .through = all_});
    reference_.LinkByLayer(
        prompt_.tokens, layers, stored_,
        [&](uint32_t layer, uint32_t row, uint32_t head, const std::vector<double>& weights) {
          if (layer == 1) fresh[{row, head}] = weights;
        });
    layers[1].keys = prompt_.OwnRows();
    reference_.LinkByLayer(
        prompt_.tokens, layers, stored_,
        [&](uint32_t layer, uint32_t row, uint32_t head, const std::vector<double>& weights) {
          if (layer != 1) return;
          for (uint32_t key = 0; key <= row; ++key) {
            scores[key] += std::abs(fresh.at({row, head})[key] - weights[key]);
          }
        });
    return scores;
  }

  // What the last `running` own rows see of each row in a run over stored keys.
  struct Probe {
    size_t running, asking;  // of own rows, the last ones; only those that ask count
    LayerRange range;
    uint32_t step;   // every so-manieth layer of the range, from its end
    bool blind;      // before the range nothing is seen but own text and what is exact in place
    bool strongest;  // of each layer the strongest head, not the sum
  };
  std::vector<double> Mass(const Probe& probe) const {
    const Rows own = prompt_.OwnRows();
    const Rows running(own.end() - static_cast<ptrdiff_t>(probe.running), own.end());
    const uint32_t first_asking = own[own.size() - probe.asking];
    std::vector<ReferenceLayerRows> layers(
        config_.layers, {.keys = running,
                         .through = running,
                         .hidden = Rows(own.begin(), own.end() - static_cast<ptrdiff_t>(probe.running))});
    for (uint32_t layer = 0; layer < probe.range.first && probe.blind; ++layer) {
      for (const CoveredRun& run : prompt_.covered) {
        for (uint32_t row = 0; row < run.rows && !run.exact; ++row) {
          layers[layer].hidden.push_back(run.begin + row);
        }
      }
      std::sort(layers[layer].hidden.begin(), layers[layer].hidden.end());
    }
    std::map<std::pair<uint32_t, uint32_t>, std::vector<double>> by_head;
    reference_.LinkByLayer(
        prompt_.tokens, layers, stored_,
        [&](uint32_t layer, uint32_t row, uint32_t head, const std::vector<double>& weights) {
          if (row < first_asking) return;
          std::vector<double>& sums = by_head[{layer, head}];
          sums.resize(prompt_.rows(), 0.0);
          for (size_t key = 0; key < weights.size(); ++key) sums[key] += weights[key];
        });
    std::vector<double> scores(prompt_.rows(), 0.0);
    for (auto layer = static_cast<int64_t>(probe.range.last); layer >= probe.range.first;
         layer -= probe.step) {
      for (const uint32_t key : all_) {
        double sum = 0, highest = 0;
        for (uint32_t head = 0; head < config_.heads; ++head) {
          const double mass = by_head.at({static_cast<uint32_t>(layer), head})[key];
          sum += mass;
          highest = std::max(highest, mass);
        }
        scores[key] += probe.strongest ? highest : sum;
      }
    }
    return scores;
  }
  const PromptView& prompt() const { return prompt_; }

 private:
  static std::vector<float> Last(const std::vector<std::vector<double>>& logits) {
    return {logits.back().begin(), logits.back().end()};
  }

  const ReferenceTransformer& reference_;
  const ModelConfig& config_;
  const PromptView prompt_;
  ReferenceKv stored_;
  Rows all_;
};

TEST_P(EngineStrategiesTest, TheyFollowTheirDefinitions) {
  const ReferenceTransformer reference(*model_);
  const std::vector<PromptPiece> pieces = {Compiled(Tokens(1, 12)), Text(Tokens(6, 4)),
                                           Compiled(Tokens(2, 30)), Text(Tokens(3, 3)),
                                           Compiled(Tokens(4, 25)), Text(Tokens(5, 9))};
  const Definition definition(reference, *model_, pieces);
  // A row near the edge of the choice may fall to the other side where values are rounded to bf16.
  const bool is_exact = std::get<1>(GetParam()) == ComputeFormat::kF32;
  const auto check = [&](const std::string& name, const std::vector<float>& expected) {
    const Logits logits = Run(pieces, Parsed(name));
    if (is_exact) {
      EXPECT_LE(testing::RelativeDifference(logits[0], expected), 1e-4) << name;
    }
  };
  const auto picked = [&](const std::string& name, const std::vector<double>& scores) {
    return LinkPolicy::Make(Parsed(name))->Pick(definition.prompt(), scores);
  };
  for (const std::string name :
       {"cacheblend-0.0", "cacheblend-0.15", "cacheblend-0.5", "cacheblend-0.6:paper"}) {
    check(name, definition.CacheBlend(picked(name, definition.ValueDistances())));
  }
  check("cacheblend-0.3:attention",
        definition.CacheBlend(picked("cacheblend-0.3:attention", definition.MapChanges())));
  const size_t own = definition.prompt().OwnRows().size();
  ASSERT_EQ(own, 16u);
  const LayerRange usual = ProbeLayers({}, model_->config().layers);
  const uint32_t last = model_->config().layers - 1;
  const std::string upper = ":layers=1-" + std::to_string(last);
  const std::pair<std::string, Definition::Probe> guided[] = {
      {"query-guided-5:", {own, own, usual, 2, true, true}},
      {"query-guided-6:first=2,heads=mean,", {own, own, usual, 2, true, false}},
      {"query-guided-5:fade=0,scope=chunk,", {own, own, usual, 2, true, true}},
      {"query-guided-5:layers=0-0,rows=7,ask=3,", {7, 3, {0, 0}, 1, true, true}},
      {"query-guided-5" + upper + ",step=1,rows=7,", {7, 7, {1, last}, 1, true, true}},
      {"query-guided-5" + upper + ",step=1,blind=0,", {own, own, {1, last}, 1, false, true}},
      {"query-guided-5" + upper + ",step=3,", {own, own, {1, last}, 3, true, true}},
  };
  for (const auto& [options, probe] : guided) {
    const std::string name = options + "quantized=0";
    check(name, definition.QueryGuided(picked(name, definition.Mass(probe))));
  }
}

// --- edge cases

TEST_P(EngineStrategiesTest, EdgeCasesLinkAndAccount) {
  const PromptPiece chunk = Compiled(Tokens(1, 30));
  const PromptPiece one = Compiled({5});
  const PromptPiece tail = Compiled(Tokens(2, 18));
  const std::vector<std::vector<PromptPiece>> prompts = {
      {chunk, tail},                                   // no own text: the last row is covered
      {tail, chunk, one},                              // another order, and a chunk of one token last
      {one, one, one, Text({3})},                      // chunks of one token
      {chunk, chunk, chunk, Text(Tokens(3, 4))},       // the same ID
      {Text({9}), chunk, Text({8}), tail, Text({7})},  // text before, between and behind
      {Text({}), chunk, Text({}), tail, Text({4})},    // empty pieces
      {one},
      {chunk},
  };
  for (const char* name :
       {"cacheblend-0.0", "cacheblend-0.15", "cacheblend-0.15:paper", "cacheblend-0.3:attention",
        "cacheblend-1.0", "query-guided-1", "query-guided-16", "query-guided-16:first=16",
        "query-guided-4:scope=chunk,heads=mean,norm=1,rows=2,ask=1",
        "query-guided-4:step=1,blind=0,quantized=0"}) {
    for (size_t i = 0; i < prompts.size(); ++i) {
      const Logits logits = Run(prompts[i], Parsed(name));
      ASSERT_EQ(logits.size(), continuation_.size()) << name << " prompt " << i;
      // The same through decode: the link's first token is the score's best.
      LinkRequest request{.pieces = prompts[i], .strategy = Parsed(name)};
      request.sampling.temperature = 0;
      request.max_tokens = 3;
      ASSERT_OK_AND_ASSIGN(const auto link, Link(engine_.get(), std::move(request)));
      EXPECT_EQ(link->Ids(0).size(), 3u);
      EXPECT_EQ(static_cast<ptrdiff_t>(link->Ids(0)[0]),
                std::max_element(logits[0].begin(), logits[0].end()) - logits[0].begin())
          << name << " prompt " << i;
      EXPECT_EQ(link->stats.recomputed_tokens, stats_.recomputed_tokens);
      EXPECT_EQ(link->stats.cached_tokens, stats_.cached_tokens);
    }
  }
}

// Within the bound of the decode rows' weight format, far below what other rows would make of it.
TEST_P(EngineStrategiesTest, DecodeReadsTheSameRowsAsAScore) {
  const std::vector<PromptPiece> pieces = {Text(Tokens(1, 7)), Compiled(Tokens(2, 40)),
                                           Compiled(Tokens(3, 33)), Text(Tokens(4, 9))};
  for (const char* name : {"cacheblend-0.2", "query-guided-8"}) {
    LinkRequest request{.pieces = pieces, .strategy = Parsed(name)};
    request.sampling.temperature = 0;
    request.sampling.logprobs = true;
    request.max_tokens = 6;
    ASSERT_OK_AND_ASSIGN(const auto link, Link(engine_.get(), std::move(request)));
    ASSERT_OK_AND_ASSIGN(const auto score, Score(engine_.get(), pieces, Parsed(name), link->Ids(0)));
    for (size_t i = 0; i < 6; ++i) {
      const std::vector<float>& row = score->logits[i];
      double sum = 0;
      const float top = *std::max_element(row.begin(), row.end());
      for (const float value : row) sum += std::exp(double{value} - top);
      EXPECT_NEAR(link->tokens[0][i].logprob, row[link->Ids(0)[i]] - top - std::log(sum), 0.1) << name;
    }
    EXPECT_GT(link->stats.decide_ns, 0);
    EXPECT_GT(link->stats.link_ns, 0);
  }
}

TEST_P(EngineStrategiesTest, UsageCountsWhatIsReadBehindTheFirstLayers) {
  const std::vector<PromptPiece> pieces = {Compiled(Tokens(1, 10)), Compiled(Tokens(2, 60)),
                                           Compiled(Tokens(3, 40)), Text(Tokens(4, 5))};
  Run(pieces, Parsed("cacheblend-0.15"));
  EXPECT_EQ(stats_.recomputed_tokens, 15u);
  EXPECT_EQ(stats_.cached_tokens, 95u);
  EXPECT_EQ(stats_.fresh_tokens, 5u);
  EXPECT_EQ(stats_.read_rows[0], 10u);
  EXPECT_EQ(stats_.read_rows[3], 0u);
  Run(pieces, Parsed("query-guided-16"));
  EXPECT_EQ(stats_.recomputed_tokens, 32u);
  EXPECT_EQ(stats_.read_rows[0], 10u);
  EXPECT_EQ(stats_.read_rows[1] + stats_.read_rows[2], 68u);
  EXPECT_EQ(stats_.read_rows[3], 0u);
  Run(pieces, Parsed("query-guided-16:scope=chunk"));
  EXPECT_EQ(stats_.recomputed_tokens, 32u);
  EXPECT_EQ(stats_.read_rows, (Rows{10, 44, 24, 0}));
}

TEST_P(EngineStrategiesTest, ALayerThatTheModelHasNotIsRefused) {
  const std::vector<PromptPiece> pieces = {Compiled(Tokens(1, 10)), Text({3})};
  const std::string past = std::to_string(model_->config().layers);
  const absl::Status status =
      Score(engine_.get(), pieces, Parsed("query-guided:layers=0-" + past), continuation_).status();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(CodeOf(status), ErrorCode::kInvalidRequest);
}

// --- oracle 7

TEST_P(EngineStrategiesTest, TheBytesDependNeitherOnPanelsNorOnWhatSharesTheBatch) {
  const std::vector<PromptPiece> pieces = {Text(Tokens(3, 5)), Compiled(Tokens(1, 61)), Text(Tokens(6, 3)),
                                           Compiled(Tokens(2, 45)), Text(Tokens(4, 33))};
  for (const char* name : {"cacheblend-0.2", "cacheblend-0.2:attention", "query-guided-8"}) {
    const LinkStrategy strategy = Parsed(name);
    std::vector<std::shared_ptr<CollectScore>> scores;
    std::vector<std::shared_ptr<CollectLink>> links;
    for (const uint32_t panel : {1u, 7u, 48u, 512u}) {
      const auto engine = testing::MakeEngine(model_, Options(panel));
      for (const uint32_t others : {0u, 9u}) {
        scores.push_back(std::make_shared<CollectScore>());
        links.push_back(std::make_shared<CollectLink>(1));
        EngineHold hold(engine.get());
        std::vector<std::shared_ptr<CollectLink>> neighbours;
        for (uint32_t i = 0; i < others; ++i) {
          neighbours.push_back(std::make_shared<CollectLink>(1));
          std::vector<PromptPiece> mine = {pieces[1], Text(Tokens(50 + i, 3 + 7 * i))};
          if (i % 2 == 0) mine.insert(mine.begin(), Text({2}));
          ASSERT_OK(
              engine->SubmitLink(SampledLink(mine, i % 3 == 0 ? kFull : strategy, 2 + i), neighbours.back()));
        }
        ASSERT_OK(engine->SubmitScore({.pieces = pieces, .strategy = strategy, .continuation = continuation_},
                                      scores.back()));
        ASSERT_OK(engine->SubmitLink(SampledLink(pieces, strategy, 6), links.back()));
        hold.Release();
        ASSERT_OK(scores.back()->done.Wait());
        ASSERT_OK(links.back()->done.Wait());
        for (const auto& neighbour : neighbours) ASSERT_OK(neighbour->done.Wait());
        for (size_t i = 0; i < scores[0]->logits.size(); ++i) {
          const auto& a = scores.back()->logits[i];
          const auto& b = scores[0]->logits[i];
          ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0)
              << name << " panels of " << panel << ", " << others << " others";
        }
        ASSERT_TRUE(testing::HaveSameBytes(*links.back(), *links[0])) << name << " panels of " << panel;
      }
    }
  }
}

// --- cancellation, faults, memory

TEST_P(EngineStrategiesTest, CancelledInEitherPhaseEverythingIsFree) {
  const auto engine = testing::MakeEngine(model_, Options(16));
  ASSERT_OK_AND_ASSIGN(const PromptPiece chunk, Context(engine.get(), Tokens(1, 200)));
  for (const char* name : {"cacheblend-0.3", "cacheblend-0.3:attention", "query-guided-40"}) {
    // With a decode row in the step a panel has 4 rows: the phases take 61 and 26 steps, or 11 and 21.
    const bool blend = Parsed(name).kind == StrategyKind::kCacheBlend;
    for (const size_t cancel_at : {size_t{4}, blend ? size_t{75} : size_t{20}}) {
      CancelSource cancel;
      auto victim = std::make_shared<CollectLink>(1);
      auto companion = std::make_shared<CollectLink>(1);
      EngineGauges at_cancel;
      LinkRequest request = SampledLink({Text({3}), chunk, Text(Tokens(3, 40))}, Parsed(name), 5);
      request.cancel = cancel.token();
      companion->on_token = [&](const GeneratedToken&) {
        const size_t tokens = companion->tokens[0].size();
        if (tokens == 1) {
          EXPECT_OK(engine->SubmitLink(std::move(request), victim));
        }
        if (tokens == cancel_at) {
          at_cancel = engine->Gauges();
          cancel.Cancel();
        }
        return true;
      };
      ASSERT_OK(engine->SubmitLink(SampledLink({Text({5})}, kFull, 90), companion));
      ASSERT_OK(companion->done.Wait());
      companion->on_token = nullptr;
      EXPECT_THAT(victim->done.Wait(), testing::StatusIs(absl::StatusCode::kCancelled)) << name << cancel_at;
      EXPECT_EQ(victim->linked, 0) << name << " " << cancel_at;
      EXPECT_EQ(at_cancel.running, 2u);
      const EngineGauges after = engine->Gauges();
      EXPECT_EQ(after.private_rows, 0u);
      EXPECT_EQ(after.private_bytes, 0u);
      EXPECT_EQ(after.held_objects, 0u);
      EXPECT_EQ(chunk.object.use_count(), 1);
    }
  }
}

// A copy of the piece's object with one value of a layer's keys (or values) replaced.
PromptPiece Poisoned(const PromptPiece& piece, uint32_t layer, bool value, uint32_t row) {
  const KvLayout& layout = piece.object->layout();
  auto copy = std::make_shared<testing::PlainObject>(layout);
  for (uint32_t l = 0; l < layout.layers; ++l) {
    std::memcpy(copy->MutableLayer(l).data(), piece.object->Layer(l).data(), layout.LayerBytes());
  }
  const size_t at =
      (value ? layout.LayerBytes() / 2 : 0) + size_t{row} * layout.head_dim * SizeOf(layout.dtype);
  std::memset(copy->MutableLayer(layer).data() + at, 0xff, SizeOf(layout.dtype));
  return {.tokens = piece.tokens, .object = std::move(copy), .prefix_tokens = piece.prefix_tokens};
}

TEST_P(EngineStrategiesTest, WhatIsNotANumberInAPhaseFailsTheRequestAlone) {
  const PromptPiece chunk = Compiled(Tokens(1, 40));
  const auto pieces = [&](const PromptPiece& piece) {
    return std::vector<PromptPiece>{Text({3}), piece, Text(Tokens(2, 12))};
  };
  const Logits good = Run(pieces(chunk), Parsed("query-guided-4"));
  // Every row would be picked, so that the link itself reads nothing of the object.
  const std::pair<const char*, PromptPiece> cases[] = {
      {"query-guided-64:layers=0-1", Poisoned(chunk, 0, false, 7)},
      {"query-guided-64:layers=0-1", Poisoned(chunk, 1, false, 7)},
      {"query-guided-64:layers=0-1", Poisoned(chunk, 0, true, 7)},
      {"query-guided-64:layers=1-1,norm=1", Poisoned(chunk, 1, true, 7)},
      {"cacheblend-1.0", Poisoned(chunk, 1, true, 7)},
      {"cacheblend-1.0:attention", Poisoned(chunk, 1, false, 7)},
  };
  for (const auto& [name, piece] : cases) {
    EngineHold hold(engine_.get());
    auto failing = std::make_shared<CollectScore>();
    auto neighbour = std::make_shared<CollectScore>();
    ASSERT_OK(engine_->SubmitScore({.pieces = pieces(piece), .strategy = Parsed(name), .continuation = {1}},
                                   failing));
    ASSERT_OK(engine_->SubmitScore(
        {.pieces = pieces(chunk), .strategy = Parsed("query-guided-4"), .continuation = continuation_},
        neighbour));
    hold.Release();
    const absl::Status status = failing->done.Wait();
    ASSERT_FALSE(status.ok()) << name;
    EXPECT_EQ(CodeOf(status), ErrorCode::kInternal) << name;
    ASSERT_OK(neighbour->done.Wait());
    EXPECT_EQ(neighbour->logits, good) << name;
  }
  EXPECT_EQ(engine_->Gauges().private_rows, 0u);
}

// The most that a request held at the end of any of its steps, and its rows.
TEST_P(EngineStrategiesTest, MemoryIsLinearInThePromptsRows) {
  for (const char* name : {"cacheblend-0.2", "cacheblend-0.2:attention", "query-guided-8:rows=0"}) {
    std::vector<double> bytes_per_row;
    for (const uint32_t chunks : {2u, 4u, 8u}) {
      const auto engine = testing::MakeEngine(model_, Options(24));
      std::vector<PromptPiece> pieces = {Text(Tokens(9, chunks))};
      for (uint32_t i = 0; i < chunks; ++i) {
        ASSERT_OK_AND_ASSIGN(PromptPiece chunk, Context(engine.get(), Tokens(i, 40)));
        pieces.push_back(std::move(chunk));
      }
      pieces.push_back(Text(Tokens(20, size_t{9} * chunks)));
      uint64_t most = 0;
      auto victim = std::make_shared<CollectLink>(1);
      auto companion = std::make_shared<CollectLink>(1);
      companion->on_token = [&](const GeneratedToken&) {
        if (companion->tokens[0].size() == 1) {
          EXPECT_OK(engine->SubmitLink(SampledLink(pieces, Parsed(name), 1), victim));
        }
        most = std::max(most, engine->Gauges().private_bytes);
        return true;
      };
      ASSERT_OK(engine->SubmitLink(SampledLink({Text({5})}, kFull, 200), companion));
      ASSERT_OK(companion->done.Wait());
      companion->on_token = nullptr;
      ASSERT_OK(victim->done.Wait());
      const uint64_t companion_bytes = engine->LayoutOf(200, 0).TotalBytes();
      bytes_per_row.push_back(static_cast<double>(most - companion_bytes) / victim->stats.prompt_tokens);
    }
    EXPECT_NEAR(bytes_per_row[1], bytes_per_row[0], 0.05 * bytes_per_row[0]) << name;
    EXPECT_NEAR(bytes_per_row[2], bytes_per_row[0], 0.05 * bytes_per_row[0]) << name;
  }
}

std::vector<Param> Params() {
  std::vector<Param> params;
  for (const std::string name : {"llama", "wide", "qwen2", "qwen3", "deep"}) {
    for (const ComputeFormat format : testing::NativeFormats()) params.emplace_back(name, format);
  }
  return params;
}

INSTANTIATE_TEST_SUITE_P(Models, EngineStrategiesTest, ::testing::ValuesIn(Params()), [](const auto& info) {
  return std::get<0>(info.param) + "_" + testing::NameOf(std::get<1>(info.param));
});

}  // namespace
}  // namespace epic
