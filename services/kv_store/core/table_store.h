// What the store asks of a disk: a few ordered tables of bytes. Implemented on RocksDB
// (services/kv_store/rocksdb), in memory (memory_table_store.h) and by a decorator that fails on purpose
// (services/kv_store/testing). All calls are thread-safe and may block.
//
// Crash rules. Write() batches are atomic; with Sync::kYes they, and all batches before them, survive a crash
// once the call returned; after a crash the unsynced ones that survive are a prefix. PutUnlogged() survives
// only from the next Flush() of its table on. What a write that failed leaves on the disk is not known until
// the next one succeeds: from then on it is undone, also after a crash.
#ifndef EPIC_SERVICES_KV_STORE_CORE_TABLE_STORE_H_
#define EPIC_SERVICES_KV_STORE_CORE_TABLE_STORE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"

namespace epic::kv_store {

// kNode: a few rows about the node itself, such as how often it was started.
enum class Table : uint8_t {
  kRecords = 0,
  kTokens = 1,
  kTombstones = 2,
  kObjects = 3,
  kSlabs = 4,
  kNode = 5,
};
inline constexpr size_t kTables = 6;

enum class Sync : uint8_t { kNo, kYes };

// Values below this size lie beside their keys: they are cheap to write through the log, and their bytes go
// with the row. Larger ones may lie in files that many rows share.
inline constexpr uint64_t kInlineValueBytes = uint64_t{32} << 10;

// Changes that happen together or not at all, in the order in which they were added. A value type.
class WriteBatch {
 public:
  struct Change {
    Table table;
    std::string key;                   // of a put or a delete; the first key of a range
    std::optional<std::string> value;  // set: a put
    std::optional<std::string> end;    // set: deletes [key, end)
  };
  void Put(Table table, std::string key, std::string value) {
    changes_.push_back({table, std::move(key), std::move(value), std::nullopt});
  }
  void Delete(Table table, std::string key) {
    changes_.push_back({table, std::move(key), std::nullopt, std::nullopt});
  }
  // Deletes every key in [begin, end).
  void DeleteRange(Table table, std::string begin, std::string end) {
    changes_.push_back({table, std::move(begin), std::nullopt, std::move(end)});
  }
  bool empty() const { return changes_.empty(); }
  const std::vector<Change>& changes() const { return changes_; }

 private:
  std::vector<Change> changes_;
};

class TableStore {
 public:
  // Errors of every call: ResourceExhausted (kStorageFull) when the disk is full, DataLoss when what was read
  // is damaged, Unavailable or Internal for any other failure of the disk.
  virtual ~TableStore() = default;

  virtual absl::Status Write(const WriteBatch& batch, Sync sync) = 0;
  virtual absl::Status PutUnlogged(Table table, std::string_view key, ByteSpan value) = 0;
  virtual absl::Status Flush(Table table) = 0;

  // nullopt: no such key.
  virtual absl::StatusOr<std::optional<std::string>> Get(Table table, std::string_view key) = 0;
  // Copies the value to the start of `out` and returns the value's size, which may differ from out's: then
  // the contents of `out` are not specified. nullopt: no such key. Does not vouch for the bytes: callers hold
  // checksums of their own.
  virtual absl::StatusOr<std::optional<uint64_t>> ReadInto(Table table, std::string_view key,
                                                           MutableByteSpan out) = 0;
  // Visits every row in key order until `visit` returns false. The views die with the call of `visit`.
  virtual absl::Status Scan(
      Table table, const std::function<bool(std::string_view key, std::string_view value)>& visit) = 0;

  // The same from the first key on that is not less than `begin`. This one reads what comes before it too.
  virtual absl::Status ScanFrom(
      Table table, std::string_view begin,
      const std::function<bool(std::string_view key, std::string_view value)>& visit) {
    return Scan(table, [&](std::string_view key, std::string_view value) {
      return key < begin || visit(key, value);
    });
  }

  // Bytes that the tables take on the disk (or in memory, where that is their disk).
  virtual uint64_t PhysicalBytes() = 0;
  // Bytes that the tables could still grow by before the disk is full, whoever fills it.
  virtual uint64_t FreeBytes() = 0;
  // Is told of failures of the disk that no call returned, from then on.
  virtual void SetErrorSink(std::function<void(const absl::Status&)> /*sink*/) {}
  // Gives back the space of deleted rows and makes deleted bytes physically gone. May take long.
  virtual absl::Status Reclaim() = 0;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_TABLE_STORE_H_
