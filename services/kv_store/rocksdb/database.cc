#include "services/kv_store/rocksdb/database.h"

#include <array>
#include <atomic>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "rocksdb/listener.h"
#include "services/kv_store/rocksdb/no_log.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"

namespace epic::kv_store {

namespace {

constexpr std::array<const char*, kTables> kFamilies = {"records", "tokens", "tombstones",
                                                        "objects", "slabs",  "node"};
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr size_t kProbeBytes = 4096;
// What an opening writes beside the tables made of the log: a manifest, a log, the headers of tables.
constexpr uint64_t kOpeningBytes = uint64_t{256} << 10;

}  // namespace

// Hears of the errors behind the calls. RocksDB's own recovery is kept off: it looks only every few seconds.
class WriteStop final : public rocksdb::EventListener {
 public:
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason /*reason*/, rocksdb::Status /*error*/,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }
  void OnBackgroundError(rocksdb::BackgroundErrorReason reason, rocksdb::Status* error) override {
    using Severity = rocksdb::Status::Severity;
    // Those that RocksDB would try again by itself have no severity; in compactions it does so unasked.
    const bool untold =
        error->severity() == Severity::kNoError && reason != rocksdb::BackgroundErrorReason::kCompaction;
    if (error->severity() < Severity::kHardError && !untold) return;
    MutexLock lock(&mu_);
    if (error_.ok()) error_ = *error;
    stopped_ = true;
  }
  rocksdb::Status error() ABSL_LOCKS_EXCLUDED(mu_) {
    if (!stopped_.load()) return rocksdb::Status::OK();
    MutexLock lock(&mu_);
    return error_;
  }

 private:
  std::atomic<bool> stopped_{false};
  Mutex mu_;
  rocksdb::Status error_ ABSL_GUARDED_BY(mu_);
};

namespace {

rocksdb::DBOptions DatabaseOptions(rocksdb::Env* env, std::shared_ptr<WriteStop> stop) {
  rocksdb::DBOptions options;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  options.max_open_files = 256;
  options.max_background_jobs = 2;
  options.max_total_wal_size = 64 * kMiB;
  options.allow_fallocate = false;  // else each log takes 64 MiB of the disk at once
  options.info_log = std::make_shared<NoLog>();
  options.listeners.push_back(std::move(stop));
  options.max_bgerror_resume_count = 0;
  options.avoid_flush_during_shutdown = true;  // what is not flushed then is nobody's, or in the log
  options.env = env;
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

// Of the logs, which an opening makes tables of.
uint64_t LogBytes(const std::string& path, rocksdb::Env* env) {
  std::vector<std::string> names;
  if (!env->GetChildren(path, &names).ok()) return 0;
  uint64_t bytes = 0;
  for (const std::string& name : names) {
    uint64_t size = 0;
    if (name.ends_with(".log") && env->GetFileSize(path + "/" + name, &size).ok()) bytes += size;
  }
  return bytes;
}

rocksdb::Status WriteProbe(const std::string& name, rocksdb::Env* env) {
  std::unique_ptr<rocksdb::WritableFile> file;
  rocksdb::Status status = env->NewWritableFile(name, &file, rocksdb::EnvOptions());
  if (status.ok()) status = file->Append(std::string(kProbeBytes, 'p'));
  if (status.ok()) status = file->Sync();
  if (status.ok()) status = file->Close();
  return status;
}

}  // namespace

std::string_view TableName(Table table) { return kFamilies[static_cast<size_t>(table)]; }

rocksdb::Status Database::Open(const std::string& path, rocksdb::Env* env, std::unique_ptr<Database>* out) {
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
  descriptors.emplace_back(rocksdb::kDefaultColumnFamilyName, rocksdb::ColumnFamilyOptions());
  for (size_t table = 0; table < kTables; ++table) {
    descriptors.emplace_back(kFamilies[table], FamilyOptions(static_cast<Table>(table)));
  }
  auto stop = std::make_shared<WriteStop>();
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  rocksdb::DB* db = nullptr;
  rocksdb::Status status = rocksdb::DB::Open(DatabaseOptions(env, stop), path, descriptors, &families, &db);
  if (!status.ok()) return status;
  out->reset(new Database(std::unique_ptr<rocksdb::DB>(db), std::move(families), std::move(stop)));
  return status;
}

Database::Database(std::unique_ptr<rocksdb::DB> db, std::vector<rocksdb::ColumnFamilyHandle*> families,
                   std::shared_ptr<WriteStop> stop)
    : db_(std::move(db)), families_(std::move(families)), stop_(std::move(stop)) {}

Database::~Database() {
  for (auto* family : families_) db_->DestroyColumnFamilyHandle(family).PermitUncheckedError();
  db_->Close().PermitUncheckedError();
}

rocksdb::ColumnFamilyHandle* Database::Family(Table table) const {
  return families_[static_cast<size_t>(table) + 1];
}

Table Database::TableOf(uint32_t id) const {
  for (size_t table = 0; table < kTables; ++table) {
    if (Family(static_cast<Table>(table))->GetID() == id) return static_cast<Table>(table);
  }
  EPIC_CHECK(false);
}

rocksdb::Status Database::StoppedBy() const { return stop_->error(); }

rocksdb::Status ProbeDisk(const std::string& path, rocksdb::Env* env) {
  uint64_t free_bytes = 0;
  const bool known = env->GetFreeSpace(path, &free_bytes).ok();
  if (known && free_bytes < LogBytes(path, env) + kOpeningBytes) {
    return rocksdb::Status::NoSpace("too little to open the tables");
  }
  const std::string name = path + "/epic.probe";
  rocksdb::Status status = WriteProbe(name, env);
  const rocksdb::Status deleted = env->DeleteFile(name);
  return status.ok() ? deleted : status;
}

}  // namespace epic::kv_store
