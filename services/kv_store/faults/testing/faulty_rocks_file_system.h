// Files in memory for RocksDB that lose what was not synced and fail on purpose: a rocksdb::FileSystem for
// tests only. Shares its Power with the files under the extents, so that both lose what they had not synced
// at the same instant. Thread-safe.
//
// Crash rules, those of a journalling file system with ordered data. A file keeps what it had at its last
// sync that returned OK, and any part of the beginning of what was appended since; of a log that part may end
// in zeros. What a sync failed to bring to the disk is not there after a later sync either. Of the changes of
// names any number of the first ones come through; those before a sync of their folder are certain.
#ifndef EPIC_SERVICES_KV_STORE_FAULTS_TESTING_FAULTY_ROCKS_FILE_SYSTEM_H_
#define EPIC_SERVICES_KV_STORE_FAULTS_TESTING_FAULTY_ROCKS_FILE_SYSTEM_H_

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "services/kv_store/testing/power.h"

namespace epic::kv_store {

// Chances in percent, each drawn by itself per read.
struct RocksReadFaults {
  int read_error = 0;
  int short_read = 0;
  int bit_flip = 0;
};

enum class RocksOp : uint8_t { kRead, kAppend, kSync, kSyncFolder, kCreate, kRename, kDelete };
inline constexpr size_t kRocksOps = 7;

class FaultyRocksFileSystem final : public rocksdb::FileSystem {
 public:
  FaultyRocksFileSystem(uint64_t seed, std::shared_ptr<Power> power) : power_(std::move(power)), rng_(seed) {}

  // Drops what was not synced. Restores no power. REQUIRES: no file is in use.
  void Crash(Rng* rng) ABSL_LOCKS_EXCLUDED(mu_);
  void SetReadFaults(const RocksReadFaults& faults) ABSL_LOCKS_EXCLUDED(mu_);
  // Of all files together; what does not fit is NoSpace, after the part that does.
  void SetCapacity(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // The n-th call of a kind from now on fails, and so do the next `calls` - 1. The first is 1.
  void FailNth(RocksOp op, uint64_t n, uint64_t calls = 1) ABSL_LOCKS_EXCLUDED(mu_);
  // The same of the next `calls` appends or syncs of files whose name holds `part`; 0: no more.
  void FailNamed(RocksOp op, const std::string& part, uint64_t calls) ABSL_LOCKS_EXCLUDED(mu_);
  // Of failed syncs so many in a hundred lose at once, for readers too, what they did not bring to the disk:
  // it is zeros, or missing. Else it can be read until a crash.
  void SetLostOfFailedSyncs(int percent) ABSL_LOCKS_EXCLUDED(mu_);
  // Calls of a kind so far.
  uint64_t Calls(RocksOp op) ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t UsedBytes() ABSL_LOCKS_EXCLUDED(mu_);
  // Whether the bytes stand in any file that has a name.
  bool Contains(const std::string& bytes) ABSL_LOCKS_EXCLUDED(mu_);

  const char* Name() const override { return "FaultyRocksFileSystem"; }
  rocksdb::IOStatus NewSequentialFile(const std::string& name, const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewRandomAccessFile(const std::string& name, const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus ReopenWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* file,
                                       rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewDirectory(const std::string& name, const rocksdb::IOOptions& options,
                                 std::unique_ptr<rocksdb::FSDirectory>* folder,
                                 rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus FileExists(const std::string& name, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus GetChildren(const std::string& folder, const rocksdb::IOOptions& options,
                                std::vector<std::string>* names, rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus DeleteFile(const std::string& name, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Truncate(const std::string& name, size_t size, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus CreateDir(const std::string& name, const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus CreateDirIfMissing(const std::string& name, const rocksdb::IOOptions& options,
                                       rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus DeleteDir(const std::string& name, const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus GetFileSize(const std::string& name, const rocksdb::IOOptions& options, uint64_t* size,
                                rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus GetFileModificationTime(const std::string& name, const rocksdb::IOOptions& options,
                                            uint64_t* time, rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus LockFile(const std::string& name, const rocksdb::IOOptions& options,
                             rocksdb::FileLock** lock, rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus UnlockFile(rocksdb::FileLock* lock, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus GetTestDirectory(const rocksdb::IOOptions& options, std::string* path,
                                     rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewLogger(const std::string& name, const rocksdb::IOOptions& options,
                              std::shared_ptr<rocksdb::Logger>* logger,
                              rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus GetAbsolutePath(const std::string& path, const rocksdb::IOOptions& options,
                                    std::string* absolute, rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus GetFreeSpace(const std::string& path, const rocksdb::IOOptions& options, uint64_t* bytes,
                                 rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus IsDirectory(const std::string& path, const rocksdb::IOOptions& options, bool* is_folder,
                                rocksdb::IODebugContext* debug) override;

 private:
  class Folder;
  class Reader;
  class Scanner;
  class Writer;
  struct Content {
    std::string name;  // at first
    std::string bytes;
    uint64_t synced = 0;
    bool sync_failed = false;  // no later sync makes up for it
  };
  using ContentPtr = std::shared_ptr<Content>;
  // A change of a name that no sync of its folder has made certain yet.
  struct NameChange {
    std::string folder;
    std::string removed;  // empty: none
    std::string made;     // empty: none
    ContentPtr content;   // of what was made
  };
  struct Failing {
    uint64_t calls = 0;  // so far
    uint64_t first = 0;  // call that fails; 0: none
    uint64_t last = 0;
    std::string part;    // of the names of files
    uint64_t named = 0;  // calls of such files that fail from now on
  };

  // OK: go on. Counts the call, and where it changes something, a step.
  rocksdb::IOStatus Begin(RocksOp op) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  rocksdb::IOStatus BeginOf(RocksOp op, const Content& content) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Strikes(int chance) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t UsedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ContentPtr Find(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  rocksdb::IOStatus Open(const std::string& name, ContentPtr* content) ABSL_LOCKS_EXCLUDED(mu_);
  rocksdb::IOStatus Append(Content* content, std::string_view bytes) ABSL_LOCKS_EXCLUDED(mu_);
  rocksdb::IOStatus Sync(Content* content) ABSL_LOCKS_EXCLUDED(mu_);
  rocksdb::IOStatus SyncFolder(const std::string& folder) ABSL_LOCKS_EXCLUDED(mu_);
  rocksdb::IOStatus Read(Content* content, uint64_t offset, size_t bytes, rocksdb::Slice* result, char* out)
      ABSL_LOCKS_EXCLUDED(mu_);
  void ApplyTo(std::map<std::string, ContentPtr>* names, const NameChange& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void LoseTail(const std::string& name, Content* content, Rng* rng);

  const std::shared_ptr<Power> power_;
  Mutex mu_;
  Rng rng_ ABSL_GUARDED_BY(mu_);
  RocksReadFaults read_faults_ ABSL_GUARDED_BY(mu_);
  uint64_t capacity_bytes_ ABSL_GUARDED_BY(mu_) = std::numeric_limits<uint64_t>::max();
  std::array<Failing, kRocksOps> failing_ ABSL_GUARDED_BY(mu_);
  int lost_of_failed_syncs_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, ContentPtr> names_ ABSL_GUARDED_BY(mu_);    // as processes see them
  std::map<std::string, ContentPtr> durable_ ABSL_GUARDED_BY(mu_);  // as a crash leaves them for certain
  std::vector<NameChange> unsynced_ ABSL_GUARDED_BY(mu_);           // in their order
};

// An Env on these files, whose RocksDB does not sleep: it would for a second after each failure.
std::unique_ptr<rocksdb::Env> MakeSleeplessEnv(std::shared_ptr<FaultyRocksFileSystem> files);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_FAULTS_TESTING_FAULTY_ROCKS_FILE_SYSTEM_H_
