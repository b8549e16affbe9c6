// EPIC_CHECK: assertions about our own mistakes, on in every build. Never for input: input gets an
// absl::Status.
#ifndef EPIC_COMMON_BASE_CHECK_H_
#define EPIC_COMMON_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>

namespace epic::internal {
[[noreturn]] inline void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}
}  // namespace epic::internal

#define EPIC_CHECK(condition)                          \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::epic::internal::CheckFailed(#condition, __FILE__, __LINE__))

#endif  // EPIC_COMMON_BASE_CHECK_H_
