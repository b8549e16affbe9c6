// The extent files of a folder: extents-000000.dat and so on, each with a header page, growing in steps.
// Opens, makes and grows them; knows nothing of what is free. Thread-safe but for Open() and Grow(), which
// one thread calls at a time.
#ifndef EPIC_SERVICES_KV_STORE_EXTENTS_EXTENT_FILES_H_
#define EPIC_SERVICES_KV_STORE_EXTENTS_EXTENT_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "services/kv_store/core/slab_store.h"
#include "services/kv_store/extents/file_system.h"

namespace epic::kv_store {

class ExtentFiles {
 public:
  // REQUIRES: 2 <= file_pages <= 2^31, 1 <= grow_pages.
  ExtentFiles(std::shared_ptr<FileSystem> files, std::string folder, uint32_t file_pages,
              uint64_t grow_pages);

  // Makes the folder, opens what is there. A damaged header is written anew: the object index and its
  // checksums say what is in a file. Errors: Unimplemented when a file is of a newer version.
  absl::Status Open();
  // Pages for slabs that the files have now.
  std::vector<SlabExtent> Space() const ABSL_LOCKS_EXCLUDED(mu_);
  // Takes more of the disk, synced: at least one page of the `wanted`, rather a step's worth, at most
  // `max_pages`. Returns where. REQUIRES: 0 < wanted, 0 < max_pages.
  absl::StatusOr<SlabExtent> Grow(uint64_t wanted_pages, uint64_t max_pages) ABSL_LOCKS_EXCLUDED(mu_);
  // REQUIRES: a file that Space() or Grow() named.
  File* Get(uint32_t file) const ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t PhysicalBytes() const ABSL_LOCKS_EXCLUDED(mu_);
  FileSystem* files() const { return files_.get(); }

 private:
  struct OpenFile {
    std::unique_ptr<File> file;
    uint32_t max_pages = 0;
    uint64_t pages = 0;  // long it is, the header included
  };
  std::string PathOf(uint32_t file) const;
  absl::StatusOr<OpenFile> OpenOne(uint32_t file);
  // False: damaged, or none yet.
  absl::StatusOr<bool> HasHeader(File* file, uint32_t number, uint32_t* max_pages);
  absl::Status WriteHeader(File* file, uint32_t number);

  const std::shared_ptr<FileSystem> files_;
  const std::string folder_;
  const uint32_t file_pages_;
  const uint64_t grow_pages_;

  mutable Mutex mu_;
  std::vector<OpenFile> open_ ABSL_GUARDED_BY(mu_);  // by number; only grows
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_EXTENTS_EXTENT_FILES_H_
