// Which EPIC this is. Constants of the build.
#ifndef EPIC_COMMON_BASE_VERSION_H_
#define EPIC_COMMON_BASE_VERSION_H_

#include <string_view>

namespace epic {

extern const std::string_view kVersion;  // of the project, such as 0.1.0
extern const std::string_view kCommit;   // abbreviated, "unknown" outside a checkout

}  // namespace epic

#endif  // EPIC_COMMON_BASE_VERSION_H_
