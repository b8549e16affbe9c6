#include "services/kv_store/faults/testing/faulty_rocks_file_system.h"

#include <algorithm>
#include <cstdarg>
#include <cstring>
#include <set>
#include <string_view>
#include <thread>

#include "rocksdb/system_clock.h"

namespace epic::kv_store {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

constexpr uint64_t kSector = 512;

std::string FolderOf(const std::string& name) { return name.substr(0, name.rfind('/')); }
std::string_view ViewOf(const Slice& slice) { return {slice.data(), slice.size()}; }

// What RocksDB has to say of itself goes nowhere.
class NoLogger final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char* /*format*/, va_list /*arguments*/) override {}
};

class NoLock final : public rocksdb::FileLock {};

class SleeplessClock final : public rocksdb::SystemClockWrapper {
 public:
  SleeplessClock() : SystemClockWrapper(rocksdb::SystemClock::Default()) {}
  const char* Name() const override { return "SleeplessClock"; }
  void SleepForMicroseconds(int /*micros*/) override { std::this_thread::yield(); }
};

class SleeplessEnv final : public rocksdb::EnvWrapper {
 public:
  explicit SleeplessEnv(const std::shared_ptr<rocksdb::FileSystem>& files)
      : EnvWrapper(rocksdb::NewCompositeEnv(files)) {
    file_system_ = files;
    system_clock_ = std::make_shared<SleeplessClock>();
  }
};

}  // namespace

// --- open files

class FaultyRocksFileSystem::Scanner final : public rocksdb::FSSequentialFile {
 public:
  Scanner(FaultyRocksFileSystem* files, ContentPtr content) : files_(files), content_(std::move(content)) {}
  IOStatus Read(size_t bytes, const IOOptions& /*options*/, Slice* result, char* out,
                IODebugContext* /*debug*/) override {
    IOStatus status = files_->Read(content_.get(), at_, bytes, result, out);
    if (status.ok()) at_ += result->size();
    return status;
  }
  IOStatus Skip(uint64_t bytes) override {
    at_ += bytes;
    return IOStatus::OK();
  }

 private:
  FaultyRocksFileSystem* const files_;
  const ContentPtr content_;
  uint64_t at_ = 0;
};

class FaultyRocksFileSystem::Reader final : public rocksdb::FSRandomAccessFile {
 public:
  Reader(FaultyRocksFileSystem* files, ContentPtr content) : files_(files), content_(std::move(content)) {}
  IOStatus Read(uint64_t offset, size_t bytes, const IOOptions& /*options*/, Slice* result, char* out,
                IODebugContext* /*debug*/) const override {
    return files_->Read(content_.get(), offset, bytes, result, out);
  }

 private:
  FaultyRocksFileSystem* const files_;
  const ContentPtr content_;
};

class FaultyRocksFileSystem::Writer final : public rocksdb::FSWritableFile {
 public:
  Writer(FaultyRocksFileSystem* files, ContentPtr content) : files_(files), content_(std::move(content)) {}
  using FSWritableFile::Append;
  IOStatus Append(const Slice& data, const IOOptions& /*options*/, IODebugContext* /*debug*/) override {
    return files_->Append(content_.get(), ViewOf(data));
  }
  IOStatus Truncate(uint64_t size, const IOOptions& /*options*/, IODebugContext* /*debug*/) override {
    MutexLock lock(&files_->mu_);
    content_->bytes.resize(size);
    content_->synced = std::min(content_->synced, size);
    return IOStatus::OK();
  }
  IOStatus Close(const IOOptions& /*options*/, IODebugContext* /*debug*/) override { return IOStatus::OK(); }
  IOStatus Flush(const IOOptions& /*options*/, IODebugContext* /*debug*/) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions& /*options*/, IODebugContext* /*debug*/) override {
    return files_->Sync(content_.get());
  }
  bool IsSyncThreadSafe() const override { return true; }
  uint64_t GetFileSize(const IOOptions& /*options*/, IODebugContext* /*debug*/) override {
    MutexLock lock(&files_->mu_);
    return content_->bytes.size();
  }

 private:
  FaultyRocksFileSystem* const files_;
  const ContentPtr content_;
};

class FaultyRocksFileSystem::Folder final : public rocksdb::FSDirectory {
 public:
  Folder(FaultyRocksFileSystem* files, std::string name) : files_(files), name_(std::move(name)) {}
  IOStatus Fsync(const IOOptions& /*options*/, IODebugContext* /*debug*/) override {
    return files_->SyncFolder(name_);
  }
  IOStatus Close(const IOOptions& /*options*/, IODebugContext* /*debug*/) override { return IOStatus::OK(); }

 private:
  FaultyRocksFileSystem* const files_;
  const std::string name_;
};

// --- faults

void FaultyRocksFileSystem::LoseTail(const std::string& name, Content* content, Rng* rng) {
  const uint64_t tail = content->bytes.size() - content->synced;
  if (tail > 0) {
    // All, nothing, or any part of it.
    const uint64_t draw = rng->Below(4);
    const uint64_t kept = draw == 0 ? 0 : draw == 1 ? tail : rng->Below(tail + 1);
    content->bytes.resize(content->synced + kept);
    if (name.ends_with(".log") && draw == 3) {
      content->bytes.append(std::min(rng->Below(2 * kSector), tail - kept), '\0');
    }
  }
  content->synced = content->bytes.size();
  content->sync_failed = false;
}

void FaultyRocksFileSystem::Crash(Rng* rng) {
  MutexLock lock(&mu_);
  const uint64_t first = rng->Below(2) == 0 ? 0 : rng->Below(unsynced_.size() + 1);
  for (size_t i = 0; i < first; ++i) ApplyTo(&durable_, unsynced_[i]);
  unsynced_.clear();
  std::set<const Content*> seen;
  for (auto& [name, content] : durable_) {
    if (seen.insert(content.get()).second) LoseTail(name, content.get(), rng);
  }
  names_ = durable_;
  read_faults_ = {};
  failing_ = {};
}

void FaultyRocksFileSystem::SetReadFaults(const RocksReadFaults& faults) {
  MutexLock lock(&mu_);
  read_faults_ = faults;
}

void FaultyRocksFileSystem::SetCapacity(uint64_t bytes) {
  MutexLock lock(&mu_);
  capacity_bytes_ = bytes;
}

void FaultyRocksFileSystem::FailNth(RocksOp op, uint64_t n, uint64_t calls) {
  MutexLock lock(&mu_);
  Failing& failing = failing_[static_cast<size_t>(op)];
  failing.first = failing.calls + n;
  failing.last = failing.first + calls - 1;
}

void FaultyRocksFileSystem::FailNamed(RocksOp op, const std::string& part, uint64_t calls) {
  MutexLock lock(&mu_);
  failing_[static_cast<size_t>(op)].part = part;
  failing_[static_cast<size_t>(op)].named = calls;
}

void FaultyRocksFileSystem::SetLostOfFailedSyncs(int percent) {
  MutexLock lock(&mu_);
  lost_of_failed_syncs_ = percent;
}

uint64_t FaultyRocksFileSystem::Calls(RocksOp op) {
  MutexLock lock(&mu_);
  return failing_[static_cast<size_t>(op)].calls;
}

uint64_t FaultyRocksFileSystem::UsedBytes() {
  MutexLock lock(&mu_);
  return UsedLocked();
}

bool FaultyRocksFileSystem::Contains(const std::string& bytes) {
  MutexLock lock(&mu_);
  return std::any_of(names_.begin(), names_.end(),
                     [&](const auto& file) { return file.second->bytes.find(bytes) != std::string::npos; });
}

IOStatus FaultyRocksFileSystem::Begin(RocksOp op) {
  Failing& failing = failing_[static_cast<size_t>(op)];
  ++failing.calls;
  if (op == RocksOp::kRead) {
    if (power_->is_cut()) return IOStatus::IOError("the power is cut");
  } else {
    const Power::Outcome outcome = power_->Step();
    if (outcome == Power::Outcome::kCut) return IOStatus::IOError("the power is cut");
    if (outcome == Power::Outcome::kFails) return IOStatus::IOError("injected");
  }
  const bool fails = failing.first > 0 && failing.calls >= failing.first && failing.calls <= failing.last;
  return fails ? IOStatus::IOError("injected") : IOStatus::OK();
}

IOStatus FaultyRocksFileSystem::BeginOf(RocksOp op, const Content& content) {
  IOStatus status = Begin(op);
  Failing& failing = failing_[static_cast<size_t>(op)];
  if (!status.ok() || failing.named == 0 || content.name.find(failing.part) == std::string::npos)
    return status;
  --failing.named;
  return IOStatus::IOError("injected");
}

bool FaultyRocksFileSystem::Strikes(int chance) {
  return chance > 0 && rng_.Below(100) < static_cast<uint64_t>(chance);
}

uint64_t FaultyRocksFileSystem::UsedLocked() {
  uint64_t bytes = 0;
  for (const auto& [name, content] : names_) bytes += content->bytes.size();
  return bytes;
}

// --- bytes

IOStatus FaultyRocksFileSystem::Append(Content* content, std::string_view bytes) {
  power_->Pass(bytes.size());
  MutexLock lock(&mu_);
  IOStatus status = BeginOf(RocksOp::kAppend, *content);
  if (!status.ok()) return status;
  const uint64_t used = UsedLocked();
  const uint64_t room = capacity_bytes_ > used ? capacity_bytes_ - used : 0;
  content->bytes.append(bytes.substr(0, room));
  return bytes.size() > room ? IOStatus::NoSpace("the disk is full") : IOStatus::OK();
}

IOStatus FaultyRocksFileSystem::Sync(Content* content) {
  power_->Pass(0);
  MutexLock lock(&mu_);
  IOStatus status = BeginOf(RocksOp::kSync, *content);
  if (!status.ok() && !content->sync_failed && !power_->is_cut() && Strikes(lost_of_failed_syncs_)) {
    const uint64_t size = content->bytes.size();
    content->bytes.resize(content->synced + rng_.Below(size - content->synced + 1));
    if (rng_.Below(2) == 0) content->bytes.resize(size, '\0');
  }
  if (!status.ok()) content->sync_failed = true;
  if (!content->sync_failed) content->synced = content->bytes.size();
  return status;
}

IOStatus FaultyRocksFileSystem::SyncFolder(const std::string& folder) {
  power_->Pass(0);
  MutexLock lock(&mu_);
  IOStatus status = Begin(RocksOp::kSyncFolder);
  if (!status.ok()) return status;
  std::vector<NameChange> others;
  for (NameChange& change : unsynced_) {
    if (change.folder == folder) {
      ApplyTo(&durable_, change);
    } else {
      others.push_back(std::move(change));
    }
  }
  unsynced_ = std::move(others);
  return status;
}

IOStatus FaultyRocksFileSystem::Read(Content* content, uint64_t offset, size_t bytes, Slice* result,
                                     char* out) {
  power_->Pass(bytes);
  MutexLock lock(&mu_);
  IOStatus status = Begin(RocksOp::kRead);
  if (status.ok() && Strikes(read_faults_.read_error)) status = IOStatus::IOError("injected");
  if (!status.ok()) return status;
  const uint64_t size = content->bytes.size();
  uint64_t got = offset < size ? std::min<uint64_t>(bytes, size - offset) : 0;
  if (got > 0 && Strikes(read_faults_.short_read)) got = rng_.Below(got);
  if (got > 0) std::memcpy(out, content->bytes.data() + offset, got);
  if (got > 0 && Strikes(read_faults_.bit_flip))
    out[rng_.Below(got)] ^= static_cast<char>(1 << rng_.Below(8));
  *result = Slice(out, got);
  return IOStatus::OK();
}

// --- names

void FaultyRocksFileSystem::ApplyTo(std::map<std::string, ContentPtr>* names, const NameChange& change) {
  if (!change.removed.empty()) names->erase(change.removed);
  if (!change.made.empty()) (*names)[change.made] = change.content;
}

FaultyRocksFileSystem::ContentPtr FaultyRocksFileSystem::Find(const std::string& name) {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : found->second;
}

IOStatus FaultyRocksFileSystem::Open(const std::string& name, ContentPtr* content) {
  power_->Pass(0);
  MutexLock lock(&mu_);
  if (power_->is_cut()) return IOStatus::IOError("the power is cut");
  *content = Find(name);
  return *content == nullptr ? IOStatus::PathNotFound(name) : IOStatus::OK();
}

IOStatus FaultyRocksFileSystem::NewSequentialFile(const std::string& name, const FileOptions& /*options*/,
                                                  std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                                  IODebugContext* /*debug*/) {
  ContentPtr content;
  IOStatus status = Open(name, &content);
  if (status.ok()) *file = std::make_unique<Scanner>(this, std::move(content));
  return status;
}

IOStatus FaultyRocksFileSystem::NewRandomAccessFile(const std::string& name, const FileOptions& /*options*/,
                                                    std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                                    IODebugContext* /*debug*/) {
  ContentPtr content;
  IOStatus status = Open(name, &content);
  if (status.ok()) *file = std::make_unique<Reader>(this, std::move(content));
  return status;
}

IOStatus FaultyRocksFileSystem::NewWritableFile(const std::string& name, const FileOptions& /*options*/,
                                                std::unique_ptr<rocksdb::FSWritableFile>* file,
                                                IODebugContext* /*debug*/) {
  power_->Pass(0);
  MutexLock lock(&mu_);
  IOStatus status = Begin(RocksOp::kCreate);
  if (!status.ok()) return status;
  // A file of that name begins anew, as another one.
  unsynced_.push_back({FolderOf(name), "", name, std::make_shared<Content>(Content{.name = name})});
  ApplyTo(&names_, unsynced_.back());
  *file = std::make_unique<Writer>(this, unsynced_.back().content);
  return status;
}

IOStatus FaultyRocksFileSystem::ReopenWritableFile(const std::string& name, const FileOptions& options,
                                                   std::unique_ptr<rocksdb::FSWritableFile>* file,
                                                   IODebugContext* debug) {
  ContentPtr content;
  IOStatus status = Open(name, &content);
  if (status.IsPathNotFound()) return NewWritableFile(name, options, file, debug);
  if (status.ok()) *file = std::make_unique<Writer>(this, std::move(content));
  return status;
}

IOStatus FaultyRocksFileSystem::NewDirectory(const std::string& name, const IOOptions& /*options*/,
                                             std::unique_ptr<rocksdb::FSDirectory>* folder,
                                             IODebugContext* /*debug*/) {
  *folder = std::make_unique<Folder>(this, name.ends_with('/') ? name.substr(0, name.size() - 1) : name);
  return IOStatus::OK();
}

IOStatus FaultyRocksFileSystem::FileExists(const std::string& name, const IOOptions& /*options*/,
                                           IODebugContext* /*debug*/) {
  ContentPtr content;
  IOStatus status = Open(name, &content);
  return status.IsPathNotFound() ? IOStatus::NotFound(name) : status;
}

IOStatus FaultyRocksFileSystem::GetChildren(const std::string& folder, const IOOptions& /*options*/,
                                            std::vector<std::string>* names, IODebugContext* /*debug*/) {
  MutexLock lock(&mu_);
  if (power_->is_cut()) return IOStatus::IOError("the power is cut");
  names->clear();
  for (const auto& [name, content] : names_) {
    if (FolderOf(name) == folder) names->push_back(name.substr(folder.size() + 1));
  }
  return IOStatus::OK();
}

IOStatus FaultyRocksFileSystem::DeleteFile(const std::string& name, const IOOptions& /*options*/,
                                           IODebugContext* /*debug*/) {
  power_->Pass(0);
  MutexLock lock(&mu_);
  IOStatus status = Begin(RocksOp::kDelete);
  if (!status.ok()) return status;
  if (Find(name) == nullptr) return IOStatus::PathNotFound(name);
  unsynced_.push_back({FolderOf(name), name, "", nullptr});
  ApplyTo(&names_, unsynced_.back());
  return status;
}

IOStatus FaultyRocksFileSystem::RenameFile(const std::string& from, const std::string& to,
                                           const IOOptions& /*options*/, IODebugContext* /*debug*/) {
  power_->Pass(0);
  MutexLock lock(&mu_);
  IOStatus status = Begin(RocksOp::kRename);
  if (!status.ok()) return status;
  ContentPtr content = Find(from);
  if (content == nullptr) return IOStatus::PathNotFound(from);
  unsynced_.push_back({FolderOf(to), from, to, std::move(content)});
  ApplyTo(&names_, unsynced_.back());
  return status;
}

IOStatus FaultyRocksFileSystem::Truncate(const std::string& name, size_t size, const IOOptions& /*options*/,
                                         IODebugContext* /*debug*/) {
  ContentPtr content;
  IOStatus status = Open(name, &content);
  if (!status.ok()) return status;
  MutexLock lock(&mu_);
  content->bytes.resize(size);
  content->synced = std::min<uint64_t>(content->synced, size);
  return status;
}

IOStatus FaultyRocksFileSystem::GetFileSize(const std::string& name, const IOOptions& /*options*/,
                                            uint64_t* size, IODebugContext* /*debug*/) {
  ContentPtr content;
  IOStatus status = Open(name, &content);
  if (!status.ok()) return status;
  MutexLock lock(&mu_);
  *size = content->bytes.size();
  return status;
}

// Folders are there.
IOStatus FaultyRocksFileSystem::CreateDir(const std::string& /*name*/, const IOOptions& /*options*/,
                                          IODebugContext* /*debug*/) {
  return IOStatus::OK();
}
IOStatus FaultyRocksFileSystem::CreateDirIfMissing(const std::string& /*name*/, const IOOptions& /*options*/,
                                                   IODebugContext* /*debug*/) {
  return IOStatus::OK();
}
IOStatus FaultyRocksFileSystem::DeleteDir(const std::string& /*name*/, const IOOptions& /*options*/,
                                          IODebugContext* /*debug*/) {
  return IOStatus::OK();
}
IOStatus FaultyRocksFileSystem::IsDirectory(const std::string& path, const IOOptions& /*options*/,
                                            bool* is_folder, IODebugContext* /*debug*/) {
  MutexLock lock(&mu_);
  *is_folder = Find(path) == nullptr;
  return IOStatus::OK();
}

IOStatus FaultyRocksFileSystem::GetFileModificationTime(const std::string& /*name*/,
                                                        const IOOptions& /*options*/, uint64_t* time,
                                                        IODebugContext* /*debug*/) {
  *time = 0;
  return IOStatus::OK();
}

// One process has this memory; the store's own lock guards its directory.
IOStatus FaultyRocksFileSystem::LockFile(const std::string& /*name*/, const IOOptions& /*options*/,
                                         rocksdb::FileLock** lock, IODebugContext* /*debug*/) {
  *lock = new NoLock;
  return IOStatus::OK();
}
IOStatus FaultyRocksFileSystem::UnlockFile(rocksdb::FileLock* lock, const IOOptions& /*options*/,
                                           IODebugContext* /*debug*/) {
  delete lock;
  return IOStatus::OK();
}

IOStatus FaultyRocksFileSystem::GetTestDirectory(const IOOptions& /*options*/, std::string* path,
                                                 IODebugContext* /*debug*/) {
  *path = "/test";
  return IOStatus::OK();
}

IOStatus FaultyRocksFileSystem::NewLogger(const std::string& /*name*/, const IOOptions& /*options*/,
                                          std::shared_ptr<rocksdb::Logger>* logger,
                                          IODebugContext* /*debug*/) {
  *logger = std::make_shared<NoLogger>();
  return IOStatus::OK();
}

IOStatus FaultyRocksFileSystem::GetAbsolutePath(const std::string& path, const IOOptions& /*options*/,
                                                std::string* absolute, IODebugContext* /*debug*/) {
  *absolute = path;
  return IOStatus::OK();
}

IOStatus FaultyRocksFileSystem::GetFreeSpace(const std::string& /*path*/, const IOOptions& /*options*/,
                                             uint64_t* bytes, IODebugContext* /*debug*/) {
  MutexLock lock(&mu_);
  const uint64_t used = UsedLocked();
  *bytes = capacity_bytes_ > used ? capacity_bytes_ - used : 0;
  return IOStatus::OK();
}

std::unique_ptr<rocksdb::Env> MakeSleeplessEnv(std::shared_ptr<FaultyRocksFileSystem> files) {
  return std::make_unique<SleeplessEnv>(std::move(files));
}

}  // namespace epic::kv_store
