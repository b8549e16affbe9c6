// Buffers of fetches that lie in device memory. A device implements DeviceMemory over its own runtime; this
// folder calls no CUDA.
//
// Two ways. Passed through: UCX writes to the device itself, and the device sums what came, since no byte may
// be called good unchecked; both are needed. Staged: a piece arrives in pinned host memory of a StagingPool,
// is checked there, and is copied to the device; the slot is free when the copy is over. Of one loop, but for
// the callbacks of DeviceMemory.
#ifndef EPIC_COMMON_TRANSPORT_UCX_STAGING_H_
#define EPIC_COMMON_TRANSPORT_UCX_STAGING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/base/check.h"

namespace epic::transport {

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // Pinned host memory, for the life of the pool. Errors: ResourceExhausted.
  virtual absl::StatusOr<MutableByteSpan> AllocatePinned(uint64_t bytes) = 0;
  virtual void FreePinned(MutableByteSpan memory) = 0;
  // Begins to copy; `done` is called once, on any thread, when nothing touches either any more.
  virtual void CopyIn(ByteSpan host, MutableByteSpan device, std::function<void(absl::Status)> done) = 0;
  // Whether Sum works.
  virtual bool can_sum() const = 0;
  // CRC32C of parts of `device`, one behind the other. `done` as that of CopyIn. REQUIRES: can_sum().
  virtual void Sum(ByteSpan device, std::vector<uint64_t> part_bytes,
                   std::function<void(absl::StatusOr<std::vector<uint32_t>>)> done) = 0;
};

// A bounded number of pinned buffers of one piece each: as many as pieces may be under way, so that whoever
// may have a piece may have a slot.
class StagingPool {
 public:
  // `device` outlives the pool. Slots are allocated when they are first needed.
  StagingPool(DeviceMemory* device, uint64_t slot_bytes, uint32_t slots)
      : device_(device), slot_bytes_(slot_bytes), max_slots_(slots) {}
  // REQUIRES: every slot was given back.
  ~StagingPool() {
    EPIC_CHECK(free_.size() == made_);
    for (const MutableByteSpan slot : free_) device_->FreePinned(slot);
  }
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  // Empty when all are taken, or the device has no more memory for them.
  MutableByteSpan Take() {
    if (free_.empty() && made_ < max_slots_) {
      if (const auto slot = device_->AllocatePinned(slot_bytes_); slot.ok()) {
        made_ += 1;
        return *slot;
      }
    }
    if (free_.empty()) return {};
    const MutableByteSpan slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void Give(MutableByteSpan slot) { free_.push_back(slot); }
  DeviceMemory* device() const { return device_; }

 private:
  DeviceMemory* const device_;
  const uint64_t slot_bytes_;
  const uint32_t max_slots_;
  uint32_t made_ = 0;
  std::vector<MutableByteSpan> free_;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_STAGING_H_
