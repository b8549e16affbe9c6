// Where the slabs of objects lie on a disk: the interface under StoreCore. Two back-ends: rows of the tables
// (row_slab_store.h: RocksDB blob files) and extents of preallocated files (services/kv_store/extents); one
// in memory that can crash (memory_slab_store.h) for tests. All calls are thread-safe and may block.
//
// An object's slabs are one image: its layers in order, `stride` bytes apart. Objects go by numbers that are
// never used twice. Who owns a number is said by the index, the tables of the store's owner: Write() makes
// slabs durable, an index entry with what Write() returned makes them an object, and Load() hands all entries
// back at open. What no entry names is free space. Not here: checksums (object_io.h), which object is where.
#ifndef EPIC_SERVICES_KV_STORE_CORE_SLAB_STORE_H_
#define EPIC_SERVICES_KV_STORE_CORE_SLAB_STORE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/storage/object_codec.h"
#include "services/kv_store/core/table_store.h"

namespace epic::kv_store {

// Unit of places on disk, and alignment of the memory that is read into.
inline constexpr uint64_t kSlabPageBytes = 4096;

constexpr uint64_t RoundUpToPage(uint64_t bytes) {
  return (bytes + kSlabPageBytes - 1) / kSlabPageBytes * kSlabPageBytes;
}

// Layers [begin, end). REQUIRES wherever one is handed in: begin < end <= layers of the object.
struct LayerRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

// Shape of an image: `layers` slabs of layer_bytes, the first byte of each at a multiple of stride.
struct SlabShape {
  uint32_t layers = 0;
  uint64_t layer_bytes = 0;
  uint64_t stride = 0;  // >= layer_bytes; what lies between is zero on disk

  LayerRange All() const { return {0, layers}; }
  uint64_t ImageBytes() const { return layers * stride; }
  // The page that a layer begins in, and the end of the page that it ends in; in bytes of the image.
  uint64_t PageBegin(uint32_t layer) const { return layer * stride / kSlabPageBytes * kSlabPageBytes; }
  uint64_t PageEnd(uint32_t layer) const { return RoundUpToPage(layer * stride + layer_bytes); }
  // Memory that reading `range` needs.
  uint64_t ReadBytes(LayerRange range) const { return PageEnd(range.end - 1) - PageBegin(range.begin); }
  bool operator==(const SlabShape&) const = default;
};

// The shape that objects of a layout have, in memory and on disk: part of the format of stored objects.
inline SlabShape SlabShapeOf(const KvLayout& layout) {
  const uint64_t alignment = SlabAlignment(layout);
  return {.layers = layout.layers,
          .layer_bytes = layout.LayerBytes(),
          .stride = (layout.LayerBytes() + alignment - 1) / alignment * alignment};
}

// A run of pages in one of a back-end's files.
struct SlabExtent {
  uint32_t file = 0;
  uint32_t page = 0;
  uint32_t pages = 0;
  bool operator==(const SlabExtent&) const = default;
};

// Where an image lies, in its order. Empty: in rows, found by number.
using SlabExtents = std::vector<SlabExtent>;

// At most this many runs for one object: entries of the index stay small.
inline constexpr size_t kMaxSlabExtents = 64;

struct LiveSlabs {
  uint64_t number = 0;
  SlabExtents extents;
};

// Called with each layer as its bytes arrive, in order, on the thread that reads. A status that is not OK
// ends the read, which returns it.
using LayerReady = std::function<absl::Status(uint32_t layer, ByteSpan slab)>;

class SlabStore {
 public:
  // Errors of every call: ResourceExhausted (kStorageFull) when the disk or the share of it is full, DataLoss
  // when what was read is short or damaged, Unavailable for any other failure of the disk.
  virtual ~SlabStore() = default;

  // Once, before any other call: what the index names; all else is free. `entries_lost`: entries were dropped
  // at this open, so that slabs without one may lie anywhere. Returns numbers that cannot be right (they
  // overlap others or lie outside of the files): the caller drops their entries.
  virtual absl::StatusOr<std::vector<uint64_t>> Load(const std::vector<LiveSlabs>& live,
                                                     bool entries_lost) = 0;

  // Writes an image and syncs it: when OK is returned the slabs outlive a crash. After an error the caller
  // removes the number as below. REQUIRES: slabs.size() == shape.layers, each of shape.layer_bytes; a number
  // never used before.
  virtual absl::StatusOr<SlabExtents> Write(uint64_t number, const SlabShape& shape,
                                            std::span<const ByteSpan> slabs) = 0;

  // Whether the number was written or loaded here and not freed. May read the disk.
  virtual bool Holds(uint64_t number) = 0;

  // Reads layers into `out`, which is the image from PageBegin(layers.begin) on; the rest of the pages that
  // they lie in is overwritten too. Several reads may run at a time. `shape` is the one that was written.
  // NotFound: no such slabs. REQUIRES: out begins at a multiple of 4096 and has ReadBytes(layers).
  virtual absl::Status Read(uint64_t number, const SlabShape& shape, LayerRange layers, MutableByteSpan out,
                            const LayerReady& ready) = 0;

  // Two steps free an object: its removal goes into the batch that takes its entry from the index; after that
  // batch was written (not necessarily synced) Free() lets the space be used again, once the removal can no
  // longer be undone by a crash and nobody reads there. Slabs whose entry was never written need Free() only,
  // and the batch may stay empty.
  virtual void AddRemoval(uint64_t number, WriteBatch* batch) = 0;
  virtual void Free(uint64_t number) = 0;

  // Makes freed bytes physically gone and gives their space back to the disk. May take long. Passes over
  // what is still read, and what is being written over.
  virtual absl::Status Reclaim() = 0;
  // Waits until the calls that run now have ended: what they kept from Reclaim() is within its reach then.
  virtual void AwaitUses() = 0;

  // Bytes that the back-end takes of the disk in files of its own.
  virtual uint64_t PhysicalBytes() = 0;
  // Bytes of these that new objects can have without taking more of the disk.
  virtual uint64_t ReusableBytes() = 0;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_SLAB_STORE_H_
