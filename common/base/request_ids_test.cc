#include "common/base/request_ids.h"

#include <set>

#include <gtest/gtest.h>

namespace epic {
namespace {

TEST(RequestIdsTest, SafeIdsAreTakenAndOthersReplaced) {
  RequestIds ids(7);
  const std::string longest(128, 'x');
  for (const std::string& sent : {std::string("a"), std::string("AZaz09._:-"), longest}) {
    EXPECT_EQ(ids.TakeOrMake(sent), sent);
  }
  for (const std::string& sent : {std::string(), longest + "x", std::string("a b"), std::string("a\nb"),
                                  std::string("\xc3\xa9"), std::string("a\0b", 3)}) {
    const std::string made = ids.TakeOrMake(sent);
    EXPECT_TRUE(made.starts_with("req_")) << made;
    EXPECT_EQ(ids.TakeOrMake(made), made);
  }
}

TEST(RequestIdsTest, NewIdsDifferAlsoBetweenSeeds) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    RequestIds ids(seed * 1'000'003);
    for (int i = 0; i < 1000; ++i) seen.insert(ids.TakeOrMake(""));
  }
  EXPECT_EQ(seen.size(), 4000u);
}

}  // namespace
}  // namespace epic
