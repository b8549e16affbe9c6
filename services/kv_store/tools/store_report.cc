#include "services/kv_store/tools/store_report.h"

#include <array>
#include <utility>

#include "common/base/check.h"

namespace epic::kv_store {
namespace {

using Kind = FaultKind;

constexpr std::string_view kRestore = "restore a backup into an empty directory and use that";
constexpr std::string_view kNewer = "use the newer EPIC that wrote it";
constexpr std::string_view kObject =
    "--repair drops the object, and its context is compiled again when it is used";
constexpr std::string_view kLeftOver = "--repair drops it; the next start of the node does too";

constexpr std::array<FaultInfo, kFaultKinds> kTable = {{
    {Kind::kUnreadableTables, "unreadable_tables", kRestore, true, false},
    {Kind::kUnreadableRows, "unreadable_rows", kRestore, true, false},
    {Kind::kDamagedRecord, "damaged_record", kRestore, true, false},
    {Kind::kNewerRecord, "newer_record", kNewer, true, false},
    {Kind::kRemovedRecord, "removed_record",
     "delete the context again, or back up and restore into an empty directory: that leaves it out", true,
     false},
    {Kind::kMissingTokens, "missing_tokens",
     "create the context again with the same text, or restore a backup into this directory", true, false},
    {Kind::kDamagedTokens, "damaged_tokens",
     "create the context again with the same text, or restore a backup into this directory", true, false},
    {Kind::kTokensWithoutRecord, "tokens_without_record", "--repair drops them", true, true},
    {Kind::kDamagedTombstone, "damaged_tombstone", kRestore, true, false},
    {Kind::kNewerTombstone, "newer_tombstone", kNewer, true, false},
    {Kind::kDamagedObject, "damaged_object", kObject, true, true},
    {Kind::kOtherObject, "object_of_another_version", kObject, true, true},
    {Kind::kObjectWithoutRecord, "object_without_record", kLeftOver, true, true},
    {Kind::kSharedSlabs, "shared_slabs", kObject, true, true},
    {Kind::kMissingSlabs, "missing_slabs", kObject, true, true},
    {Kind::kDamagedSlabs, "damaged_slabs", kObject, true, true},
    {Kind::kUnreadableSlabs, "unreadable_slabs",
     "look at the disk; what stays unreadable is compiled again when it is used", true, false},
    {Kind::kSlabsWithoutObject, "slabs_without_object", kLeftOver, false, true},
    {Kind::kDamagedExtentFile, "damaged_extent_file",
     "start the node: it writes the header anew and goes on reading the objects", true, false},
    {Kind::kUnreadableExtents, "unreadable_extents",
     "see that the folder slabs can be read; its objects were not checked", true, false},
    {Kind::kDamagedNodeRow, "damaged_node_row",
     "start the node: it counts its starts anew; a row of a newer version needs the newer EPIC", true, false},
}};

}  // namespace

const FaultInfo& InfoOf(FaultKind kind) {
  const FaultInfo& info = kTable[static_cast<size_t>(kind)];
  EPIC_CHECK(info.kind == kind);
  return info;
}

void StoreReport::Add(StoreFault fault) {
  ++(InfoOf(fault.kind).is_damage ? damage : left_over);
  if (faults.size() < kMaxListedFaults) faults.push_back(std::move(fault));
}

}  // namespace epic::kv_store
