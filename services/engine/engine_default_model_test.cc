// Oracles 1, 3, 4, 7 and 9 on the default model's real weights, in f32 and, where the CPU has it, in bf16.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/cancel.h"
#include "common/base/clock.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/engine/testing/engine_harness.h"
#include "services/engine/testing/tiny_engines.h"

namespace epic {
namespace {

using testing::Context;
using testing::Score;
using testing::Text;

constexpr LinkStrategy kFull{StrategyKind::kFull, 0};
constexpr LinkStrategy kNaive{StrategyKind::kNaive, 0};
constexpr LinkStrategy kLegoLink0{StrategyKind::kLegoLink, 0, CompilePrefixKind::kBos4};
constexpr LinkStrategy LegoLink(uint32_t k) { return {StrategyKind::kLegoLink, k}; }

using Logits = std::vector<std::vector<float>>;

// The longest golden prompt: 322 ids of English text.
std::vector<TokenId> EnglishIds() {
  std::istringstream file(
      testing::ReadFileOrDie(testing::SourceDir() + "/services/engine/golden/default_model.txt"));
  std::vector<TokenId> longest;
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("prompt ")) continue;
    std::istringstream in(line.substr(7));
    std::vector<TokenId> ids;
    TokenId id;
    while (in >> id) ids.push_back(id);
    if (ids.size() > longest.size()) longest = ids;
  }
  return longest;
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
    options.panel_tokens = 64;
    options.prefix_cache_bytes = 0;
    engine_ = testing::MakeEngine(*std::move(model), options);
    ids_ = EnglishIds();
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

TEST_P(EngineDefaultModelTest, ChunksExactInPlaceEqualFull) {
  const auto head = Ids(0, 25);
  const std::vector<PromptPiece> pieces = {Compiled(head), Compiled(Ids(25, 100), head), Text(Ids(100, 118))};
  const Logits full = Run(pieces, kFull);
  for (const LinkStrategy& strategy : {kNaive, LegoLink(16), kLegoLink0}) {
    ExpectEqual(Run(pieces, strategy), full, strategy.Name());
  }
  const std::vector<TokenId> bos4(4, 0);
  const std::vector<PromptPiece> behind = {Text(bos4), Compiled(Ids(25, 100), bos4), Text(Ids(100, 118))};
  ExpectEqual(Run(behind, kLegoLink0), Run(behind, kFull), "bos4");
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
