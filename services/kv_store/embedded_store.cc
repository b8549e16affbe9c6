#include "services/kv_store/embedded_store.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/status/status_macros.h"
#include "services/kv_store/extents/extent_slab_store.h"
#include "services/kv_store/extents/posix_file_system.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"

namespace epic::kv_store {

namespace {

// The share of the disk that is left to tables, in hundredths; the same as that of the store's own limit.
constexpr uint64_t kReservePercent = 10;
constexpr uint64_t kMinGrowBytes = uint64_t{1} << 20;
constexpr uint64_t kFiles = 64;
constexpr uint64_t kMaxFileBytes = uint64_t{4} << 40;

SlabStoreMaker ExtentsIn(const std::string& folder, uint64_t disk_bytes_max) {
  ExtentOptions options{.folder = folder, .max_bytes = disk_bytes_max / 100 * (100 - kReservePercent)};
  // A small share of the disk is taken in small steps, a large one in not too many files.
  options.file_bytes = std::clamp(options.max_bytes / kFiles, options.file_bytes, kMaxFileBytes);
  options.grow_bytes = std::clamp(options.max_bytes / 64, kMinGrowBytes, options.grow_bytes);
  return [options](std::function<absl::Status()> sync_index) -> absl::StatusOr<std::unique_ptr<SlabStore>> {
    return ExtentSlabStore::Open(MakePosixFileSystem(), options, std::move(sync_index));
  };
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvStore>> EmbeddedStore::Open(const EmbeddedStoreOptions& options) {
  EPIC_ASSIGN_OR_RETURN(std::unique_ptr<KvStore> store, OpenCore(options));
  return store;
}

absl::StatusOr<std::unique_ptr<StoreCore>> EmbeddedStore::OpenCore(const EmbeddedStoreOptions& options) {
  EPIC_ASSIGN_OR_RETURN(std::unique_ptr<TableStore> tables, OpenRocksDbTables({.dir = options.dir}));
  StoreOptions store_options = options.store;
  store_options.scrubber.bytes_per_s = options.scrub_bytes_per_s;
  store_options.warm_up.bytes_per_s = options.warm_up_bytes_per_s;
  const std::string folder = options.dir + "/slabs";
  std::error_code error;
  store_options.write_to_slabs = options.slabs == SlabBackEnd::kExtents && options.store.disk_bytes_max > 0;
  if (store_options.write_to_slabs || std::filesystem::exists(folder, error)) {
    store_options.make_slabs = ExtentsIn(folder, options.store.disk_bytes_max);
  }
  return StoreCore::Open(std::move(tables), store_options);
}

}  // namespace epic::kv_store
