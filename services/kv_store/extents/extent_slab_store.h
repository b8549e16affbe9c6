// SlabStore in extents of preallocated files: direct I/O straight into the caller's memory, many pieces in
// flight. Free space is what the index does not name: known from Load() on, kept in a FreeMap.
//
// Order. A write takes free pages, writes them, syncs the files; then the index may name them. A freed image
// waits until nobody reads it and until its removal from the index cannot be undone: `sync_index` is called
// when its space is wanted. Freed bytes stay on disk until they are overwritten or Reclaim() punches holes
// there. Thread-safe; no lock is held during I/O. Not here: checksums, which object goes.
#ifndef EPIC_SERVICES_KV_STORE_EXTENTS_EXTENT_SLAB_STORE_H_
#define EPIC_SERVICES_KV_STORE_EXTENTS_EXTENT_SLAB_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "services/kv_store/core/slab_store.h"
#include "services/kv_store/core/uses.h"
#include "services/kv_store/extents/extent_files.h"
#include "services/kv_store/extents/file_system.h"
#include "services/kv_store/extents/free_map.h"

namespace epic::kv_store {

struct ExtentOptions {
  std::string folder;
  uint64_t max_bytes = uint64_t{16} << 30;     // of images
  uint64_t file_bytes = uint64_t{1} << 30;     // a file grows up to this
  uint64_t grow_bytes = uint64_t{64} << 20;    // in steps of this
  uint64_t piece_bytes = uint64_t{512} << 10;  // of one transfer
};

class ExtentSlabStore final : public SlabStore {
 public:
  // `sync_index` makes every index change that was written before outlive a crash; it may block, and may be
  // called from any call but Load(). Errors: those of ExtentFiles::Open.
  static absl::StatusOr<std::unique_ptr<ExtentSlabStore>> Open(std::shared_ptr<FileSystem> files,
                                                               const ExtentOptions& options,
                                                               std::function<absl::Status()> sync_index);

  absl::StatusOr<std::vector<uint64_t>> Load(const std::vector<LiveSlabs>& live, bool entries_lost) override;
  absl::StatusOr<SlabExtents> Write(uint64_t number, const SlabShape& shape,
                                    std::span<const ByteSpan> slabs) override;
  bool Holds(uint64_t number) override;
  absl::Status Read(uint64_t number, const SlabShape& shape, LayerRange layers, MutableByteSpan out,
                    const LayerReady& ready) override;
  void AddRemoval(uint64_t /*number*/, WriteBatch* /*batch*/) override {}
  void Free(uint64_t number) override;
  absl::Status Reclaim() override;
  void AwaitUses() override { uses_.AwaitOlder(); }
  uint64_t PhysicalBytes() override { return space_.PhysicalBytes(); }
  uint64_t ReusableBytes() override;

  // Longest run of free pages, and all free pages, in bytes.
  struct Fragmentation {
    uint64_t largest_bytes = 0;
    uint64_t free_bytes = 0;
  };
  Fragmentation fragmentation();

 private:
  struct Image {
    SlabExtents extents;
    uint32_t readers = 0;
    bool freed = false;
  };

  ExtentSlabStore(std::shared_ptr<FileSystem> files, const ExtentOptions& options,
                  std::function<absl::Status()> sync_index);
  static PageRun RunOf(const SlabExtent& extent);
  static SlabExtent ExtentOf(const PageRun& run);

  bool TakeLive(const LiveSlabs& slabs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<SlabExtents> TakeSpace(uint64_t pages) ABSL_LOCKS_EXCLUDED(mu_);
  void GiveSpace(const SlabExtents& extents) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Grow(uint64_t wanted_pages) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status ReleaseFreed() ABSL_LOCKS_EXCLUDED(mu_);
  void LetGo(uint64_t number) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status WriteImage(const SlabExtents& extents, const SlabShape& shape,
                          std::span<const ByteSpan> slabs);
  absl::Status SyncFiles(const SlabExtents& extents);
  absl::Status PunchRun(const PageRun& run, SlabExtents* punched) ABSL_LOCKS_EXCLUDED(mu_);
  // Pieces of the image's bytes [begin, end), which go to or from `bytes`.
  std::vector<IoPiece> Pieces(const SlabExtents& extents, uint64_t begin, MutableByteSpan bytes) const;

  const ExtentOptions options_;
  const std::function<absl::Status()> sync_index_;
  ExtentFiles space_;
  Uses uses_;  // reads, writes and runs of Reclaim()

  Mutex mu_;
  CondVar grown_;
  bool growing_ ABSL_GUARDED_BY(mu_) = false;
  FreeMap free_ ABSL_GUARDED_BY(mu_);
  // Of these, pages that take of the disk, and may hold bytes of freed images; the others are holes.
  FreeMap dirty_ ABSL_GUARDED_BY(mu_);
  // Holes of former lives, somewhere among the dirty pages.
  uint64_t unknown_holes_ ABSL_GUARDED_BY(mu_) = 0;
  // Freed, but a crash could still undo that.
  std::vector<SlabExtents> freed_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, Image> images_ ABSL_GUARDED_BY(mu_);
  uint64_t used_pages_ ABSL_GUARDED_BY(mu_) = 0;   // of images, freed ones included
  uint64_t freed_pages_ ABSL_GUARDED_BY(mu_) = 0;  // of freed_
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_EXTENTS_EXTENT_SLAB_STORE_H_
