// A TableStore that fails on purpose: wraps another and, by a seeded draw per call, answers with an I/O
// error, a full disk, a short read or flipped bits. Rates may be changed at any time. Thread-safe. Tests
// only.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_FAULTY_TABLE_STORE_H_
#define EPIC_SERVICES_KV_STORE_TESTING_FAULTY_TABLE_STORE_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/status/error.h"
#include "services/kv_store/core/table_store.h"

namespace epic::kv_store {

// Chances in percent, each drawn by itself.
struct FaultRates {
  int read_error = 0;
  int damaged_row = 0;  // as a checksum of the tables would tell
  int short_read = 0;
  int bit_flip = 0;
  int write_error = 0;
  int disk_full = 0;
};

// Shared by the test and the store under test.
class Faults {
 public:
  explicit Faults(uint64_t seed) : rng_(seed) {}
  void Set(const FaultRates& rates) {
    MutexLock lock(&mu_);
    rates_ = rates;
  }
  bool Strikes(int FaultRates::*rate) {
    MutexLock lock(&mu_);
    return rng_.Below(100) < static_cast<uint64_t>(rates_.*rate);
  }
  uint64_t Below(uint64_t bound) {
    MutexLock lock(&mu_);
    return rng_.Below(bound);
  }

 private:
  Mutex mu_;
  Rng rng_ ABSL_GUARDED_BY(mu_);
  FaultRates rates_ ABSL_GUARDED_BY(mu_);
};

class FaultyTableStore final : public TableStore {
 public:
  FaultyTableStore(std::unique_ptr<TableStore> inner, std::shared_ptr<Faults> faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}

  absl::Status Write(const WriteBatch& batch, Sync sync) override {
    absl::Status fault = WriteFault();
    return fault.ok() ? inner_->Write(batch, sync) : fault;
  }
  absl::Status PutUnlogged(Table table, std::string_view key, ByteSpan value) override {
    absl::Status fault = WriteFault();
    return fault.ok() ? inner_->PutUnlogged(table, key, value) : fault;
  }
  absl::Status Flush(Table table) override {
    absl::Status fault = WriteFault();
    return fault.ok() ? inner_->Flush(table) : fault;
  }
  absl::StatusOr<std::optional<std::string>> Get(Table table, std::string_view key) override {
    if (faults_->Strikes(&FaultRates::read_error)) return absl::UnavailableError("injected EIO");
    if (faults_->Strikes(&FaultRates::damaged_row)) return absl::DataLossError("injected checksum mismatch");
    auto value = inner_->Get(table, key);
    if (!value.ok() || !value->has_value() || (*value)->empty()) return value;
    std::string& bytes = **value;
    if (faults_->Strikes(&FaultRates::short_read)) bytes.resize(faults_->Below(bytes.size()));
    if (!bytes.empty() && faults_->Strikes(&FaultRates::bit_flip)) {
      bytes[faults_->Below(bytes.size())] ^= static_cast<char>(1 << faults_->Below(8));
    }
    return value;
  }
  absl::StatusOr<std::optional<uint64_t>> ReadInto(Table table, std::string_view key,
                                                   MutableByteSpan out) override {
    if (faults_->Strikes(&FaultRates::read_error)) return absl::UnavailableError("injected EIO");
    auto size = inner_->ReadInto(table, key, out);
    if (!size.ok() || !size->has_value() || **size == 0 || out.empty()) return size;
    if (faults_->Strikes(&FaultRates::short_read)) return std::optional<uint64_t>(faults_->Below(**size));
    if (faults_->Strikes(&FaultRates::bit_flip)) {
      out[faults_->Below(std::min<uint64_t>(**size, out.size()))] ^= std::byte(1 << faults_->Below(8));
    }
    return size;
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
  absl::Status Reclaim() override { return inner_->Reclaim(); }

 private:
  absl::Status WriteFault() {
    if (faults_->Strikes(&FaultRates::disk_full)) return Error(ErrorCode::kStorageFull, "injected ENOSPC");
    if (faults_->Strikes(&FaultRates::write_error)) return absl::UnavailableError("injected EIO");
    return absl::OkStatus();
  }

  const std::unique_ptr<TableStore> inner_;
  const std::shared_ptr<Faults> faults_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TESTING_FAULTY_TABLE_STORE_H_
