// A TableStore whose Reclaim() does what a test says: waits, fails, or ends the process. Wraps another and
// passes every other call on. Tests only. Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_GATED_TABLES_H_
#define EPIC_SERVICES_KV_STORE_TESTING_GATED_TABLES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "services/kv_store/core/table_store.h"

namespace epic::kv_store {

class ReclaimGate {
 public:
  // Runs that come wait, until Open.
  void Close() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    closed_ = true;
  }
  void Open() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    closed_ = false;
    changed_.SignalAll();
  }
  // Waits until `runs` have come, since the gate was made.
  void AwaitRuns(uint64_t runs) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    while (runs_ < runs) changed_.Wait(&mu_);
  }
  // What runs from now on return before they do anything.
  void Fail(absl::Status status) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    status_ = std::move(status);
  }
  // Called by each run from now on before it begins, and when it has ended.
  void SetHooks(std::function<void()> before, std::function<void()> after) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    before_ = std::move(before);
    after_ = std::move(after);
  }

  // For GatedTables.
  absl::Status Pass(const std::function<absl::Status()>& reclaim) ABSL_LOCKS_EXCLUDED(mu_) {
    std::function<void()> before, after;
    {
      MutexLock lock(&mu_);
      ++runs_;
      changed_.SignalAll();
      while (closed_) changed_.Wait(&mu_);
      if (!status_.ok()) return status_;
      before = before_;
      after = after_;
    }
    if (before != nullptr) before();
    absl::Status status = reclaim();
    if (after != nullptr) after();
    return status;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t runs_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::function<void()> before_ ABSL_GUARDED_BY(mu_), after_ ABSL_GUARDED_BY(mu_);
};

class GatedTables final : public TableStore {
 public:
  // The gate outlives the tables.
  GatedTables(std::unique_ptr<TableStore> inner, ReclaimGate* gate) : inner_(std::move(inner)), gate_(gate) {}

  absl::Status Write(const WriteBatch& batch, Sync sync) override { return inner_->Write(batch, sync); }
  absl::Status PutUnlogged(Table table, std::string_view key, ByteSpan value) override {
    return inner_->PutUnlogged(table, key, value);
  }
  absl::Status Flush(Table table) override { return inner_->Flush(table); }
  absl::StatusOr<std::optional<std::string>> Get(Table table, std::string_view key) override {
    return inner_->Get(table, key);
  }
  absl::StatusOr<std::optional<uint64_t>> ReadInto(Table table, std::string_view key,
                                                   MutableByteSpan out) override {
    return inner_->ReadInto(table, key, out);
  }
  absl::Status Scan(Table table,
                    const std::function<bool(std::string_view, std::string_view)>& visit) override {
    return inner_->Scan(table, visit);
  }
  absl::Status ScanFrom(Table table, std::string_view begin,
                        const std::function<bool(std::string_view, std::string_view)>& visit) override {
    return inner_->ScanFrom(table, begin, visit);
  }
  uint64_t PhysicalBytes() override { return inner_->PhysicalBytes(); }
  uint64_t FreeBytes() override { return inner_->FreeBytes(); }
  void SetErrorSink(std::function<void(const absl::Status&)> sink) override {
    inner_->SetErrorSink(std::move(sink));
  }
  absl::Status Reclaim() override {
    return gate_->Pass([this] { return inner_->Reclaim(); });
  }

 private:
  const std::unique_ptr<TableStore> inner_;
  ReclaimGate* const gate_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TESTING_GATED_TABLES_H_
