// EPIC_RETURN_IF_ERROR and EPIC_ASSIGN_OR_RETURN for functions that return absl::Status or absl::StatusOr.
#ifndef EPIC_COMMON_STATUS_STATUS_MACROS_H_
#define EPIC_COMMON_STATUS_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define EPIC_MACRO_CONCAT_INNER(a, b) a##b
#define EPIC_MACRO_CONCAT(a, b) EPIC_MACRO_CONCAT_INNER(a, b)

#define EPIC_RETURN_IF_ERROR(expression)                                                \
  do {                                                                                  \
    if (absl::Status epic_status = (expression); !epic_status.ok()) return epic_status; \
  } while (false)

#define EPIC_ASSIGN_OR_RETURN(lhs, expression) \
  EPIC_ASSIGN_OR_RETURN_INNER(EPIC_MACRO_CONCAT(epic_status_or_, __LINE__), lhs, expression)
#define EPIC_ASSIGN_OR_RETURN_INNER(temporary, lhs, expression) \
  auto temporary = (expression);                                \
  if (!temporary.ok()) return temporary.status();               \
  lhs = std::move(temporary).value()

#endif  // EPIC_COMMON_STATUS_STATUS_MACROS_H_
