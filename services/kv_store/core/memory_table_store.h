// TableStore in memory, with the crash rules of a real one: a MemoryDisk outlives the stores opened on it,
// and Crash() takes from it what was not yet safe. For tests and for a store that needs no disk. Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_CORE_MEMORY_TABLE_STORE_H_
#define EPIC_SERVICES_KV_STORE_CORE_MEMORY_TABLE_STORE_H_

#include <array>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "services/kv_store/core/table_store.h"

namespace epic::kv_store {

class MemoryDisk {
 public:
  // Loses a random suffix of the unsynced batches and a random part of the unlogged rows.
  // REQUIRES: no store uses the disk any more.
  void Crash(Rng* rng) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class MemoryTableStore;
  using Rows = std::map<std::string, std::string, std::less<>>;
  using Tables = std::array<Rows, kTables>;
  static void Apply(const WriteBatch& batch, Tables* tables);

  Mutex mu_;
  Tables current_ ABSL_GUARDED_BY(mu_);   // what reads see
  Tables durable_ ABSL_GUARDED_BY(mu_);   // what a crash leaves for certain
  Tables unlogged_ ABSL_GUARDED_BY(mu_);  // rows in current_ since the last Flush
  std::vector<WriteBatch> unsynced_ ABSL_GUARDED_BY(mu_);
};

class MemoryTableStore final : public TableStore {
 public:
  explicit MemoryTableStore(std::shared_ptr<MemoryDisk> disk) : disk_(std::move(disk)) {}

  absl::Status Write(const WriteBatch& batch, Sync sync) override;
  absl::Status PutUnlogged(Table table, std::string_view key, ByteSpan value) override;
  absl::Status Flush(Table table) override;
  absl::StatusOr<std::optional<std::string>> Get(Table table, std::string_view key) override;
  absl::StatusOr<std::optional<uint64_t>> ReadInto(Table table, std::string_view key,
                                                   MutableByteSpan out) override;
  absl::Status Scan(Table table,
                    const std::function<bool(std::string_view, std::string_view)>& visit) override;
  absl::Status ScanFrom(Table table, std::string_view begin,
                        const std::function<bool(std::string_view, std::string_view)>& visit) override;
  uint64_t PhysicalBytes() override;
  uint64_t FreeBytes() override { return std::numeric_limits<uint64_t>::max(); }
  absl::Status Reclaim() override { return absl::OkStatus(); }

 private:
  const std::shared_ptr<MemoryDisk> disk_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_MEMORY_TABLE_STORE_H_
