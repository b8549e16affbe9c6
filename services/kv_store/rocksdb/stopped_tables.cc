#include "services/kv_store/rocksdb/stopped_tables.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/absl_std.h"
#include "common/status/errno_status.h"
#include "common/status/rocksdb_status.h"
#include "common/status/status_macros.h"
#include "rocksdb/db.h"
#include "services/kv_store/rocksdb/no_log.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"
#include "services/kv_store/rocksdb/verify_files.h"

namespace epic::kv_store {
namespace {

rocksdb::Slice ToSlice(std::string_view text) { return {text.data(), text.size()}; }

absl::Status ReadOnly() { return absl::FailedPreconditionError("the tables are open for reading only"); }

// Keeps stores away from the directory; several of us may be there. Makes no file.
class ReaderLock {
 public:
  static absl::StatusOr<ReaderLock> Take(const std::string& dir) {
    const std::string path = dir + "/epic.lock";
    ReaderLock lock(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    // Without one no store of ours has it now.
    if (lock.fd_ < 0 && errno == ENOENT) return lock;
    if (lock.fd_ < 0) return FromErrno(errno, "opening " + path);
    if (flock(lock.fd_, LOCK_SH | LOCK_NB) != 0) {
      return absl::FailedPreconditionError(
          ToAbsl("another process uses the data directory " + dir + "; stop it first"));
    }
    return lock;
  }
  ReaderLock(ReaderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ReaderLock& operator=(ReaderLock&&) = delete;
  ~ReaderLock() {
    if (fd_ >= 0) close(fd_);
  }

 private:
  explicit ReaderLock(int fd) : fd_(fd) {}
  int fd_;
};

using Families = std::array<rocksdb::ColumnFamilyHandle*, kTables>;

class RocksDbStoppedTables final : public StoppedTables {
 public:
  RocksDbStoppedTables(ReaderLock lock, std::unique_ptr<rocksdb::DB> db,
                       std::vector<rocksdb::ColumnFamilyHandle*> handles, const Families& families,
                       absl::Status log)
      : lock_(std::move(lock)),
        db_(std::move(db)),
        handles_(std::move(handles)),
        families_(families),
        log_(std::move(log)) {}
  ~RocksDbStoppedTables() override {
    for (auto* handle : handles_) db_->DestroyColumnFamilyHandle(handle).PermitUncheckedError();
    db_->Close().PermitUncheckedError();
  }

  absl::Status LogState() const override { return log_; }

  absl::StatusOr<std::optional<std::string>> Get(Table table, std::string_view key) override {
    if (Family(table) == nullptr) return std::nullopt;
    std::string value;
    const rocksdb::Status status = Guarded([&] {
      rocksdb::ReadOptions options;
      options.fill_cache = table != Table::kSlabs;
      return db_->Get(options, Family(table), ToSlice(key), &value);
    });
    if (status.IsNotFound()) return std::nullopt;
    EPIC_RETURN_IF_ERROR(FromRocksDb(status));
    return value;
  }

  absl::StatusOr<std::optional<uint64_t>> ReadInto(Table table, std::string_view key,
                                                   MutableByteSpan out) override {
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> value, Get(table, key));
    if (!value.has_value()) return std::nullopt;
    const size_t bytes = std::min(value->size(), out.size());
    if (bytes > 0) std::memcpy(out.data(), value->data(), bytes);
    return value->size();
  }

  absl::Status Scan(Table table,
                    const std::function<bool(std::string_view, std::string_view)>& visit) override {
    if (Family(table) == nullptr) return absl::OkStatus();
    EPIC_RETURN_IF_ERROR(FromRocksDb(Guarded([&] { return VerifyFiles(db_.get(), Family(table)); })));
    return ScanFrom(table, {}, visit);
  }
  absl::Status ScanFrom(Table table, std::string_view begin,
                        const std::function<bool(std::string_view, std::string_view)>& visit) override {
    if (Family(table) == nullptr) return absl::OkStatus();
    return FromRocksDb(Guarded([&] {
      rocksdb::ReadOptions options;
      options.fill_cache = false;
      const std::unique_ptr<rocksdb::Iterator> rows(db_->NewIterator(options, Family(table)));
      for (rows->Seek(ToSlice(begin)); rows->Valid(); rows->Next()) {
        if (!visit({rows->key().data(), rows->key().size()}, {rows->value().data(), rows->value().size()}))
          break;
      }
      return rows->status();
    }));
  }

  absl::StatusOr<std::optional<std::string>> FirstKeyFrom(Table table, std::string_view from) override {
    std::optional<std::string> key;
    if (Family(table) == nullptr) return key;
    const rocksdb::Status status = Guarded([&] {
      rocksdb::ReadOptions options;
      options.fill_cache = false;
      const std::unique_ptr<rocksdb::Iterator> rows(db_->NewIterator(options, Family(table)));
      rows->Seek(ToSlice(from));
      if (rows->Valid()) key = rows->key().ToString();
      return rows->status();
    });
    EPIC_RETURN_IF_ERROR(FromRocksDb(status));
    return key;
  }

  uint64_t PhysicalBytes() override {
    uint64_t bytes = 0;
    for (auto* family : families_) {
      for (const auto& property :
           {rocksdb::DB::Properties::kTotalSstFilesSize, rocksdb::DB::Properties::kTotalBlobFileSize}) {
        uint64_t value = 0;
        if (family != nullptr && db_->GetIntProperty(family, property, &value)) bytes += value;
      }
    }
    return bytes;
  }
  uint64_t FreeBytes() override { return 0; }

  // What RocksDB throws at damaged bytes, such as for want of memory, is an error of theirs.
  template <typename Fn>
  static rocksdb::Status Guarded(Fn fn) {
    try {
      return fn();
    } catch (const std::exception& error) {
      return rocksdb::Status::Corruption(error.what());
    }
  }

 private:
  rocksdb::ColumnFamilyHandle* Family(Table table) const { return families_[static_cast<size_t>(table)]; }

  const ReaderLock lock_;  // released last
  const std::unique_ptr<rocksdb::DB> db_;
  const std::vector<rocksdb::ColumnFamilyHandle*> handles_;
  const Families families_;  // nullptr: there is no such table
  const absl::Status log_;
};

struct OpenDb {
  std::unique_ptr<rocksdb::DB> db;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
};

rocksdb::Status OpenForReading(const std::string& path, const std::vector<std::string>& names,
                               rocksdb::WALRecoveryMode mode, OpenDb* open) {
  return RocksDbStoppedTables::Guarded([&] {
    rocksdb::DBOptions options;
    options.max_open_files = 256;
    options.info_log = std::make_shared<NoLog>();
    options.wal_recovery_mode = mode;
    std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
    for (const std::string& name : names) descriptors.emplace_back(name, rocksdb::ColumnFamilyOptions());
    rocksdb::DB* db = nullptr;
    const rocksdb::Status status =
        rocksdb::DB::OpenForReadOnly(options, path, descriptors, &open->handles, &db);
    open->db.reset(db);
    return status;
  });
}

absl::Status CannotRead(const std::string& dir, const rocksdb::Status& status) {
  const bool damaged = status.IsCorruption() || status.IsInvalidArgument() || status.IsNotFound();
  const std::string message = damaged ? "the tables in " + dir + " are damaged: restore a backup elsewhere ("
                                      : "cannot read the tables in " + dir + " (";
  return absl::Status(damaged ? absl::StatusCode::kDataLoss : FromRocksDb(status).code(),
                      ToAbsl(message + status.ToString() + ")"));
}

}  // namespace

absl::Status StoppedTables::Write(const WriteBatch& /*batch*/, Sync /*sync*/) { return ReadOnly(); }
absl::Status StoppedTables::PutUnlogged(Table /*table*/, std::string_view /*key*/, ByteSpan /*value*/) {
  return ReadOnly();
}
absl::Status StoppedTables::Flush(Table /*table*/) { return ReadOnly(); }
absl::Status StoppedTables::Reclaim() { return ReadOnly(); }

absl::StatusOr<std::unique_ptr<StoppedTables>> StoppedTables::Open(const std::string& dir) {
  const std::string path = dir + "/rocksdb";
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory) {
      return FromErrno(error.value(), "reading " + path);
    }
    return absl::NotFoundError(
        ToAbsl("there is no store in " + dir + "; name the data directory of a node (store.data_dir)"));
  }
  EPIC_ASSIGN_OR_RETURN(ReaderLock lock, ReaderLock::Take(dir));
  std::vector<std::string> names;
  rocksdb::Status status = RocksDbStoppedTables::Guarded(
      [&] { return rocksdb::DB::ListColumnFamilies(rocksdb::DBOptions(), path, &names); });
  if (!status.ok()) return CannotRead(dir, status);
  // Only tables that are ours: a later version may have more.
  std::erase_if(names, [](const std::string& name) {
    if (name == rocksdb::kDefaultColumnFamilyName) return false;
    for (size_t table = 0; table < kTables; ++table) {
      if (name == TableName(static_cast<Table>(table))) return false;
    }
    return true;
  });
  OpenDb open;
  absl::Status log;
  status = OpenForReading(path, names, rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords, &open);
  if (status.IsCorruption()) {
    // As a store would open it: up to the damage.
    log = absl::DataLossError(ToAbsl(status.ToString()));
    open = OpenDb();
    status = OpenForReading(path, names, rocksdb::WALRecoveryMode::kPointInTimeRecovery, &open);
  }
  if (!status.ok()) return CannotRead(dir, status);
  Families families{};
  for (auto* handle : open.handles) {
    for (size_t table = 0; table < kTables; ++table) {
      if (handle->GetName() == TableName(static_cast<Table>(table))) families[table] = handle;
    }
  }
  return std::make_unique<RocksDbStoppedTables>(std::move(lock), std::move(open.db), std::move(open.handles),
                                                families, std::move(log));
}

}  // namespace epic::kv_store
