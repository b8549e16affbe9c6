// A backup as a file: written under a temporary name beside its own, read as a stream. Memory is that of one
// entry. One thread at a time. The bytes are told in backup_format.h.
#ifndef EPIC_SERVICES_KV_STORE_TOOLS_BACKUP_FILE_H_
#define EPIC_SERVICES_KV_STORE_TOOLS_BACKUP_FILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/digest.h"
#include "services/kv_store/tools/backup_format.h"
#include "services/kv_store/tools/files.h"

namespace epic::kv_store {

class BackupWriter {
 public:
  BackupWriter(std::unique_ptr<OutputFile> file, const BackupHeader& header);

  // Errors: those of OutputFile; InvalidArgument as CheckBackupEntry. Entries come in the order of the
  // format.
  absl::Status Add(const BackupEntry& entry);
  // Writes the last entry and gives the file its name. Without it the file goes with this object.
  absl::Status Finish();

  const BackupCounts& counts() const { return counts_; }
  uint64_t bytes() const { return bytes_; }

 private:
  absl::Status Append(std::string_view bytes);

  const std::unique_ptr<OutputFile> file_;
  std::string header_;  // until it is written
  Sha256 sha_;
  BackupCounts counts_;
  uint64_t bytes_ = 0;
};

class BackupReader {
 public:
  // Errors of all calls: NotFound, PermissionDenied and so on (the file cannot be read), InvalidArgument (it
  // is no backup), Unimplemented (a newer version), DataLoss (damaged or cut off). Messages name the file,
  // the place and what to do.
  static absl::StatusOr<std::unique_ptr<BackupReader>> Open(const std::string& path);

  const BackupHeader& header() const { return header_; }
  // The next context; nullopt: there was none left, and all of the file is as it was written.
  absl::StatusOr<std::optional<BackupEntry>> Next();

  const BackupCounts& counts() const { return counts_; }
  uint64_t bytes() const { return at_; }

 private:
  BackupReader(std::string path, std::unique_ptr<InputFile> file)
      : path_(std::move(path)), file_(std::move(file)) {}
  absl::StatusOr<std::string> Take(uint64_t bytes);
  absl::Status CheckEnd(ByteSpan bytes);
  absl::Status CheckOrder(BackupKind kind, const ContextKey& key);
  absl::Status Damaged(const absl::Status& cause) const;

  const std::string path_;
  const std::unique_ptr<InputFile> file_;
  BackupHeader header_;
  Sha256 sha_;
  BackupCounts counts_;
  uint64_t at_ = 0;     // bytes read
  uint64_t entry_ = 0;  // where the entry at hand begins
  BackupKind kind_ = BackupKind::kLive;
  std::string last_key_;  // of its kind; empty: none
};

struct BackupSummary {
  BackupHeader header;
  BackupCounts counts;
  uint64_t bytes = 0;
};

// Reads all of a backup and checks every byte of it. Errors: those of BackupReader.
absl::StatusOr<BackupSummary> VerifyBackup(const std::string& path);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TOOLS_BACKUP_FILE_H_
