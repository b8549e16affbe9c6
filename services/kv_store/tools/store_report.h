// What `epic store check` found in a directory. Value types and names of them.
#ifndef EPIC_SERVICES_KV_STORE_TOOLS_STORE_REPORT_H_
#define EPIC_SERVICES_KV_STORE_TOOLS_STORE_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace epic::kv_store {

enum class FaultKind : uint8_t {
  kUnreadableTables,     // RocksDB does not open, or its log is damaged
  kUnreadableRows,       // a table cannot be read from some row on
  kDamagedRecord,        // not a record, or that of another key
  kNewerRecord,          // of a format version that this build does not read
  kRemovedRecord,        // its own tombstone says that it is gone
  kMissingTokens,        // a record without token ids
  kDamagedTokens,        // damaged, of another count, or not those of the Cache ID
  kTokensWithoutRecord,  //
  kDamagedTombstone,     //
  kNewerTombstone,       //
  kDamagedObject,        // the entry, or not that of its key and record
  kOtherObject,          // an entry of a format version that this build does not read
  kObjectWithoutRecord,  //
  kSharedSlabs,          // a newer object has the same number or pages
  kMissingSlabs,         // rows or extents that are not there
  kDamagedSlabs,         // of another size, or a wrong checksum
  kUnreadableSlabs,      // the disk says so
  kSlabsWithoutObject,   // what a write left that a crash cut off
  kDamagedExtentFile,    // its header
  kUnreadableExtents,    // the folder or a file of it cannot be opened
  kDamagedNodeRow,       // what the node keeps about itself
};
inline constexpr size_t kFaultKinds = 21;

struct FaultInfo {
  FaultKind kind;
  std::string_view name;    // for programs
  std::string_view advice;  // what to do
  bool is_damage;           // false: left over, and no loss
  bool can_be_dropped;      // by --repair: objects and rows that belong to nothing
};
const FaultInfo& InfoOf(FaultKind kind);

struct StoreFault {
  FaultKind kind = FaultKind::kUnreadableTables;
  std::string table;   // one of the tables, "log" or "extents"
  std::string key;     // of the row, its bytes; of an extent file its name; may be empty
  std::string detail;  // what exactly, without user data
  uint32_t crc = 0;    // of the row's value, where it is one that can be dropped
};

struct StoreCounts {
  uint64_t records = 0;
  uint64_t hidden_records = 0;
  uint64_t token_rows = 0;
  uint64_t tokens = 0;
  uint64_t tombstones = 0;
  uint64_t node_rows = 0;
  uint64_t objects = 0;
  uint64_t objects_in_extents = 0;
  uint64_t object_bytes = 0;    // of all objects
  uint64_t verified_bytes = 0;  // of slabs that were read and compared
  uint64_t extent_files = 0;
  uint64_t extent_bytes = 0;  // as long as the files are
  uint64_t table_bytes = 0;
};

// At most so many faults are told one by one.
inline constexpr size_t kMaxListedFaults = 10'000;

struct StoreReport {
  StoreCounts counts;
  std::vector<StoreFault> faults;  // the first ones
  uint64_t damage = 0;             // all of them
  uint64_t left_over = 0;
  bool deep = false;     // slabs were read
  bool complete = true;  // false: something could not be read, so that not all is checked

  void Add(StoreFault fault);
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TOOLS_STORE_REPORT_H_
