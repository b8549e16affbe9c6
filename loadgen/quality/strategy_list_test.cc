#include "loadgen/quality/strategy_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace epic::loadgen {
namespace {

using ::epic::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(StrategyListTest, CommasAndSemicolonsSeparateAndOptionsStayWithTheirStrategy) {
  EXPECT_THAT(SplitStrategies("full,legolink-16"), ElementsAre("full", "legolink-16"));
  EXPECT_THAT(SplitStrategies("naive,query-guided:layers=15-22,first=4,legolink-16"),
              ElementsAre("naive", "query-guided:layers=15-22,first=4", "legolink-16"));
  EXPECT_THAT(SplitStrategies("query-guided:layers=15-22,first=4;cacheblend-0.15:paper"),
              ElementsAre("query-guided:layers=15-22,first=4", "cacheblend-0.15:paper"));
  EXPECT_THAT(SplitStrategies("a:x=1,b:y=2"), ElementsAre("a:x=1", "b:y=2"));
  EXPECT_THAT(SplitStrategies(" full ; naive ,, prefix;"), ElementsAre("full", "naive", "prefix"));
  EXPECT_THAT(SplitStrategies(""), IsEmpty());
  EXPECT_THAT(SplitStrategies(";,"), IsEmpty());
}

TEST(StrategyListTest, SpellingsBecomeStrategiesWithTheirPrefix) {
  ASSERT_OK_AND_ASSIGN(const std::vector<NamedStrategy> strategies,
                       ParseStrategies({"full", "legolink-8", "legolink-0", "legolink-0@system"}));
  ASSERT_EQ(strategies.size(), 4u);
  EXPECT_EQ(strategies[0].link.kind, StrategyKind::kFull);
  EXPECT_EQ(strategies[1].name, "legolink-8");
  EXPECT_EQ(strategies[1].link.k, 8u);
  EXPECT_EQ(strategies[1].link.compile_prefix, CompilePrefixKind::kNone);
  EXPECT_EQ(strategies[2].link.compile_prefix, CompilePrefixKind::kBos4);
  EXPECT_EQ(strategies[3].name, "legolink-0@system");
  EXPECT_EQ(strategies[3].link.compile_prefix, CompilePrefixKind::kSystem);
}

TEST(StrategyListTest, OptionsForMeasurementsAndPrefixesGoTogether) {
  ASSERT_OK_AND_ASSIGN(
      const std::vector<NamedStrategy> strategies,
      ParseStrategies(SplitStrategies(
          "cacheblend-0.15:paper,query-guided-16:layers=15-22,first=4@system,query-guided-8")));
  ASSERT_EQ(strategies.size(), 3u);
  EXPECT_EQ(strategies[0].link.pick, BlendPick::kPaper);
  EXPECT_EQ(strategies[1].link.budget, 16u);
  EXPECT_EQ(strategies[1].link.probe.first_layer, 15u);
  EXPECT_EQ(strategies[1].link.probe.last_layer, 22u);
  EXPECT_EQ(strategies[1].link.probe.first_rows, 4u);
  EXPECT_EQ(strategies[1].link.compile_prefix, CompilePrefixKind::kSystem);
  EXPECT_EQ(strategies[2].link.kind, StrategyKind::kQueryGuided);
}

TEST(StrategyListTest, BadListsSayWhichSpellingIsAtFault) {
  const auto refused = [](const std::vector<std::string>& spellings, const std::string& message) {
    EXPECT_THAT(ParseStrategies(spellings), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  refused({}, "at least one");
  refused({"full", "full"}, "twice");
  refused({"full", "sideways"}, "'sideways'");
  refused({"legolink-0@none"}, "'legolink-0@none'");
  refused({"legolink-0@head"}, "none, bos, bos4 or system");
  refused({"legolink-x"}, "'legolink-x'");
  refused(std::vector<std::string>(65, "full"), "at most 64");
}

}  // namespace
}  // namespace epic::loadgen
