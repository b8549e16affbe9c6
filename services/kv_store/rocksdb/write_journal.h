// Which rows may differ on the disk from what the tables show, should they have to be read from it again:
// those of writes that are not known to be synced, those of writes that failed, whose bytes may be in the log
// all the same, and rows that bypassed the log and are not flushed. Knows keys, no values. Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_ROCKSDB_WRITE_JOURNAL_H_
#define EPIC_SERVICES_KV_STORE_ROCKSDB_WRITE_JOURNAL_H_

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "services/kv_store/core/table_store.h"

namespace epic::kv_store {

struct RowName {
  Table table = Table::kRecords;
  std::string key;
  auto operator<=>(const RowName&) const = default;
};

// The rows that one write concerns.
struct WrittenRows {
  std::vector<RowName> rows;
  std::vector<std::pair<RowName, std::string>> ranges;  // the first row of each, and the key of its end
  uint64_t bytes = 0;                                   // of the write in the log
};

class WriteJournal {
 public:
  // Of writes that ended: not synced, or failed.
  void Add(WrittenRows rows) ABSL_LOCKS_EXCLUDED(mu_);
  // Behind all writes that were added before: a sync that begins now makes those safe.
  uint64_t Mark() const ABSL_LOCKS_EXCLUDED(mu_);
  void DropBefore(uint64_t mark) ABSL_LOCKS_EXCLUDED(mu_);
  // So many that the next write should be synced.
  bool IsFull() const ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<WrittenRows> All() const ABSL_LOCKS_EXCLUDED(mu_);
  void Clear() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable Mutex mu_;
  std::deque<WrittenRows> writes_ ABSL_GUARDED_BY(mu_);
  uint64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;  // writes before the first of writes_
  uint64_t rows_ ABSL_GUARDED_BY(mu_) = 0;     // of writes_
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

// Rows that bypass the log, until a flush made them safe, or their deletion says that nobody wants them.
class UnloggedRows {
 public:
  void Add(Table table, std::string_view key) ABSL_LOCKS_EXCLUDED(mu_);
  // Behind all rows that were added before: a flush that begins now makes those safe.
  uint64_t Mark() const ABSL_LOCKS_EXCLUDED(mu_);
  void Flushed(Table table, uint64_t mark) ABSL_LOCKS_EXCLUDED(mu_);
  // The tables are read from the disk again: what is not flushed is gone.
  void LoseAll() ABSL_LOCKS_EXCLUDED(mu_);
  bool AnyLost(Table table) const ABSL_LOCKS_EXCLUDED(mu_);
  // What the batch deletes is wanted no more.
  void Forget(const WriteBatch& batch) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable Mutex mu_;
  std::map<RowName, uint64_t> waiting_ ABSL_GUARDED_BY(mu_);  // with the place of their write
  std::set<RowName> lost_ ABSL_GUARDED_BY(mu_);
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_ROCKSDB_WRITE_JOURNAL_H_
