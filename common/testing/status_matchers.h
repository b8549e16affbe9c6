// GoogleTest helpers for absl::Status: EXPECT_OK, ASSERT_OK, StatusIs(code), StatusIs(code, message matcher)
// and ASSERT_OK_AND_ASSIGN. Abseil 20220623 has none of its own.
#ifndef EPIC_COMMON_TESTING_STATUS_MATCHERS_H_
#define EPIC_COMMON_TESTING_STATUS_MATCHERS_H_

#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace epic::testing {

inline absl::Status StatusOf(const absl::Status& status) { return status; }
template <typename T>
absl::Status StatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

MATCHER_P(StatusIs, code, "has status " + absl::StatusCodeToString(code)) {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code;
}

MATCHER_P2(StatusIs, code, message,
           "has status " + absl::StatusCodeToString(code) + " and a matching message") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code && ::testing::Matches(message)(std::string(
                                             StatusOf(arg).message().data(), StatusOf(arg).message().size()));
}

}  // namespace epic::testing

#define EXPECT_OK(expression) EXPECT_THAT((expression), ::epic::testing::IsOk())
#define ASSERT_OK(expression) ASSERT_THAT((expression), ::epic::testing::IsOk())
#define EPIC_TEST_CONCAT_INNER(a, b) a##b
#define EPIC_TEST_CONCAT(a, b) EPIC_TEST_CONCAT_INNER(a, b)
#define ASSERT_OK_AND_ASSIGN(lhs, expression) \
  ASSERT_OK_AND_ASSIGN_INNER(EPIC_TEST_CONCAT(status_or_, __LINE__), lhs, expression)
#define ASSERT_OK_AND_ASSIGN_INNER(temporary, lhs, expression)  \
  auto temporary = (expression);                                \
  ASSERT_TRUE(temporary.ok()) << temporary.status().ToString(); \
  lhs = std::move(temporary).value()

#endif  // EPIC_COMMON_TESTING_STATUS_MATCHERS_H_
