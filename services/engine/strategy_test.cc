#include "services/engine/strategy.h"

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"

namespace epic {
namespace {

using Prefix = CompilePrefixKind;
constexpr std::optional<uint32_t> kNoK;
constexpr std::optional<Prefix> kNoPrefix;

struct GoodCase {
  std::string_view name;
  std::optional<uint32_t> k;
  std::optional<Prefix> prefix;
  LinkStrategy expected;
  std::string_view printed;
};

TEST(StrategyTest, EverySpellingOfTheApiIsUnderstood) {
  const GoodCase cases[] = {
      {"full", kNoK, kNoPrefix, {StrategyKind::kFull, 0, Prefix::kNone}, "full"},
      {"full", kNoK, Prefix::kNone, {StrategyKind::kFull, 0, Prefix::kNone}, "full"},
      {"prefix", kNoK, kNoPrefix, {StrategyKind::kPrefix, 0, Prefix::kNone}, "prefix"},
      {"naive", kNoK, kNoPrefix, {StrategyKind::kNaive, 0, Prefix::kNone}, "naive"},
      {"naive", kNoK, Prefix::kSystem, {StrategyKind::kNaive, 0, Prefix::kSystem}, "naive"},
      {"legolink", kNoK, kNoPrefix, {StrategyKind::kLegoLink, 16, Prefix::kNone}, "legolink-16"},
      {"legolink", 5, kNoPrefix, {StrategyKind::kLegoLink, 5, Prefix::kNone}, "legolink-5"},
      {"legolink-16", kNoK, kNoPrefix, {StrategyKind::kLegoLink, 16, Prefix::kNone}, "legolink-16"},
      {"legolink-16", 16, kNoPrefix, {StrategyKind::kLegoLink, 16, Prefix::kNone}, "legolink-16"},
      {"legolink-16", kNoK, Prefix::kBos, {StrategyKind::kLegoLink, 16, Prefix::kBos}, "legolink-16"},
      {"legolink-65536", kNoK, kNoPrefix, {StrategyKind::kLegoLink, 65536, Prefix::kNone}, "legolink-65536"},
      {"legolink-0", kNoK, kNoPrefix, {StrategyKind::kLegoLink, 0, Prefix::kBos4}, "legolink-0"},
      {"legolink", 0, kNoPrefix, {StrategyKind::kLegoLink, 0, Prefix::kBos4}, "legolink-0"},
      {"legolink-0", 0, Prefix::kSystem, {StrategyKind::kLegoLink, 0, Prefix::kSystem}, "legolink-0"},
      {"legolink-0", kNoK, Prefix::kBos, {StrategyKind::kLegoLink, 0, Prefix::kBos}, "legolink-0"},
  };
  for (const GoodCase& c : cases) {
    ASSERT_OK_AND_ASSIGN(const LinkStrategy strategy, ParseStrategy(c.name, c.k, c.prefix));
    EXPECT_EQ(strategy, c.expected) << c.name;
    EXPECT_EQ(strategy.Name(), c.printed);
  }
}

struct BadCase {
  std::string_view name;
  std::optional<uint32_t> k;
  std::optional<Prefix> prefix;
  ErrorCode code;
  std::string_view param;
};

TEST(StrategyTest, EveryMistakeNamesItsParameter) {
  const ErrorCode kInvalid = ErrorCode::kInvalidRequest;
  const ErrorCode kUnsupported = ErrorCode::kUnsupportedParameter;
  const BadCase cases[] = {
      {"", kNoK, kNoPrefix, kInvalid, "linking.strategy"},
      {"Full", kNoK, kNoPrefix, kInvalid, "linking.strategy"},
      {"legolinks", kNoK, kNoPrefix, kInvalid, "linking.strategy"},
      {"legolink-", kNoK, kNoPrefix, kInvalid, "linking.strategy"},
      {"legolink--1", kNoK, kNoPrefix, kInvalid, "linking.strategy"},
      {"legolink-+1", kNoK, kNoPrefix, kInvalid, "linking.strategy"},
      {"legolink-1x", kNoK, kNoPrefix, kInvalid, "linking.strategy"},
      {"legolink-1.5", kNoK, kNoPrefix, kInvalid, "linking.strategy"},
      {"legolink-016", kNoK, kNoPrefix, kInvalid, "linking.strategy"},
      {"legolink-65537", kNoK, kNoPrefix, kInvalid, "linking.strategy"},
      {"legolink-99999999999", kNoK, kNoPrefix, kInvalid, "linking.strategy"},
      {"legolink", 65537, kNoPrefix, kInvalid, "linking.k"},
      {"legolink-16", 8, kNoPrefix, kInvalid, "linking.k"},
      {"legolink-0", 16, kNoPrefix, kInvalid, "linking.k"},
      {"full", 16, kNoPrefix, kInvalid, "linking.k"},
      {"prefix", 0, kNoPrefix, kInvalid, "linking.k"},
      {"naive", 1, kNoPrefix, kInvalid, "linking.k"},
      {"full", kNoK, Prefix::kBos4, kInvalid, "linking.compile_prefix"},
      {"legolink-0", kNoK, Prefix::kNone, kInvalid, "linking.compile_prefix"},
      {"cacheblend-0.15", kNoK, kNoPrefix, kUnsupported, "linking.strategy"},
      {"cacheblend-0.15:paper", kNoK, kNoPrefix, kUnsupported, "linking.strategy"},
      {"query-guided", kNoK, kNoPrefix, kUnsupported, "linking.strategy"},
  };
  for (const BadCase& c : cases) {
    const absl::StatusOr<LinkStrategy> strategy = ParseStrategy(c.name, c.k, c.prefix);
    ASSERT_FALSE(strategy.ok()) << c.name;
    EXPECT_EQ(CodeOf(strategy.status()), c.code) << c.name;
    EXPECT_EQ(ParamOf(strategy.status()), c.param) << c.name;
  }
}

}  // namespace
}  // namespace epic
