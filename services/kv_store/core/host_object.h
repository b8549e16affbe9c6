// A verified KV object in the arena of the host tier. Immutable, thread-safe; whoever holds its shared_ptr,
// or its region (arena.h), holds a lease. A layer is in memory what it is on disk (slab_store.h: its stride,
// in whole pages); layers lie in one extent or a few. An object that is still read from disk has those layers
// that its LoadProgress says. Not here: how the bytes get there (store_objects.cc, object_io.h).
#ifndef EPIC_SERVICES_KV_STORE_CORE_HOST_OBJECT_H_
#define EPIC_SERVICES_KV_STORE_CORE_HOST_OBJECT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/storage/kv_object.h"
#include "common/storage/object_codec.h"
#include "services/kv_store/core/arena.h"
#include "services/kv_store/core/load_progress.h"
#include "services/kv_store/core/slab_store.h"

namespace epic::kv_store {

// Where the slabs of an object are in a region that AllocateSlabs made for its layout. Layers are pieces of
// the region where each fills whole pages; else the object is one piece.
inline bool IsLayered(const SlabShape& shape) { return shape.stride % ArenaAllocator::kGranuleBytes == 0; }

inline uint64_t SlabOffsetIn(const ArenaRegion& region, const KvLayout& layout, uint32_t layer) {
  EPIC_CHECK(layer < layout.layers);
  const SlabShape shape = SlabShapeOf(layout);
  return IsLayered(shape) ? region.piece_offset(layer) : region.piece_offset(0) + layer * shape.stride;
}
inline MutableByteSpan SlabIn(ArenaRegion* region, const KvLayout& layout, uint32_t layer) {
  EPIC_CHECK(layer < layout.layers);
  const SlabShape shape = SlabShapeOf(layout);
  const MutableByteSpan piece = region->piece(IsLayered(shape) ? layer : 0);
  return piece.subspan(IsLayered(shape) ? 0 : layer * shape.stride, layout.LayerBytes());
}
// Memory for the slabs of `layout`; nullptr when the arena has no room for them now.
inline std::unique_ptr<ArenaRegion> AllocateSlabs(Arena* arena, const KvLayout& layout) {
  const SlabShape shape = SlabShapeOf(layout);
  return IsLayered(shape) ? arena->Allocate(shape.stride, shape.layers) : arena->Allocate(shape.ImageBytes());
}
// What they take of the arena.
inline uint64_t SlabFootprint(const KvLayout& layout) {
  return ArenaAllocator::Footprint(SlabShapeOf(layout).ImageBytes());
}

// Layers that lie one behind the other as in an image (slab_store.h), from the first of them on.
struct SlabRun {
  LayerRange layers;
  MutableByteSpan bytes;
};
inline std::vector<SlabRun> SlabRunsIn(ArenaRegion* region, const KvLayout& layout) {
  std::vector<SlabRun> runs;
  uint32_t layer = 0;
  for (size_t extent = 0; extent < region->extents().size(); ++extent) {
    const uint64_t layers = region->extents()[extent].pieces;
    const uint32_t end =
        IsLayered(SlabShapeOf(layout)) ? layer + static_cast<uint32_t>(layers) : layout.layers;
    runs.push_back({.layers = {layer, end}, .bytes = region->extent(extent)});
    layer = end;
  }
  return runs;
}

class HostObject final : public KvObject {
 public:
  // REQUIRES: AllocateSlabs made the region for head.layout, and it holds the slabs that `head` describes.
  // With `progress` it will hold them, layer by layer.
  HostObject(ObjectHead head, std::unique_ptr<ArenaRegion> region,
             std::shared_ptr<const LoadProgress> progress = nullptr)
      : head_(std::move(head)), region_(std::move(region)), progress_(std::move(progress)) {}

  const KvLayout& layout() const override { return head_.layout; }
  const Digest& build() const override { return head_.build; }
  ByteSpan Layer(uint32_t layer) const override {
    EPIC_CHECK(layer < ReadyLayers());
    return SlabIn(region_.get(), head_.layout, layer);
  }
  uint32_t ReadyLayers() const override {
    return progress_ == nullptr ? head_.layout.layers : progress_->ready();
  }
  absl::Status WaitLayer(uint32_t layer) const override {
    return progress_ == nullptr ? absl::OkStatus() : progress_->Wait(layer);
  }
  void OnLayer(uint32_t layer, std::function<void()> ready) const override {
    progress_ == nullptr ? ready() : progress_->When(layer, std::move(ready));
  }
  // Whether its load ended before all layers were there. One that was late may have become whole all the
  // same.
  bool IsLost() const {
    return progress_ != nullptr && progress_->HasFailed() && progress_->ready() < head_.layout.layers;
  }

  const ObjectHead& head() const { return head_; }
  const ArenaRegion& region() const { return *region_; }

 private:
  const ObjectHead head_;
  const std::unique_ptr<ArenaRegion> region_;
  const std::shared_ptr<const LoadProgress> progress_;  // nullptr: it was whole from the start
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_HOST_OBJECT_H_
