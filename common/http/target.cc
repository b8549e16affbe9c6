#include "common/http/target.h"

#include "common/status/error.h"

namespace epic {

absl::StatusOr<Target> SplitTarget(std::string_view target) {
  if (target == "*") return Target{"*", ""};
  if (const size_t scheme = target.find("://");
      !target.starts_with('/') && scheme != std::string_view::npos) {
    const size_t slash = target.find('/', scheme + 3);
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  if (!target.starts_with('/')) {
    return Error(ErrorCode::kInvalidRequest, "the request target must be a path that begins with '/'");
  }
  target = target.substr(0, target.find('#'));
  const size_t mark = target.find('?');
  if (mark == std::string_view::npos) return Target{std::string(target), ""};
  return Target{std::string(target.substr(0, mark)), std::string(target.substr(mark + 1))};
}

}  // namespace epic
