// The one place that converts between Abseil's string_view and optional (Debian builds Abseil with its own)
// and the std types that EPIC's interfaces use.
#ifndef EPIC_COMMON_BASE_ABSL_STD_H_
#define EPIC_COMMON_BASE_ABSL_STD_H_

#include <optional>
#include <string_view>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace epic {

inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view ToStd(absl::string_view text) { return {text.data(), text.size()}; }

template <typename T>
std::optional<T> ToStd(absl::optional<T> value) {
  return value.has_value() ? std::optional<T>(*std::move(value)) : std::nullopt;
}

}  // namespace epic

#endif  // EPIC_COMMON_BASE_ABSL_STD_H_
