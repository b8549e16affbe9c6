// A whole store, tables in RocksDB and slabs in extents or blob files, on one disk in memory whose power can
// be cut: what was not synced is lost in both at the same instant. Tests only; one thread, beside the
// store's own.
#ifndef EPIC_SERVICES_KV_STORE_FAULTS_TESTING_WHOLE_STORE_H_
#define EPIC_SERVICES_KV_STORE_FAULTS_TESTING_WHOLE_STORE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/base/random.h"
#include "common/testing/paths.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/embedded_store.h"
#include "services/kv_store/extents/extent_slab_store.h"
#include "services/kv_store/faults/testing/faulty_rocks_file_system.h"
#include "services/kv_store/testing/faulty_file_system.h"
#include "services/kv_store/testing/power.h"

namespace epic::kv_store {

// A rule of writing to disk that is broken on purpose, to see that a test finds that.
enum class BrokenRule : uint8_t {
  kNone,
  kNoSyncOfRecords,    // changes of records are answered before they are synced
  kNoFlushOfRows,      // slabs in rows are not flushed before their entry
  kNoSyncOfExtents,    // slabs in extents are not synced before their entry
  kNoSyncBeforeReuse,  // pages are used again before the removal of their entry is synced
  kNoRemovalOfSlabs,   // slabs of what goes stay in the tables
};

struct WholeStoreOptions {
  SlabBackEnd slabs = SlabBackEnd::kExtents;
  StoreOptions store;  // make_slabs is set here
  BrokenRule broken = BrokenRule::kNone;
};

class WholeStore {
 public:
  WholeStore(uint64_t seed, WholeStoreOptions options);
  ~WholeStore();
  WholeStore(const WholeStore&) = delete;
  WholeStore& operator=(const WholeStore&) = delete;

  // Errors: those of StoreCore::Open; then nothing is open.
  absl::Status Open();
  // An orderly end.
  void Close();
  // Cuts the power, closes what is open, loses what was not synced, and brings the power back.
  void Crash(Rng* rng);
  // Says what the disk or the memory keeps for nobody; empty: nothing. Frees all that may be freed first.
  // REQUIRES: open, and nobody has a writer or an object.
  std::string Leaks();

  StoreCore* core() { return core_.get(); }
  Power* power() { return power_.get(); }
  FaultyRocksFileSystem* rocks() { return rocks_.get(); }
  FaultyFileSystem* extents() { return extents_.get(); }
  TableStore* tables() { return tables_; }

 private:
  SlabStoreMaker MakeSlabs();
  std::string LeaksOfTables(uint64_t* extent_pages);
  std::string LeaksOfExtents(uint64_t extent_pages);

  const WholeStoreOptions options_;
  const epic::testing::TempDir dir_;  // for the lock of the tables only
  const std::shared_ptr<Power> power_;
  const std::shared_ptr<FaultyRocksFileSystem> rocks_;
  const std::shared_ptr<FaultyFileSystem> extents_;
  const std::unique_ptr<rocksdb::Env> env_;
  TableStore* tables_ = nullptr;      // of core_
  ExtentSlabStore* slabs_ = nullptr;  // of core_; nullptr: slabs are rows
  std::unique_ptr<StoreCore> core_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_FAULTS_TESTING_WHOLE_STORE_H_
