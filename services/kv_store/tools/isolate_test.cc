#include "services/kv_store/tools/isolate.h"

#include <csignal>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"

namespace epic::kv_store {
namespace {

using epic::testing::StatusIs;
using ::testing::HasSubstr;

TEST(IsolateTest, WhatWorkReturnsComesBackAndABreakdownIsAnError) {
  EXPECT_EQ(RunIsolated([] { return 7; }).value(), 7);
  EXPECT_THAT(RunIsolated([]() -> int { std::abort(); }).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("ended the process")));
  EXPECT_THAT(RunIsolated([]() -> int {
                raise(SIGKILL);
                return 0;
              }).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("from outside")));
  EXPECT_OK(RunStatusIsolated([] { return absl::OkStatus(); }));
  EXPECT_THAT(RunStatusIsolated([] { return absl::NotFoundError("no such thing"); }),
              StatusIs(absl::StatusCode::kNotFound, "no such thing"));
  EXPECT_EQ(
      MessageOf(RunStatusIsolated([] { return absl::NotFoundError(std::string(100'000, 'x')); })).size(),
      4096u);
  EXPECT_THAT(RunStatusIsolated([]() -> absl::Status { std::abort(); }),
              StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace epic::kv_store
