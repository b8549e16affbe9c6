// What is wrong with the disk of a store, in words for /health. Pure.
#ifndef EPIC_COMMON_STORAGE_DISK_CAUSES_H_
#define EPIC_COMMON_STORAGE_DISK_CAUSES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/storage/kv_store.h"

namespace epic {

// Empty: nothing, or not lately. `now_steady_ns`: of the store's clock.
std::vector<std::string> DiskCauses(const StoreDisk& disk, int64_t now_steady_ns);

}  // namespace epic

#endif  // EPIC_COMMON_STORAGE_DISK_CAUSES_H_
