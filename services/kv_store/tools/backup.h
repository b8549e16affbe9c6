// Backups of what a node knows of its contexts: records, token ids and tombstones, not KV. Made of a store
// that is stopped, and joined into one that is stopped or not there yet. Memory is that of one context.
// Block; one thread at a time. The file is told in backup_format.h.
#ifndef EPIC_SERVICES_KV_STORE_TOOLS_BACKUP_H_
#define EPIC_SERVICES_KV_STORE_TOOLS_BACKUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "services/kv_store/core/table_store.h"
#include "services/kv_store/tools/backup_file.h"
#include "services/kv_store/tools/files.h"
#include "services/kv_store/tools/store_report.h"

namespace epic::kv_store {

// Called now and then with how many contexts are done.
using BackupProgress = std::function<void(uint64_t contexts)>;

struct BackupOptions {
  bool skip_damaged = false;  // leave out contexts that cannot be read whole, instead of giving up
  BackupProgress progress;
};

struct BackupReport {
  BackupSummary summary;
  StoreReport skipped;  // the faults for which contexts were left out; its counts are not filled in
};

// Writes a backup of the store in `dir` to `file`, which appears whole or not at all. Errors: AlreadyExists
// when it is there and `overwrite` is false; NotFound, FailedPrecondition and so on as StoppedTables::Open;
// DataLoss when a context cannot be read whole; those of the disk.
absl::StatusOr<BackupReport> CreateBackup(const std::string& dir, const std::string& file, bool overwrite,
                                          const Clock& clock, const BackupOptions& options);
// The same of tables that nobody changes, into a file that was begun.
absl::StatusOr<BackupReport> WriteBackup(TableStore* tables, std::unique_ptr<OutputFile> file,
                                         const BackupHeader& header, const BackupOptions& options);

struct RestoreReport {
  BackupSummary summary;
  uint64_t added = 0;        // contexts that the store did not have
  uint64_t changed = 0;      // that it had, and of which the backup knew something later
  uint64_t unchanged = 0;    // of which it knew all
  uint64_t removed = 0;      // that it had, and that the backup says are gone
  uint64_t stayed_gone = 0;  // that the backup has, and that were deleted or expired since
  uint64_t mended = 0;       // of the above, damaged rows that were replaced
  uint64_t left_alone = 0;   // contexts not touched: their tombstone here is damaged
  bool may_revive = false;   // older than deletions are remembered here: what was deleted then may be back
};

// Joins a backup with what the store in `dir` knows, by the rules of core/replica_state.h: later lives and
// later changes win, and what was deleted since stays deleted. Makes the directory where there is none. The
// whole file is checked before anything is changed. May be done again at any time. Errors: those of
// BackupReader and OpenRocksDbTables; Unimplemented when the store is of a newer version; those of the disk:
// then a part is restored, and doing it again does the rest.
absl::StatusOr<RestoreReport> RestoreBackup(const std::string& file, const std::string& dir,
                                            const Clock& clock, const BackupProgress& progress);
// The same into tables that nobody else uses. The backup may turn out to be damaged midway.
absl::StatusOr<RestoreReport> JoinBackup(BackupReader* backup, TableStore* tables,
                                         const BackupProgress& progress);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TOOLS_BACKUP_H_
