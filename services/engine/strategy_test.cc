#include "services/engine/strategy.h"

#include <limits>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"

namespace epic {
namespace {

using Prefix = CompilePrefixKind;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

LinkStrategy Plain(StrategyKind kind, Prefix prefix = Prefix::kNone) {
  return {.kind = kind, .k = 0, .compile_prefix = prefix};
}
LinkStrategy LegoLink(uint32_t k, Prefix prefix = Prefix::kNone) {
  return {.kind = StrategyKind::kLegoLink, .k = k, .compile_prefix = prefix};
}
LinkStrategy CacheBlend(uint32_t ratio_ppm, BlendPick pick = BlendPick::kValues) {
  LinkStrategy strategy = Plain(StrategyKind::kCacheBlend);
  strategy.ratio_ppm = ratio_ppm;
  strategy.pick = pick;
  return strategy;
}
LinkStrategy QueryGuided(uint32_t budget, const ProbeOptions& probe = {}) {
  LinkStrategy strategy = Plain(StrategyKind::kQueryGuided);
  strategy.budget = budget;
  strategy.probe = probe;
  return strategy;
}

struct GoodCase {
  std::string_view name;
  StrategyFields fields;
  LinkStrategy expected;
  std::string_view printed;
};

TEST(StrategyTest, EverySpellingOfTheApiIsUnderstood) {
  LinkStrategy blend_of_system = CacheBlend(150'000);
  blend_of_system.compile_prefix = Prefix::kSystem;
  const GoodCase cases[] = {
      {"full", {}, Plain(StrategyKind::kFull), "full"},
      {"full", {.compile_prefix = Prefix::kNone}, Plain(StrategyKind::kFull), "full"},
      {"prefix", {}, Plain(StrategyKind::kPrefix), "prefix"},
      {"naive", {}, Plain(StrategyKind::kNaive), "naive"},
      {"naive", {.compile_prefix = Prefix::kSystem}, Plain(StrategyKind::kNaive, Prefix::kSystem), "naive"},
      {"legolink", {}, LegoLink(16), "legolink-16"},
      {"legolink", {.k = 5}, LegoLink(5), "legolink-5"},
      {"legolink-16", {}, LegoLink(16), "legolink-16"},
      {"legolink-16", {.k = 16}, LegoLink(16), "legolink-16"},
      {"legolink-16", {.compile_prefix = Prefix::kBos}, LegoLink(16, Prefix::kBos), "legolink-16"},
      {"legolink-65536", {}, LegoLink(65536), "legolink-65536"},
      {"legolink-0", {}, LegoLink(0, Prefix::kBos4), "legolink-0"},
      {"legolink", {.k = 0}, LegoLink(0, Prefix::kBos4), "legolink-0"},
      {"legolink-0", {.k = 0, .compile_prefix = Prefix::kSystem}, LegoLink(0, Prefix::kSystem), "legolink-0"},
      {"legolink-0", {.compile_prefix = Prefix::kBos}, LegoLink(0, Prefix::kBos), "legolink-0"},
      {"cacheblend", {}, CacheBlend(150'000), "cacheblend-0.15"},
      {"cacheblend", {.ratio = 0.15}, CacheBlend(150'000), "cacheblend-0.15"},
      {"cacheblend", {.ratio = 1e-6}, CacheBlend(1), "cacheblend-0.000001"},
      {"cacheblend-0.15", {}, CacheBlend(150'000), "cacheblend-0.15"},
      {"cacheblend-0.150", {.ratio = 0.15}, CacheBlend(150'000), "cacheblend-0.15"},
      {"cacheblend-0", {}, CacheBlend(0), "cacheblend-0.0"},
      {"cacheblend-1", {}, CacheBlend(1'000'000), "cacheblend-1.0"},
      {"cacheblend-1.0", {.ratio = 1}, CacheBlend(1'000'000), "cacheblend-1.0"},
      {"cacheblend-0.15", {.compile_prefix = Prefix::kSystem}, blend_of_system, "cacheblend-0.15"},
      {"cacheblend-0.15:paper", {}, CacheBlend(150'000, BlendPick::kPaper), "cacheblend-0.15:paper"},
      {"cacheblend:paper", {.ratio = 0.2}, CacheBlend(200'000, BlendPick::kPaper), "cacheblend-0.2:paper"},
      {"cacheblend-0.000123:attention",
       {},
       CacheBlend(123, BlendPick::kAttention),
       "cacheblend-0.000123:attention"},
      {"query-guided", {}, QueryGuided(16), "query-guided-16"},
      {"query-guided", {.budget = 64}, QueryGuided(64), "query-guided-64"},
      {"query-guided-64", {.budget = 64}, QueryGuided(64), "query-guided-64"},
      {"query-guided-65536", {}, QueryGuided(65536), "query-guided-65536"},
  };
  for (const GoodCase& c : cases) {
    ASSERT_OK_AND_ASSIGN(const LinkStrategy strategy, ParseStrategy(c.name, c.fields));
    EXPECT_EQ(strategy, c.expected) << c.name;
    EXPECT_EQ(strategy.Name(), c.printed);
    EXPECT_TRUE(strategy.Name().starts_with(strategy.Family()));
    StrategyFields prefix;
    prefix.compile_prefix = strategy.compile_prefix;
    ASSERT_OK_AND_ASSIGN(const LinkStrategy again, ParseStrategy(strategy.Name(), prefix));
    EXPECT_EQ(again, strategy);
  }
}

struct BadCase {
  std::string_view name;
  StrategyFields fields;
  std::string_view param;
};

TEST(StrategyTest, EveryMistakeNamesItsParameter) {
  const BadCase cases[] = {
      {"", {}, "linking.strategy"},
      {"Full", {}, "linking.strategy"},
      {"full-1", {}, "linking.strategy"},
      {"naive:paper", {}, "linking.strategy"},
      {"legolinks", {}, "linking.strategy"},
      {"legolink-", {}, "linking.strategy"},
      {"legolink--1", {}, "linking.strategy"},
      {"legolink-+1", {}, "linking.strategy"},
      {"legolink-1x", {}, "linking.strategy"},
      {"legolink-1.5", {}, "linking.strategy"},
      {"legolink-016", {}, "linking.strategy"},
      {"legolink-65537", {}, "linking.strategy"},
      {"legolink-99999999999", {}, "linking.strategy"},
      {"legolink-16:paper", {}, "linking.strategy"},
      {"legolink", {.k = 65537}, "linking.k"},
      {"legolink-16", {.k = 8}, "linking.k"},
      {"legolink-0", {.k = 16}, "linking.k"},
      {"legolink", {.ratio = 0.5}, "linking.ratio"},
      {"legolink-16", {.budget = 16}, "linking.budget"},
      {"full", {.k = 16}, "linking.k"},
      {"prefix", {.k = 0}, "linking.k"},
      {"naive", {.k = 1}, "linking.k"},
      {"full", {.compile_prefix = Prefix::kBos4}, "linking.compile_prefix"},
      {"legolink-0", {.compile_prefix = Prefix::kNone}, "linking.compile_prefix"},
      {"cacheblend-", {}, "linking.strategy"},
      {"cacheblend-1.5", {}, "linking.strategy"},
      {"cacheblend-1.000001", {}, "linking.strategy"},
      {"cacheblend--0.1", {}, "linking.strategy"},
      {"cacheblend-.15", {}, "linking.strategy"},
      {"cacheblend-0.", {}, "linking.strategy"},
      {"cacheblend-00.15", {}, "linking.strategy"},
      {"cacheblend-0.1e1", {}, "linking.strategy"},
      {"cacheblend-0.1234567", {}, "linking.strategy"},
      {"cacheblend-nan", {}, "linking.strategy"},
      {"cacheblend-0.15:", {}, "linking.strategy"},
      {"cacheblend-0.15:Paper", {}, "linking.strategy"},
      {"cacheblend-0.15:paper:attention", {}, "linking.strategy"},
      {"cacheblend", {.ratio = -0.1}, "linking.ratio"},
      {"cacheblend", {.ratio = 1.1}, "linking.ratio"},
      {"cacheblend", {.ratio = kNaN}, "linking.ratio"},
      {"cacheblend", {.ratio = 0.12345678}, "linking.ratio"},
      {"cacheblend-0.15", {.ratio = 0.16}, "linking.ratio"},
      {"cacheblend-0.15", {.k = 16}, "linking.k"},
      {"query-guided-", {}, "linking.strategy"},
      {"query-guided-0", {}, "linking.strategy"},
      {"query-guided-65537", {}, "linking.strategy"},
      {"query-guided", {.budget = 0}, "linking.budget"},
      {"query-guided", {.budget = 65537}, "linking.budget"},
      {"query-guided-8", {.budget = 9}, "linking.budget"},
      {"query-guided", {.ratio = 0.1}, "linking.ratio"},
      {"query-guided:first=4", {}, "linking.strategy"},
  };
  for (const BadCase& c : cases) {
    const absl::StatusOr<LinkStrategy> strategy = ParseStrategy(c.name, c.fields);
    ASSERT_FALSE(strategy.ok()) << c.name;
    EXPECT_EQ(CodeOf(strategy.status()), ErrorCode::kInvalidRequest) << c.name;
    EXPECT_EQ(ParamOf(strategy.status()), c.param) << c.name;
  }
}

TEST(StrategyTest, MeasurementsSetTheOptionsOfTheProbe) {
  const std::pair<std::string_view, ProbeOptions> cases[] = {
      {"query-guided-16", {}},
      {"query-guided-16:layers=15-22,first=4", {.first_layer = 15, .last_layer = 22, .first_rows = 4}},
      {"query-guided-16:layers=0-0,step=3,blind=0,quantized=0,first=3,rows=12,ask=4,fade=8,heads=mean,norm=1,"
       "scope=chunk",
       {.first_layer = 0,
        .last_layer = 0,
        .layer_step = 3,
        .starts_blind = false,
        .quantized = false,
        .query_rows = 12,
        .asking_rows = 4,
        .first_rows = 3,
        .fading_rows = 8,
        .max_of_heads = false,
        .value_norm = true,
        .shared_budget = false}},
      {"query-guided-16:rows=0,fade=0", {.query_rows = 0, .fading_rows = 0}},
  };
  for (const auto& [name, options] : cases) {
    ASSERT_OK_AND_ASSIGN(const LinkStrategy strategy, ParseEvaluationStrategy(name));
    EXPECT_EQ(strategy, QueryGuided(16, options)) << name;
    EXPECT_EQ(strategy.Name(), name);
  }
  ASSERT_OK_AND_ASSIGN(const LinkStrategy plus,
                       ParseEvaluationStrategy("query-guided:heads=max+first=2+norm=0"));
  EXPECT_EQ(plus, QueryGuided(16, {.first_rows = 2}));
  // Everything of the API is understood here too.
  EXPECT_OK(ParseEvaluationStrategy("cacheblend-0.15:paper"));
  for (const std::string_view bad :
       {"query-guided:", "query-guided:first", "query-guided:first=", "query-guided:first=-1",
        "query-guided:first=65537", "query-guided:layers=3", "query-guided:layers=5-3",
        "query-guided:layers=1-4096", "query-guided:heads=all", "query-guided:norm=2",
        "query-guided:scope=", "query-guided:step=0", "query-guided:blind=2", "query-guided:quantized=yes",
        "query-guided:speed=1", "query-guided:first=1,first=1", "query-guided:first=1,",
        "legolink-16:first=1", "query-guided:layers=1-2-3"}) {
    const absl::StatusOr<LinkStrategy> strategy = ParseEvaluationStrategy(bad);
    ASSERT_FALSE(strategy.ok()) << bad;
    EXPECT_EQ(ParamOf(strategy.status()), "linking.strategy") << bad;
  }
}

}  // namespace
}  // namespace epic
