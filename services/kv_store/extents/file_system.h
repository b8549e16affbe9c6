// The files under the extents, as an interface: the real ones (posix_file_system.h) and ones in memory that
// fail and crash on purpose (services/kv_store/testing). Everything is in multiples of 4096 bytes, memory
// too. Thread-safe; two calls about the same bytes at the same time are the caller's mistake.
//
// Crash rules. Bytes, sizes and holes outlive a crash once a Sync() that began after them returned OK; until
// then any part of them may. A new file outlives it from the next SyncFolder() on.
#ifndef EPIC_SERVICES_KV_STORE_EXTENTS_FILE_SYSTEM_H_
#define EPIC_SERVICES_KV_STORE_EXTENTS_FILE_SYSTEM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "services/kv_store/extents/io_engine.h"

namespace epic::kv_store {

class File {
 public:
  virtual ~File() = default;
  virtual absl::StatusOr<uint64_t> Size() = 0;
  // Bytes that the file takes of the disk.
  virtual absl::StatusOr<uint64_t> AllocatedBytes() = 0;
  // Takes space for the bytes, and makes the file as long as they reach. New bytes are zero.
  virtual absl::Status Allocate(uint64_t offset, uint64_t bytes) = 0;
  // Gives the space back: the bytes are zero from then on.
  virtual absl::Status Punch(uint64_t offset, uint64_t bytes) = 0;
  virtual absl::Status Sync() = 0;
};

struct IoPiece {
  File* file = nullptr;  // of the file system that transfers it
  uint64_t offset = 0;
  MutableByteSpan bytes;  // only read by writes
};

class FileSystem {
 public:
  // Errors of every call: those of FromErrno (common/status/errno_status.h).
  virtual ~FileSystem() = default;

  // How it does its I/O, for people.
  virtual std::string_view io_name() const = 0;
  // Makes the folder where there is none, its parents too.
  virtual absl::Status MakeFolder(const std::string& folder) = 0;
  // Names of the files in a folder, in any order.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& folder) = 0;
  // Opens a file, and makes it where there is none.
  virtual absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path) = 0;
  virtual absl::Status SyncFolder(const std::string& folder) = 0;
  virtual uint64_t FreeBytes(const std::string& folder) = 0;
  // IoEngine::Run for pieces of these files.
  virtual void Transfer(IoKind kind, std::span<const IoPiece> pieces, const IoDone& done) = 0;
};

// Moves every piece whole: goes on where one was short. `ended` is called for each piece that is whole, in
// any order; a status that is not OK ends the transfer, which returns it. Errors: DataLoss where a file ends
// within a piece that is read, else those of the file system.
absl::Status TransferWhole(FileSystem* files, IoKind kind, std::vector<IoPiece> pieces,
                           const std::function<absl::Status(size_t piece)>& ended);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_EXTENTS_FILE_SYSTEM_H_
