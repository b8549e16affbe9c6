// Checks the objects of a store that is stopped: entries, where their slabs lie, and the slabs themselves.
// Used by store_check.h; one thread at a time.
#ifndef EPIC_SERVICES_KV_STORE_TOOLS_OBJECT_CHECK_H_
#define EPIC_SERVICES_KV_STORE_TOOLS_OBJECT_CHECK_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/rocksdb/stopped_tables.h"
#include "services/kv_store/tools/extent_folder.h"
#include "services/kv_store/tools/store_report.h"

namespace epic::kv_store {

class ObjectCheck {
 public:
  // `extents` may be null where they cannot be read: then no object in them is checked. `note` is called
  // after each object. All outlive this.
  ObjectCheck(StoppedTables* tables, const ExtentFolder* extents, bool deep, StoreReport* report,
              std::function<void()> note)
      : tables_(tables), extents_(extents), deep_(deep), report_(report), note_(std::move(note)) {}

  void Run();

 private:
  struct Claim {
    uint64_t begin = 0;  // page, counted over all files
    uint64_t pages = 0;
    uint64_t number = 0;
    auto operator<=>(const Claim&) const = default;
  };

  // False when the table cannot be read to its end.
  bool ScanEntries(const std::function<void(std::string_view row, std::string_view value)>& visit);
  void Collect(std::string_view value);
  void FindShared();
  void CheckEntry(std::string_view row, std::string_view value);
  absl::Status CheckIdentity(std::string_view row, const ObjectEntry& entry, FaultKind* kind);
  absl::Status CheckPlace(const ObjectEntry& entry, FaultKind* kind);
  absl::Status CheckSlabs(const ObjectEntry& entry);
  absl::Status CheckLayerInExtents(const ObjectEntry& entry, uint32_t layer);
  absl::Status CheckLayerInRows(const ObjectEntry& entry, uint32_t layer);
  void CheckSlabRows();

  StoppedTables* const tables_;
  const ExtentFolder* const extents_;
  const bool deep_;
  StoreReport* const report_;
  const std::function<void()> note_;

  std::vector<uint64_t> numbers_;   // of all entries, sorted
  std::vector<uint64_t> repeated_;  // numbers that more than one entry has, sorted
  std::vector<uint64_t> shared_;    // numbers whose pages a higher number claims too, sorted
  std::vector<Claim> claims_;
  std::vector<uint64_t> seen_;  // of repeated_, those that an entry had already
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TOOLS_OBJECT_CHECK_H_
