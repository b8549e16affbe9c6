#include "services/kv_store/core/host_memory.h"

#include <sys/mman.h>

#include "common/base/check.h"

namespace epic::kv_store {
namespace {
constexpr uint64_t kPageBytes = 4096;
}  // namespace

std::shared_ptr<HostMemory> HostMemory::Create(uint64_t capacity_bytes) {
  return std::shared_ptr<HostMemory>(new HostMemory(capacity_bytes));
}

uint64_t HostMemory::Footprint(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

std::unique_ptr<HostBuffer> HostMemory::Allocate(uint64_t bytes) {
  EPIC_CHECK(bytes > 0);
  if (bytes > capacity_bytes_) return nullptr;
  const uint64_t footprint = Footprint(bytes);
  uint64_t used = used_bytes_.load(std::memory_order_relaxed);
  do {
    if (footprint > capacity_bytes_ || used > capacity_bytes_ - footprint) return nullptr;
  } while (!used_bytes_.compare_exchange_weak(used, used + footprint));
  void* pages = mmap(nullptr, footprint, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    used_bytes_ -= footprint;
    return nullptr;
  }
  ++buffers_;
  // Advice only: big pages save page faults where the system has them.
  madvise(pages, footprint, MADV_HUGEPAGE);
  return std::unique_ptr<HostBuffer>(
      new HostBuffer(shared_from_this(), MutableByteSpan(static_cast<std::byte*>(pages), bytes)));
}

HostBuffer::~HostBuffer() {
  const uint64_t footprint = HostMemory::Footprint(bytes_.size());
  EPIC_CHECK(munmap(bytes_.data(), footprint) == 0);
  memory_->used_bytes_ -= footprint;
  --memory_->buffers_;
}

}  // namespace epic::kv_store
