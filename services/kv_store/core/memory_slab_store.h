// SlabStore in memory: a MemorySlabDisk outlives the stores opened on it, as files do. What the index does
// not name at the next open, a crash's leftovers too, is gone then. Freed images vanish at once, so it does
// not need to wait for the index. For tests of what stands on a SlabStore. Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_CORE_MEMORY_SLAB_STORE_H_
#define EPIC_SERVICES_KV_STORE_CORE_MEMORY_SLAB_STORE_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "services/kv_store/core/slab_store.h"

namespace epic::kv_store {

class MemorySlabDisk {
 public:
  explicit MemorySlabDisk(uint64_t capacity_bytes = std::numeric_limits<uint64_t>::max())
      : capacity_bytes_(capacity_bytes) {}

 private:
  friend class MemorySlabStore;
  const uint64_t capacity_bytes_;
  Mutex mu_;
  std::map<uint32_t, std::string> images_ ABSL_GUARDED_BY(mu_);  // by the place where they begin
  uint64_t used_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint32_t next_page_ ABSL_GUARDED_BY(mu_) = 0;
};

class MemorySlabStore final : public SlabStore {
 public:
  explicit MemorySlabStore(std::shared_ptr<MemorySlabDisk> disk) : disk_(std::move(disk)) {}

  absl::StatusOr<std::vector<uint64_t>> Load(const std::vector<LiveSlabs>& live, bool entries_lost) override;
  absl::StatusOr<SlabExtents> Write(uint64_t number, const SlabShape& shape,
                                    std::span<const ByteSpan> slabs) override;
  bool Holds(uint64_t number) override;
  absl::Status Read(uint64_t number, const SlabShape& shape, LayerRange layers, MutableByteSpan out,
                    const LayerReady& ready) override;
  void AddRemoval(uint64_t /*number*/, WriteBatch* /*batch*/) override {}
  void Free(uint64_t number) override;
  absl::Status Reclaim() override { return absl::OkStatus(); }
  void AwaitUses() override {}
  uint64_t PhysicalBytes() override;
  uint64_t ReusableBytes() override { return 0; }

 private:
  const std::shared_ptr<MemorySlabDisk> disk_;
  Mutex mu_;
  std::map<uint64_t, SlabExtent> live_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_MEMORY_SLAB_STORE_H_
