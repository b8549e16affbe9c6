// A file system for RocksDB that counts how often files and folders are synced. Thread-safe. For tests and
// benchmarks only.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_COUNTING_FILE_SYSTEM_H_
#define EPIC_SERVICES_KV_STORE_TESTING_COUNTING_FILE_SYSTEM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "rocksdb/file_system.h"

namespace epic::kv_store {

class SyncCounter {
 public:
  void Add(const std::string& kind) {
    MutexLock lock(&mu_);
    ++counts_[kind];
  }
  // By kind of file: its suffix ("log", "sst", "blob"), "MANIFEST", or "folder".
  std::map<std::string, uint64_t> counts() const {
    MutexLock lock(&mu_);
    return counts_;
  }
  uint64_t total() const {
    uint64_t sum = 0;
    for (const auto& [kind, count] : counts()) sum += count;
    return sum;
  }

 private:
  mutable Mutex mu_;
  std::map<std::string, uint64_t> counts_ ABSL_GUARDED_BY(mu_);
};

class CountedFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  CountedFile(std::unique_ptr<rocksdb::FSWritableFile> file, std::string kind, SyncCounter* counter)
      : FSWritableFileOwnerWrapper(std::move(file)), kind_(std::move(kind)), counter_(counter) {}
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override {
    counter_->Add(kind_);
    return FSWritableFileOwnerWrapper::Sync(options, debug);
  }
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override {
    counter_->Add(kind_);
    return FSWritableFileOwnerWrapper::Fsync(options, debug);
  }

 private:
  const std::string kind_;
  SyncCounter* const counter_;
};

class CountedFolder final : public rocksdb::FSDirectoryWrapper {
 public:
  CountedFolder(std::unique_ptr<rocksdb::FSDirectory> folder, SyncCounter* counter)
      : FSDirectoryWrapper(std::move(folder)), counter_(counter) {}
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override {
    counter_->Add("folder");
    return FSDirectoryWrapper::Fsync(options, debug);
  }
  rocksdb::IOStatus FsyncWithDirOptions(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug,
                                        const rocksdb::DirFsyncOptions& folder_options) override {
    counter_->Add("folder");
    return FSDirectoryWrapper::FsyncWithDirOptions(options, debug, folder_options);
  }

 private:
  SyncCounter* const counter_;
};

class CountingFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  // `counter` outlives the file system and its files.
  explicit CountingFileSystem(SyncCounter* counter)
      : FileSystemWrapper(rocksdb::FileSystem::Default()), counter_(counter) {}
  const char* Name() const override { return "CountingFileSystem"; }
  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override {
    rocksdb::IOStatus status = FileSystemWrapper::NewWritableFile(name, options, file, debug);
    if (status.ok()) *file = std::make_unique<CountedFile>(std::move(*file), KindOf(name), counter_);
    return status;
  }
  rocksdb::IOStatus NewDirectory(const std::string& name, const rocksdb::IOOptions& options,
                                 std::unique_ptr<rocksdb::FSDirectory>* folder,
                                 rocksdb::IODebugContext* debug) override {
    rocksdb::IOStatus status = FileSystemWrapper::NewDirectory(name, options, folder, debug);
    if (status.ok()) *folder = std::make_unique<CountedFolder>(std::move(*folder), counter_);
    return status;
  }

 private:
  static std::string KindOf(const std::string& name) {
    const std::string file = name.substr(name.rfind('/') + 1);
    if (file.starts_with("MANIFEST")) return "MANIFEST";
    const size_t dot = file.rfind('.');
    return dot == std::string::npos ? file : file.substr(dot + 1);
  }

  SyncCounter* const counter_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TESTING_COUNTING_FILE_SYSTEM_H_
