// Which host this is, as long as it is up: whether a unix socket that somebody names may be one of ours.
#ifndef EPIC_COMMON_STORAGE_SHM_BOOT_ID_H_
#define EPIC_COMMON_STORAGE_SHM_BOOT_ID_H_

#include <string>

namespace epic::shm {

// The same for all processes of one kernel; empty where the kernel does not say it.
std::string BootId();

}  // namespace epic::shm

#endif  // EPIC_COMMON_STORAGE_SHM_BOOT_ID_H_
