#include "services/kv_store/rocksdb/rocksdb_table_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/base/thread_annotations.h"
#include "common/base/absl_std.h"
#include "common/base/mutex.h"
#include "common/status/error.h"
#include "common/status/rocksdb_status.h"
#include "common/status/status_macros.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "services/kv_store/core/uses.h"
#include "services/kv_store/rocksdb/database.h"
#include "services/kv_store/rocksdb/gate.h"
#include "services/kv_store/rocksdb/verify_files.h"
#include "services/kv_store/rocksdb/write_journal.h"

namespace epic::kv_store {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxRowsOfARange = 4096;
// Between openings that did not help.
constexpr int64_t kFirstDelayNs = int64_t{100} * 1'000'000;
constexpr int64_t kLastDelayNs = int64_t{10} * 1'000'000'000;
// Of slabs that are kept in memory while the tables are opened again.
constexpr uint64_t kMaxKeptSlabBytes = uint64_t{64} << 20;

rocksdb::Slice ToSlice(std::string_view text) { return {text.data(), text.size()}; }

// Joins the batches of others that write at the same time. Frames of their own, so that reports of a thread
// checker show who called into the library, which has none (tests/sanitizers/tsan.supp).
ABSL_ATTRIBUTE_NOINLINE rocksdb::Status JoinWrites(rocksdb::DB* db, const rocksdb::WriteOptions& options,
                                                   rocksdb::WriteBatch* changes) {
  return db->Write(options, changes);
}
ABSL_ATTRIBUTE_NOINLINE rocksdb::Status JoinWrites(rocksdb::DB* db, const rocksdb::WriteOptions& options,
                                                   rocksdb::ColumnFamilyHandle* family,
                                                   const rocksdb::Slice& key, const rocksdb::Slice& value) {
  return db->Put(options, family, key, value);
}

absl::Status Closed() {
  return absl::UnavailableError(
      "the tables are closed after an error of the disk; they open again when it works");
}

absl::Status NotOpened(const rocksdb::Status& status) {
  if (status.IsNoSpace()) return FromRocksDb(status);
  return absl::UnavailableError(
      ToAbsl("the tables could not be opened again after an error of the disk: " + status.ToString()));
}

// Collects the rows that a write concerns.
class RowCollector final : public rocksdb::WriteBatch::Handler {
 public:
  RowCollector(const Database* database, WrittenRows* out) : database_(database), out_(out) {}
  rocksdb::Status PutCF(uint32_t family, const rocksdb::Slice& key,
                        const rocksdb::Slice& /*value*/) override {
    out_->rows.push_back(NameOf(family, key));
    return rocksdb::Status::OK();
  }
  rocksdb::Status DeleteCF(uint32_t family, const rocksdb::Slice& key) override {
    out_->rows.push_back(NameOf(family, key));
    return rocksdb::Status::OK();
  }
  rocksdb::Status DeleteRangeCF(uint32_t family, const rocksdb::Slice& begin,
                                const rocksdb::Slice& end) override {
    out_->ranges.emplace_back(NameOf(family, begin), end.ToString());
    return rocksdb::Status::OK();
  }

 private:
  RowName NameOf(uint32_t family, const rocksdb::Slice& key) const {
    return {database_->TableOf(family), key.ToString()};
  }
  const Database* const database_;
  WrittenRows* const out_;
};

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
  RocksDbTableStore(DirLock lock, std::string path, rocksdb::Env* env, const Clock* clock,
                    std::unique_ptr<Database> database)
      : lock_(std::move(lock)),
        path_(std::move(path)),
        env_(env),
        clock_(clock),
        database_(std::move(database)) {}

  absl::Status Write(const WriteBatch& batch, Sync sync) override {
    if (journal_.IsFull()) sync = Sync::kYes;
    for (int tries = 0; tries < 2; ++tries) {
      {
        const GateReader use(&gate_);
        if (IsWritable()) return WriteNow(batch, sync);
      }
      EPIC_RETURN_IF_ERROR(Recover());
    }
    return Closed();
  }

  absl::Status PutUnlogged(Table table, std::string_view key, ByteSpan value) override {
    for (int tries = 0; tries < 2; ++tries) {
      {
        const GateReader use(&gate_);
        if (IsWritable()) return PutNow(table, key, value);
      }
      EPIC_RETURN_IF_ERROR(Recover());
    }
    return Closed();
  }

  absl::Status Flush(Table table) override {
    EPIC_RETURN_IF_ERROR(FlushRows(table));
    if (!unlogged_.AnyLost(table)) return absl::OkStatus();
    return absl::UnavailableError(
        "rows that bypassed the log are lost: the disk failed before they were flushed");
  }

  absl::StatusOr<std::optional<std::string>> Get(Table table, std::string_view key) override {
    const GateReader use(&gate_);
    if (!IsReadable()) return Closed();
    const UseScope reading(&uses_);
    std::string value;
    const rocksdb::Status status = db()->Get(rocksdb::ReadOptions(), Family(table), ToSlice(key), &value);
    if (status.IsNotFound()) return std::nullopt;
    EPIC_RETURN_IF_ERROR(FromRocksDb(status));
    return value;
  }

  absl::StatusOr<std::optional<uint64_t>> ReadInto(Table table, std::string_view key,
                                                   MutableByteSpan out) override {
    const GateReader use(&gate_);
    if (!IsReadable()) return Closed();
    rocksdb::ReadOptions options;
    options.verify_checksums = false;
    options.fill_cache = false;
    const UseScope reading(&uses_);
    rocksdb::PinnableSlice value;
    const rocksdb::Status status = db()->Get(options, Family(table), ToSlice(key), &value);
    if (status.IsNotFound()) return std::nullopt;
    EPIC_RETURN_IF_ERROR(FromRocksDb(status));
    const size_t bytes = std::min(value.size(), out.size());
    if (bytes > 0) std::memcpy(out.data(), value.data(), bytes);
    return value.size();
  }

  absl::Status Scan(Table table,
                    const std::function<bool(std::string_view, std::string_view)>& visit) override {
    {
      const GateReader use(&gate_);
      if (!IsReadable()) return Closed();
      EPIC_RETURN_IF_ERROR(FromRocksDb(VerifyFiles(db(), Family(table))));
    }
    return ScanFrom(table, {}, visit);
  }
  absl::Status ScanFrom(Table table, std::string_view begin,
                        const std::function<bool(std::string_view, std::string_view)>& visit) override {
    const GateReader use(&gate_);
    if (!IsReadable()) return Closed();
    rocksdb::ReadOptions options;
    options.fill_cache = false;
    const UseScope reading(&uses_);
    const std::unique_ptr<rocksdb::Iterator> rows(db()->NewIterator(options, Family(table)));
    for (rows->Seek(ToSlice(begin)); rows->Valid(); rows->Next()) {
      if (!visit({rows->key().data(), rows->key().size()}, {rows->value().data(), rows->value().size()}))
        break;
    }
    return FromRocksDb(rows->status());
  }

  // For those who watch: never waits for an opening.
  uint64_t PhysicalBytes() override {
    if (!gate_.TryReaderLock()) return physical_bytes_.load();
    if (IsReadable()) physical_bytes_ = FileBytes();
    gate_.ReaderUnlock();
    return physical_bytes_.load();
  }

  uint64_t FreeBytes() override {
    uint64_t bytes = 0;
    return env_->GetFreeSpace(path_, &bytes).ok() ? bytes : std::numeric_limits<uint64_t>::max();
  }

  absl::Status Reclaim() override {
    rocksdb::CompactRangeOptions options;
    options.exclusive_manual_compaction = false;
    options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
    for (size_t table = 0; table < kTables; ++table) {
      EPIC_RETURN_IF_ERROR(FlushRows(static_cast<Table>(table)));
      const GateReader use(&gate_);
      if (!IsReadable()) return Closed();
      auto* family = Family(static_cast<Table>(table));
      EPIC_RETURN_IF_ERROR(FromRocksDb(db()->CompactRange(options, family, nullptr, nullptr)));
    }
    EPIC_RETURN_IF_ERROR(CollectBlobGarbage(options));
    return RemoveObsoleteFiles();
  }

  void SetErrorSink(std::function<void(const absl::Status&)> sink) override {
    MutexLock lock(&recover_mu_);
    sink_ = std::move(sink);
  }

 private:
  // Blob files go when nothing in them lives: what lives beside deleted values is written anew.
  absl::Status CollectBlobGarbage(rocksdb::CompactRangeOptions options) ABSL_LOCKS_EXCLUDED(gate_) {
    const GateReader use(&gate_);
    if (!IsReadable()) return Closed();
    uint64_t bytes = 0;
    auto* slabs = Family(Table::kSlabs);
    db()->GetIntProperty(slabs, rocksdb::DB::Properties::kLiveBlobFileGarbageSize, &bytes);
    if (bytes == 0) return absl::OkStatus();
    options.blob_garbage_collection_policy = rocksdb::BlobGarbageCollectionPolicy::kForce;
    options.blob_garbage_collection_age_cutoff = 1.0;
    return FromRocksDb(db()->CompactRange(options, slabs, nullptr, nullptr));
  }
  // Compactions leave their input to be deleted later, and by whoever reads in it last.
  absl::Status RemoveObsoleteFiles() ABSL_LOCKS_EXCLUDED(purge_mu_, gate_) {
    uses_.AwaitOlder();
    MutexLock lock(&purge_mu_);
    const GateReader use(&gate_);
    if (!IsReadable()) return Closed();
    EPIC_RETURN_IF_ERROR(FromRocksDb(db()->DisableFileDeletions()));
    // Waits for deletions that others have begun.
    rocksdb::VectorLogPtr logs;
    const absl::Status listed = FromRocksDb(db()->GetSortedWalFiles(logs));
    EPIC_RETURN_IF_ERROR(FromRocksDb(db()->EnableFileDeletions(/*force=*/false)));
    return listed;
  }

  // What the rows must be again once the database was opened anew; nullopt: not there.
  using Truth = std::map<RowName, std::optional<std::string>>;

  rocksdb::DB* db() ABSL_SHARED_LOCKS_REQUIRED(gate_) { return database_->db(); }
  rocksdb::ColumnFamilyHandle* Family(Table table) ABSL_SHARED_LOCKS_REQUIRED(gate_) {
    return database_->Family(table);
  }
  // Also while its writes are stopped.
  bool IsReadable() const ABSL_SHARED_LOCKS_REQUIRED(gate_) { return database_ != nullptr && !has_truth_; }
  bool IsWritable() const ABSL_SHARED_LOCKS_REQUIRED(gate_) {
    return IsReadable() && database_->StoppedBy().ok();
  }

  uint64_t FileBytes() ABSL_SHARED_LOCKS_REQUIRED(gate_) {
    uint64_t bytes = 0;
    for (size_t table = 0; table < kTables; ++table) {
      for (const auto& property :
           {rocksdb::DB::Properties::kTotalSstFilesSize, rocksdb::DB::Properties::kTotalBlobFileSize}) {
        uint64_t value = 0;
        if (db()->GetIntProperty(Family(static_cast<Table>(table)), property, &value)) bytes += value;
      }
    }
    return bytes;
  }

  // --- writes

  absl::Status WriteNow(const WriteBatch& batch, Sync sync) ABSL_SHARED_LOCKS_REQUIRED(gate_) {
    rocksdb::WriteOptions options;
    options.sync = sync == Sync::kYes;
    rocksdb::WriteBatch changes;
    for (const WriteBatch::Change& change : batch.changes()) {
      EPIC_RETURN_IF_ERROR(FromRocksDb(Add(change, &changes)));
    }
    // Which rows such a range had is not known: nothing could be written again.
    options.sync |= changes.HasDeleteRange();
    const uint64_t mark = journal_.Mark();
    const rocksdb::Status status = JoinWrites(db(), options, &changes);
    if (status.ok() && options.sync) {
      journal_.DropBefore(mark);
      reopenings_ = 0;
    } else if (changes.Count() > 0) {
      WrittenRows rows;
      rows.bytes = changes.GetDataSize();
      RowCollector collector(database_.get(), &rows);
      EPIC_RETURN_IF_ERROR(FromRocksDb(changes.Iterate(&collector)));
      journal_.Add(std::move(rows));
    }
    if (status.ok()) unlogged_.Forget(batch);
    return Told(status);
  }

  absl::Status PutNow(Table table, std::string_view key, ByteSpan value) ABSL_SHARED_LOCKS_REQUIRED(gate_) {
    rocksdb::WriteOptions options;
    options.disableWAL = true;
    const rocksdb::Status status =
        JoinWrites(db(), options, Family(table), ToSlice(key), ToSlice(AsText(value)));
    // Only now: a flush of somebody else that runs meanwhile may not have it.
    if (status.ok()) unlogged_.Add(table, key);
    return Told(status);
  }

  // OK also where rows that bypassed the log were lost before.
  absl::Status FlushRows(Table table) ABSL_LOCKS_EXCLUDED(gate_) {
    for (int tries = 0; tries < 2; ++tries) {
      {
        const GateReader use(&gate_);
        if (IsWritable()) return FlushNow(table);
      }
      EPIC_RETURN_IF_ERROR(Recover());
    }
    return Closed();
  }

  absl::Status FlushNow(Table table) ABSL_SHARED_LOCKS_REQUIRED(gate_) {
    rocksdb::FlushOptions options;
    options.allow_write_stall = true;
    const uint64_t mark = unlogged_.Mark();
    const rocksdb::Status status = db()->Flush(options, Family(table));
    if (status.ok()) unlogged_.Flushed(table, mark);
    return Told(status);
  }

  absl::Status Told(const rocksdb::Status& status) ABSL_SHARED_LOCKS_REQUIRED(gate_) {
    if (!status.ok() && !database_->StoppedBy().ok()) told_ = true;
    return FromRocksDb(status);
  }

  rocksdb::Status Add(const WriteBatch::Change& change, rocksdb::WriteBatch* changes)
      ABSL_SHARED_LOCKS_REQUIRED(gate_) {
    auto* family = Family(change.table);
    if (change.value.has_value()) return changes->Put(family, change.key, *change.value);
    if (change.end.has_value()) return DeleteRange(family, change.key, *change.end, changes);
    return changes->Delete(family, change.key);
  }

  // Row by row: RocksDB builds with assertions abort when the disk fails twice while a table in memory holds
  // deletions of ranges. A range that cannot be read, or is very long, is still deleted as one.
  rocksdb::Status DeleteRange(rocksdb::ColumnFamilyHandle* family, const std::string& begin,
                              const std::string& end, rocksdb::WriteBatch* changes)
      ABSL_SHARED_LOCKS_REQUIRED(gate_) {
    const rocksdb::Slice bound(end);
    rocksdb::ReadOptions options;
    options.fill_cache = false;
    options.iterate_upper_bound = &bound;
    std::vector<std::string> rows;
    const UseScope reading(&uses_);
    const std::unique_ptr<rocksdb::Iterator> row(db()->NewIterator(options, family));
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

  // --- after an error that stopped the writes

  // OK: the writes go on, for all that is known. One caller tries; those who wait for it get its result.
  absl::Status Recover() ABSL_LOCKS_EXCLUDED(recover_mu_, gate_) {
    const uint64_t seen = recoveries_.load();
    MutexLock lock(&recover_mu_);
    if (recoveries_.load() != seen) return last_recovery_;
    last_recovery_ = TryToRecover();
    ++recoveries_;
    return last_recovery_;
  }

  absl::Status TryToRecover() ABSL_EXCLUSIVE_LOCKS_REQUIRED(recover_mu_) ABSL_LOCKS_EXCLUDED(gate_) {
    {
      const GateReader use(&gate_);
      if (IsWritable()) return absl::OkStatus();
      const rocksdb::Status error = database_ == nullptr ? rocksdb::Status::OK() : database_->StoppedBy();
      if (!error.ok() && !told_.exchange(true) && sink_ != nullptr) sink_(FromRocksDb(error));
    }
    EPIC_RETURN_IF_ERROR(FromRocksDb(ProbeDisk(path_, env_)));
    const int64_t now_ns = clock_->SteadyNs();
    const uint64_t before = reopenings_.load();
    if (before > 0 && now_ns < next_opening_ns_) return Closed();
    const GateWriter alone(&gate_);
    absl::Status status = Reopen();
    // Counted until a synced write says that it helped.
    reopenings_ = before + 1;
    next_opening_ns_ =
        clock_->SteadyNs() + std::min(kLastDelayNs, kFirstDelayNs << std::min<uint64_t>(before, 10));
    return status;
  }

  // What readers were shown is what is on the disk afterwards, synced: the opening makes tables of what it
  // finds in the log, whether the failed sync brought that to the disk or not, and what differs is mended.
  absl::Status Reopen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(gate_) {
    if (!has_truth_) {
      EPIC_RETURN_IF_ERROR(KeepTruth());
      has_truth_ = true;
      unlogged_.LoseAll();
    }
    database_.reset();
    const rocksdb::Status opened = Database::Open(path_, env_, &database_);
    if (!opened.ok()) return NotOpened(opened);
    EPIC_RETURN_IF_ERROR(FromRocksDb(WriteTruth()));
    journal_.Clear();
    truth_.clear();
    has_truth_ = false;
    told_ = false;
    return absl::OkStatus();
  }

  absl::Status KeepTruth() ABSL_EXCLUSIVE_LOCKS_REQUIRED(gate_) {
    truth_.clear();
    kept_slab_bytes_ = 0;
    for (const WrittenRows& write : journal_.All()) {
      for (const RowName& row : write.rows) EPIC_RETURN_IF_ERROR(KeepRow(row));
      for (const auto& [first, end] : write.ranges) EPIC_RETURN_IF_ERROR(KeepRange(first, end));
    }
    return absl::OkStatus();
  }

  absl::Status KeepRow(const RowName& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(gate_) {
    if (truth_.contains(row)) return absl::OkStatus();
    std::string value;
    const rocksdb::Status status = db()->Get(rocksdb::ReadOptions(), Family(row.table), row.key, &value);
    if (status.IsNotFound()) truth_[row] = std::nullopt;
    if (status.IsNotFound() || status.IsCorruption()) return absl::OkStatus();  // what is damaged stays so
    EPIC_RETURN_IF_ERROR(FromRocksDb(status));
    if (row.table == Table::kSlabs) {
      // Objects whose slabs are too many to be kept may lose them: then they are a miss.
      if (kept_slab_bytes_ + value.size() > kMaxKeptSlabBytes) return absl::OkStatus();
      kept_slab_bytes_ += value.size();
    }
    truth_[row] = std::move(value);
    return absl::OkStatus();
  }

  absl::Status KeepRange(const RowName& first, const std::string& end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(gate_) {
    const rocksdb::Slice bound(end);
    rocksdb::ReadOptions options;
    options.fill_cache = false;
    options.iterate_upper_bound = &bound;
    const std::unique_ptr<rocksdb::Iterator> row(db()->NewIterator(options, Family(first.table)));
    for (row->Seek(first.key); row->Valid(); row->Next()) {
      EPIC_RETURN_IF_ERROR(KeepRow({first.table, row->key().ToString()}));
    }
    return row->status().IsCorruption() ? absl::OkStatus() : FromRocksDb(row->status());
  }

  // In one batch: a crash meanwhile leaves each write that had failed whole or undone. Synced also when there
  // is nothing to write: only then it is known that the log is taken.
  rocksdb::Status WriteTruth() ABSL_EXCLUSIVE_LOCKS_REQUIRED(gate_) {
    rocksdb::WriteBatch changes;
    for (const auto& [row, value] : truth_) {
      auto* family = Family(row.table);
      std::string found;
      rocksdb::Status status = db()->Get(rocksdb::ReadOptions(), family, row.key, &found);
      if (!status.ok() && !status.IsNotFound()) return status;
      if (status.ok() == value.has_value() && (!value.has_value() || *value == found)) continue;
      status = value.has_value() ? changes.Put(family, row.key, *value) : changes.Delete(family, row.key);
      if (!status.ok()) return status;
    }
    rocksdb::WriteOptions options;
    options.sync = true;
    return JoinWrites(db(), options, &changes);
  }

  const DirLock lock_;  // released last
  Uses uses_;           // reads
  Mutex purge_mu_;      // taken before gate_; held while obsolete files are deleted
  const std::string path_;
  rocksdb::Env* const env_;
  const Clock* const clock_;

  WriteJournal journal_;
  UnloggedRows unlogged_;
  std::atomic<uint64_t> physical_bytes_{0};  // as last read
  std::atomic<bool> told_{false};            // a call has returned the error that stopped the writes
  std::atomic<uint64_t> recoveries_{0};      // that ended, well or not
  std::atomic<uint64_t> reopenings_{0};      // since the last synced write

  Mutex recover_mu_;  // taken before gate_; held through a recovery
  absl::Status last_recovery_ ABSL_GUARDED_BY(recover_mu_);
  int64_t next_opening_ns_ ABSL_GUARDED_BY(recover_mu_) = 0;
  std::function<void(const absl::Status&)> sink_ ABSL_GUARDED_BY(recover_mu_);

  // Shared by all calls of the database; alone, who opens it anew.
  Gate gate_;
  std::unique_ptr<Database> database_ ABSL_GUARDED_BY(gate_);  // nullptr: it could not be opened again
  bool has_truth_ ABSL_GUARDED_BY(gate_) = false;              // what truth_ says is not written back yet
  Truth truth_ ABSL_GUARDED_BY(gate_);
  uint64_t kept_slab_bytes_ ABSL_GUARDED_BY(gate_) = 0;  // in truth_
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

absl::StatusOr<std::unique_ptr<TableStore>> OpenRocksDbTables(const RocksDbOptions& options) {
  std::error_code error;
  fs::create_directories(options.dir, error);
  if (error) {
    return absl::PermissionDeniedError(ToAbsl("cannot make the data directory " + options.dir + ": " +
                                              error.message() +
                                              "; choose one that you may write (--data-dir)"));
  }
  EPIC_ASSIGN_OR_RETURN(DirLock lock, DirLock::Take(options.dir));
  const std::string path = options.dir + "/rocksdb";
  rocksdb::Env* const env = options.env == nullptr ? rocksdb::Env::Default() : options.env;
  std::unique_ptr<Database> database;
  const rocksdb::Status status = Database::Open(path, env, &database);
  if (!status.ok()) return OpenFailed(options.dir, status);
  return std::make_unique<RocksDbTableStore>(std::move(lock), path, env, options.clock, std::move(database));
}

}  // namespace epic::kv_store
