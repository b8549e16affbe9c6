// The memory budget of the host tier and the buffers that count against it. Buffers are mapped pages of their
// own (page-aligned, outside malloc's arenas, given back to the system when freed). HostMemory is thread-safe
// and lives until its last buffer is gone, so that a leased object may outlive the store.
#ifndef EPIC_SERVICES_KV_STORE_CORE_HOST_MEMORY_H_
#define EPIC_SERVICES_KV_STORE_CORE_HOST_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "common/base/bytes.h"

namespace epic::kv_store {

class HostBuffer;

class HostMemory : public std::enable_shared_from_this<HostMemory> {
 public:
  static std::shared_ptr<HostMemory> Create(uint64_t capacity_bytes);
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  // Zeroed memory of at least `bytes`; nullptr when it does not fit the budget now or the system has none.
  // REQUIRES: bytes > 0.
  std::unique_ptr<HostBuffer> Allocate(uint64_t bytes);
  uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  uint64_t capacity_bytes() const { return capacity_bytes_; }
  uint64_t buffers() const { return buffers_.load(std::memory_order_relaxed); }
  // What a buffer of `bytes` takes from the budget.
  static uint64_t Footprint(uint64_t bytes);

 private:
  friend class HostBuffer;
  explicit HostMemory(uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  const uint64_t capacity_bytes_;
  std::atomic<uint64_t> used_bytes_{0};
  std::atomic<uint64_t> buffers_{0};
};

class HostBuffer {
 public:
  ~HostBuffer();
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  MutableByteSpan bytes() { return bytes_; }
  ByteSpan bytes() const { return bytes_; }

 private:
  friend class HostMemory;
  HostBuffer(std::shared_ptr<HostMemory> memory, MutableByteSpan bytes)
      : memory_(std::move(memory)), bytes_(bytes) {}

  const std::shared_ptr<HostMemory> memory_;
  const MutableByteSpan bytes_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_HOST_MEMORY_H_
