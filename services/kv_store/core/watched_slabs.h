// A SlabStore that tells a DiskWatch what its disk refuses and how long it takes: wraps another and passes
// every call on. What a reader's check refuses counts as damaged; slabs that are gone do not count, nor do
// reads that were cancelled. Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_CORE_WATCHED_SLABS_H_
#define EPIC_SERVICES_KV_STORE_CORE_WATCHED_SLABS_H_

#include <memory>
#include <utility>
#include <vector>

#include "services/kv_store/core/disk_watch.h"
#include "services/kv_store/core/slab_store.h"

namespace epic::kv_store {

class WatchedSlabs final : public SlabStore {
 public:
  // `watch` outlives the slabs.
  WatchedSlabs(std::unique_ptr<SlabStore> inner, DiskWatch* watch)
      : inner_(std::move(inner)), watch_(watch) {}

  absl::StatusOr<std::vector<uint64_t>> Load(const std::vector<LiveSlabs>& live, bool entries_lost) override {
    return inner_->Load(live, entries_lost);
  }
  absl::StatusOr<SlabExtents> Write(uint64_t number, const SlabShape& shape,
                                    std::span<const ByteSpan> slabs) override {
    const DiskWatch::Call call(watch_, DiskWatch::Kind::kSync, shape.ImageBytes());
    auto extents = inner_->Write(number, shape, slabs);
    watch_->NoteWrite(extents.status(), /*proves_room=*/true, DiskWatch::Space::kSlabs);
    return extents;
  }
  bool Holds(uint64_t number) override { return inner_->Holds(number); }
  absl::Status Read(uint64_t number, const SlabShape& shape, LayerRange layers, MutableByteSpan out,
                    const LayerReady& ready) override {
    const DiskWatch::Call call(watch_, DiskWatch::Kind::kRead, shape.ReadBytes(layers));
    absl::Status status = inner_->Read(number, shape, layers, out, ready);
    if (!absl::IsNotFound(status) && !absl::IsCancelled(status)) watch_->Note(status);
    return status;
  }
  void AddRemoval(uint64_t number, WriteBatch* batch) override { inner_->AddRemoval(number, batch); }
  void Free(uint64_t number) override { inner_->Free(number); }
  absl::Status Reclaim() override {
    absl::Status status = inner_->Reclaim();
    watch_->Note(status);
    return status;
  }
  void AwaitUses() override { inner_->AwaitUses(); }
  uint64_t PhysicalBytes() override { return inner_->PhysicalBytes(); }
  uint64_t ReusableBytes() override { return inner_->ReusableBytes(); }

 private:
  const std::unique_ptr<SlabStore> inner_;
  DiskWatch* const watch_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_WATCHED_SLABS_H_
