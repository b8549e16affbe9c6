// The real files: opened with O_DIRECT where the disk's file system has it, else through the page cache.
// Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_EXTENTS_POSIX_FILE_SYSTEM_H_
#define EPIC_SERVICES_KV_STORE_EXTENTS_POSIX_FILE_SYSTEM_H_

#include <memory>

#include "services/kv_store/extents/file_system.h"

namespace epic::kv_store {

std::unique_ptr<FileSystem> MakePosixFileSystem(std::unique_ptr<IoEngine> engine);

// The same on io_uring, or on threads where this kernel does not let us have that; io_name() says which.
std::unique_ptr<FileSystem> MakePosixFileSystem();

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_EXTENTS_POSIX_FILE_SYSTEM_H_
