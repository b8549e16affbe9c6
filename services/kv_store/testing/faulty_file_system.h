// Files in memory that fail on purpose and lose what was not synced: the FileSystem under the extents, for
// tests only. Faults are drawn by a seed, per piece of I/O: errors, short reads, torn writes, flipped bits, a
// full disk. Power can be cut after a number of steps (each piece that is written, each sync, and so on); a
// crash keeps, of each sector of 512 bytes that was not synced, the old or the new bytes. A gate holds
// transfers back, for a slow disk. Complains when something is not in pages. Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_FAULTY_FILE_SYSTEM_H_
#define EPIC_SERVICES_KV_STORE_TESTING_FAULTY_FILE_SYSTEM_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "services/kv_store/extents/file_system.h"
#include "services/kv_store/testing/power.h"

namespace epic::kv_store {

// Chances in percent, each drawn by itself per piece, sync or call.
struct FileFaults {
  int read_error = 0;
  int short_read = 0;
  int bit_flip = 0;  // in what is read
  int write_error = 0;
  int torn_write = 0;  // a part is written, then an error
  int short_write = 0;
  int sync_error = 0;  // what it should have synced may be lost
  int disk_full = 0;
};

class FaultyFileSystem final : public FileSystem {
 public:
  // `power` is that of the disk, which may be shared with other files.
  explicit FaultyFileSystem(uint64_t seed, uint64_t capacity_bytes = std::numeric_limits<uint64_t>::max(),
                            std::shared_ptr<Power> power = std::make_shared<Power>())
      : power_(std::move(power)), capacity_bytes_(capacity_bytes), rng_(seed) {}

  void SetFaults(const FileFaults& faults) ABSL_LOCKS_EXCLUDED(mu_);
  void SetCapacity(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // From now on a sync makes nothing safe and returns OK; for tests of tests.
  void SetLosesSyncs(bool loses) ABSL_LOCKS_EXCLUDED(mu_);
  // Cuts the power after `steps` more steps: every call fails from then on, until Crash().
  void CutPowerAfter(uint64_t steps) { power_->CutAfter(steps); }
  bool power_is_cut() { return power_->is_cut(); }
  // Loses what was not synced, and brings the power back. REQUIRES: no file is open.
  void Crash(Rng* rng) ABSL_LOCKS_EXCLUDED(mu_);
  // While the gate is shut transfers wait.
  void SetGate(bool open) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until that many transfers wait at the gate.
  void AwaitHeld(uint64_t transfers) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether the bytes stand in any file, as they would be found on the disk now.
  bool Contains(const std::string& bytes) ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t syncs() ABSL_LOCKS_EXCLUDED(mu_);
  // Flips a bit of a page that some file has, for good; false: there is no such byte.
  bool Damage(const std::string& path, uint64_t offset) ABSL_LOCKS_EXCLUDED(mu_);
  void Remove(const std::string& path) ABSL_LOCKS_EXCLUDED(mu_);

  std::string_view io_name() const override { return "memory"; }
  absl::Status MakeFolder(const std::string& folder) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override;
  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path) override;
  absl::Status SyncFolder(const std::string& folder) override;
  uint64_t FreeBytes(const std::string& folder) override;
  void Transfer(IoKind kind, std::span<const IoPiece> pieces, const IoDone& done) override;

 private:
  class OpenFile;
  struct Content {
    std::string bytes;
    std::string durable;           // what a crash leaves for certain, but for unsynced sectors
    std::set<uint64_t> unsynced;   // pages
    std::set<uint64_t> allocated;  // pages
    bool named = false;            // its name outlives a crash
  };

  bool Strikes(int chance) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Step() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Take(Content* content, uint64_t offset, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t UsedPages() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<uint64_t> ReadPiece(Content* content, const IoPiece& piece)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<uint64_t> WritePiece(Content* content, const IoPiece& piece)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<Power> power_;
  Mutex mu_;
  CondVar gate_changed_;
  uint64_t capacity_bytes_ ABSL_GUARDED_BY(mu_);
  Rng rng_ ABSL_GUARDED_BY(mu_);
  FileFaults faults_ ABSL_GUARDED_BY(mu_);
  bool loses_syncs_ ABSL_GUARDED_BY(mu_) = false;
  bool gate_open_ ABSL_GUARDED_BY(mu_) = true;
  uint64_t held_ ABSL_GUARDED_BY(mu_) = 0;  // transfers at the gate
  uint64_t syncs_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, std::shared_ptr<Content>> contents_ ABSL_GUARDED_BY(mu_);  // by path
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TESTING_FAULTY_FILE_SYSTEM_H_
