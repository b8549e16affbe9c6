// SlabStore in the rows of a TableStore: each slab in pieces of 64 MiB under {number, layer, piece}; on
// RocksDB these are blob files, one or more per object. Rows are removed together with their entry, so that
// the index never needs to wait for them. Also lays small objects into the batch of their entry. Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_CORE_ROW_SLAB_STORE_H_
#define EPIC_SERVICES_KV_STORE_CORE_ROW_SLAB_STORE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "services/kv_store/core/slab_store.h"

namespace epic::kv_store {

class RowSlabStore final : public SlabStore {
 public:
  // `tables` outlive the store.
  explicit RowSlabStore(TableStore* tables) : tables_(tables) {}

  absl::StatusOr<std::vector<uint64_t>> Load(const std::vector<LiveSlabs>& live, bool entries_lost) override;
  absl::StatusOr<SlabExtents> Write(uint64_t number, const SlabShape& shape,
                                    std::span<const ByteSpan> slabs) override;
  // Adds the slabs to the batch of their entry instead.
  void AddSlabs(uint64_t number, const SlabShape& shape, std::span<const ByteSpan> slabs, WriteBatch* batch);
  bool Holds(uint64_t number) override;
  absl::Status Read(uint64_t number, const SlabShape& shape, LayerRange layers, MutableByteSpan out,
                    const LayerReady& ready) override;
  void AddRemoval(uint64_t number, WriteBatch* batch) override;
  void Free(uint64_t /*number*/) override {}  // the batch did it
  absl::Status Reclaim() override { return tables_->Reclaim(); }
  void AwaitUses() override {}                     // reclaiming the tables does
  uint64_t PhysicalBytes() override { return 0; }  // the tables count them
  uint64_t ReusableBytes() override { return 0; }

 private:
  TableStore* const tables_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_ROW_SLAB_STORE_H_
