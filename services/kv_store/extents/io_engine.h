// How pieces of files are read and written: many at a time, each by the kernel without copies. Two engines:
// io_uring (uring_engine.h) and threads that call pread and pwrite (thread_engine.h), chosen at run time
// (posix_file_system.h). Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_EXTENTS_IO_ENGINE_H_
#define EPIC_SERVICES_KV_STORE_EXTENTS_IO_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/base/bytes.h"

namespace epic::kv_store {

enum class IoKind : uint8_t { kRead, kWrite };

// Called for each piece that ended, in any order, on the thread of the caller: its index and the bytes that
// were moved, which may be fewer than asked. False: nothing more is begun.
using IoDone = std::function<bool(size_t piece, absl::StatusOr<uint64_t> bytes)>;

struct EnginePiece {
  int fd = -1;
  uint64_t offset = 0;
  MutableByteSpan bytes;  // only read by writes
};

// Pieces in flight for one caller: enough for a disk to be busy, few enough to be cancelled soon.
inline constexpr size_t kIoWindow = 16;

class IoEngine {
 public:
  virtual ~IoEngine() = default;
  virtual std::string_view name() const = 0;
  // Begins the pieces in order, at most kIoWindow at a time; returns when none is in flight. Pieces that were
  // not begun because `done` said so are not told of.
  virtual void Run(IoKind kind, std::span<const EnginePiece> pieces, const IoDone& done) = 0;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_EXTENTS_IO_ENGINE_H_
