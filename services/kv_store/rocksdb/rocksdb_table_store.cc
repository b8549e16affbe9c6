#include "services/kv_store/rocksdb/rocksdb_table_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/absl_std.h"
#include "common/base/mutex.h"
#include "common/status/error.h"
#include "common/status/rocksdb_status.h"
#include "common/status/status_macros.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/listener.h"
#include "services/kv_store/rocksdb/no_log.h"
#include "services/kv_store/rocksdb/verify_files.h"

namespace epic::kv_store {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, kTables> kFamilies = {"records", "tokens", "tombstones",
                                                        "objects", "slabs",  "node"};
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr size_t kMaxRowsOfARange = 4096;

rocksdb::Slice ToSlice(std::string_view text) { return {text.data(), text.size()}; }

// Leaves recovery after an error to our next write (WithResume): RocksDB's own looks only every few seconds,
// and refuses ours meanwhile.
class NoAutoRecovery final : public rocksdb::EventListener {
 public:
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason /*reason*/, rocksdb::Status /*error*/,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }
};

rocksdb::DBOptions DatabaseOptions(rocksdb::Env* env) {
  rocksdb::DBOptions options;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  options.max_open_files = 256;
  options.max_background_jobs = 2;
  options.max_total_wal_size = 64 * kMiB;
  options.allow_fallocate = false;  // else each log takes 64 MiB of the disk at once
  options.info_log = std::make_shared<NoLog>();
  options.listeners.push_back(std::make_shared<NoAutoRecovery>());
  options.max_bgerror_resume_count = 0;
  if (env != nullptr) options.env = env;
  return options;
}

rocksdb::ColumnFamilyOptions FamilyOptions(Table table) {
  rocksdb::ColumnFamilyOptions options;
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = 8 * kMiB;
  if (table == Table::kSlabs) {
    options.write_buffer_size = 64 * kMiB;
    options.enable_blob_files = true;
    options.min_blob_size = kInlineValueBytes;
    options.blob_file_size = 256 * kMiB;
  }
  return options;
}

// Holds the directory for this store: released when the process dies, however it does.
class DirLock {
 public:
  static absl::StatusOr<DirLock> Take(const std::string& dir) {
    const std::string path = dir + "/epic.lock";
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
      return absl::PermissionDeniedError(ToAbsl("cannot write to the data directory " + dir + " (" +
                                                std::strerror(errno) +
                                                "); choose another or mend its rights"));
    }
    DirLock lock(fd);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      return absl::FailedPreconditionError(
          ToAbsl("another process uses the data directory " + dir + "; stop it or choose another directory"));
    }
    return lock;
  }
  DirLock(DirLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  DirLock& operator=(DirLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~DirLock() {
    if (fd_ >= 0) close(fd_);
  }

 private:
  explicit DirLock(int fd) : fd_(fd) {}
  int fd_;
};

class RocksDbTableStore final : public TableStore {
 public:
  RocksDbTableStore(DirLock lock, std::unique_ptr<rocksdb::DB> db,
                    std::vector<rocksdb::ColumnFamilyHandle*> families)
      : lock_(std::move(lock)), db_(std::move(db)), families_(std::move(families)) {}
  ~RocksDbTableStore() override {
    for (auto* family : families_) db_->DestroyColumnFamilyHandle(family).PermitUncheckedError();
    db_->Close().PermitUncheckedError();
  }

  absl::Status Write(const WriteBatch& batch, Sync sync) override {
    rocksdb::WriteOptions options;
    options.sync = sync == Sync::kYes;
    return WithResume([&] {
      rocksdb::WriteBatch changes;
      for (const WriteBatch::Change& change : batch.changes()) {
        rocksdb::Status added = Add(change, &changes);
        if (!added.ok()) return added;
      }
      return db_->Write(options, &changes);
    });
  }

  absl::Status PutUnlogged(Table table, std::string_view key, ByteSpan value) override {
    rocksdb::WriteOptions options;
    options.disableWAL = true;
    return WithResume([&] { return db_->Put(options, Family(table), ToSlice(key), ToSlice(AsText(value))); });
  }

  absl::Status Flush(Table table) override {
    rocksdb::FlushOptions options;
    options.allow_write_stall = true;
    const rocksdb::Status status = db_->Flush(options, Family(table));
    // No second try here: the caller deletes what it wanted to flush.
    if (!status.ok()) {
      MutexLock lock(&resume_mu_);
      db_->Resume().PermitUncheckedError();
    }
    return FromRocksDb(status);
  }

  absl::StatusOr<std::optional<std::string>> Get(Table table, std::string_view key) override {
    std::string value;
    const rocksdb::Status status = db_->Get(rocksdb::ReadOptions(), Family(table), ToSlice(key), &value);
    if (status.IsNotFound()) return std::nullopt;
    EPIC_RETURN_IF_ERROR(FromRocksDb(status));
    return value;
  }

  absl::StatusOr<std::optional<uint64_t>> ReadInto(Table table, std::string_view key,
                                                   MutableByteSpan out) override {
    rocksdb::ReadOptions options;
    options.verify_checksums = false;
    options.fill_cache = false;
    rocksdb::PinnableSlice value;
    const rocksdb::Status status = db_->Get(options, Family(table), ToSlice(key), &value);
    if (status.IsNotFound()) return std::nullopt;
    EPIC_RETURN_IF_ERROR(FromRocksDb(status));
    const size_t bytes = std::min(value.size(), out.size());
    if (bytes > 0) std::memcpy(out.data(), value.data(), bytes);
    return value.size();
  }

  absl::Status Scan(Table table,
                    const std::function<bool(std::string_view, std::string_view)>& visit) override {
    EPIC_RETURN_IF_ERROR(FromRocksDb(VerifyFiles(db_.get(), Family(table))));
    return ScanFrom(table, {}, visit);
  }
  absl::Status ScanFrom(Table table, std::string_view begin,
                        const std::function<bool(std::string_view, std::string_view)>& visit) override {
    rocksdb::ReadOptions options;
    options.fill_cache = false;
    const std::unique_ptr<rocksdb::Iterator> rows(db_->NewIterator(options, Family(table)));
    for (rows->Seek(ToSlice(begin)); rows->Valid(); rows->Next()) {
      if (!visit({rows->key().data(), rows->key().size()}, {rows->value().data(), rows->value().size()}))
        break;
    }
    return FromRocksDb(rows->status());
  }

  uint64_t PhysicalBytes() override {
    uint64_t bytes = 0;
    for (size_t table = 0; table < kTables; ++table) {
      for (const auto& property :
           {rocksdb::DB::Properties::kTotalSstFilesSize, rocksdb::DB::Properties::kTotalBlobFileSize}) {
        uint64_t value = 0;
        if (db_->GetIntProperty(Family(static_cast<Table>(table)), property, &value)) bytes += value;
      }
    }
    return bytes;
  }

  uint64_t FreeBytes() override {
    uint64_t bytes = 0;
    const rocksdb::Status status = db_->GetEnv()->GetFreeSpace(db_->GetName(), &bytes);
    return status.ok() ? bytes : std::numeric_limits<uint64_t>::max();
  }

  absl::Status Reclaim() override {
    rocksdb::CompactRangeOptions options;
    options.exclusive_manual_compaction = false;
    options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
    for (size_t table = 0; table < kTables; ++table) {
      EPIC_RETURN_IF_ERROR(Flush(static_cast<Table>(table)));
      auto* family = Family(static_cast<Table>(table));
      EPIC_RETURN_IF_ERROR(FromRocksDb(db_->CompactRange(options, family, nullptr, nullptr)));
    }
    return absl::OkStatus();
  }

 private:
  rocksdb::ColumnFamilyHandle* Family(Table table) { return families_[static_cast<size_t>(table) + 1]; }

  rocksdb::Status Add(const WriteBatch::Change& change, rocksdb::WriteBatch* changes) {
    auto* family = Family(change.table);
    if (change.value.has_value()) return changes->Put(family, change.key, *change.value);
    if (change.end.has_value()) return DeleteRange(family, change.key, *change.end, changes);
    return changes->Delete(family, change.key);
  }

  // Row by row: RocksDB builds with assertions abort when the disk fails twice while a table in memory holds
  // deletions of ranges. A range that cannot be read, or is very long, is still deleted as one.
  rocksdb::Status DeleteRange(rocksdb::ColumnFamilyHandle* family, const std::string& begin,
                              const std::string& end, rocksdb::WriteBatch* changes) {
    const rocksdb::Slice bound(end);
    rocksdb::ReadOptions options;
    options.fill_cache = false;
    options.iterate_upper_bound = &bound;
    std::vector<std::string> rows;
    const std::unique_ptr<rocksdb::Iterator> row(db_->NewIterator(options, family));
    for (row->Seek(begin); row->Valid() && rows.size() <= kMaxRowsOfARange; row->Next()) {
      rows.push_back(row->key().ToString());
    }
    if (!row->status().ok() || rows.size() > kMaxRowsOfARange)
      return changes->DeleteRange(family, begin, end);
    for (const std::string& key : rows) {
      rocksdb::Status deleted = changes->Delete(family, key);
      if (!deleted.ok()) return deleted;
    }
    return rocksdb::Status::OK();
  }

  // After a failed write RocksDB refuses all others until it is told to go on: it is, and the write is tried
  // once more. What failed for good fails again. One caller at a time: others may find that it goes already.
  template <typename Fn>
  absl::Status WithResume(Fn fn) ABSL_LOCKS_EXCLUDED(resume_mu_) {
    rocksdb::Status status = fn();
    if (status.ok()) return absl::OkStatus();
    MutexLock lock(&resume_mu_);
    status = fn();
    if (!status.ok() && db_->Resume().ok()) status = fn();
    return FromRocksDb(status);
  }

  const DirLock lock_;  // released last
  const std::unique_ptr<rocksdb::DB> db_;
  const std::vector<rocksdb::ColumnFamilyHandle*> families_;  // the default one, then one per table
  Mutex resume_mu_;                                           // held through what follows a failure
};

absl::Status OpenFailed(const std::string& dir, const rocksdb::Status& status) {
  const absl::Status converted = FromRocksDb(status);
  if (CodeOf(converted) == ErrorCode::kStorageFull) return converted;
  const bool damaged = status.IsCorruption() || status.IsInvalidArgument() || status.IsNotFound();
  const std::string message =
      damaged ? "the data in " + dir +
                    " are damaged or not EPIC's: move the directory away or restore it from a copy ("
              : "cannot open the data in " + dir + " (";
  return absl::Status(damaged ? absl::StatusCode::kDataLoss : converted.code(),
                      ToAbsl(message + status.ToString() + ")"));
}

}  // namespace

std::string_view TableName(Table table) { return kFamilies[static_cast<size_t>(table)]; }

absl::StatusOr<std::unique_ptr<TableStore>> OpenRocksDbTables(const RocksDbOptions& options) {
  std::error_code error;
  fs::create_directories(options.dir, error);
  if (error) {
    return absl::PermissionDeniedError(ToAbsl("cannot make the data directory " + options.dir + ": " +
                                              error.message() +
                                              "; choose one that you may write (--data-dir)"));
  }
  EPIC_ASSIGN_OR_RETURN(DirLock lock, DirLock::Take(options.dir));
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
  descriptors.emplace_back(rocksdb::kDefaultColumnFamilyName, rocksdb::ColumnFamilyOptions());
  for (size_t table = 0; table < kTables; ++table) {
    descriptors.emplace_back(kFamilies[table], FamilyOptions(static_cast<Table>(table)));
  }
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  rocksdb::DB* db = nullptr;
  const std::string path = options.dir + "/rocksdb";
  const rocksdb::Status status =
      rocksdb::DB::Open(DatabaseOptions(options.env), path, descriptors, &families, &db);
  if (!status.ok()) return OpenFailed(options.dir, status);
  return std::make_unique<RocksDbTableStore>(std::move(lock), std::unique_ptr<rocksdb::DB>(db),
                                             std::move(families));
}

}  // namespace epic::kv_store
