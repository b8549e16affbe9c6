#include "services/kv_store/tools/backup_file.h"

#include <utility>

#include "common/base/absl_std.h"
#include "common/status/status_macros.h"

namespace epic::kv_store {

BackupWriter::BackupWriter(std::unique_ptr<OutputFile> file, const BackupHeader& header)
    : file_(std::move(file)), header_(EncodeBackupHeader(header)) {}

absl::Status BackupWriter::Append(std::string_view bytes) {
  if (!header_.empty()) {
    const std::string header = std::exchange(header_, std::string());
    EPIC_RETURN_IF_ERROR(Append(header));
  }
  EPIC_RETURN_IF_ERROR(file_->Append(bytes));
  bytes_ += bytes.size();
  sha_.Update(bytes);
  return absl::OkStatus();
}

absl::Status BackupWriter::Add(const BackupEntry& entry) {
  EPIC_RETURN_IF_ERROR(CheckBackupEntry(entry));
  EPIC_RETURN_IF_ERROR(Append(EncodeBackupEntry(entry)));
  ++(entry.state.record.has_value() ? counts_.live : counts_.gone);
  counts_.tokens += entry.tokens.size();
  return absl::OkStatus();
}

absl::Status BackupWriter::Finish() {
  EPIC_RETURN_IF_ERROR(Append({}));  // the header of an empty backup
  const std::string end = EncodeBackupEnd({.counts = counts_, .digest = sha_.Finish()});
  bytes_ += end.size();
  EPIC_RETURN_IF_ERROR(file_->Append(end));
  return file_->Publish();
}

absl::StatusOr<std::unique_ptr<BackupReader>> BackupReader::Open(const std::string& path) {
  EPIC_ASSIGN_OR_RETURN(auto file, InputFile::Open(path));
  std::unique_ptr<BackupReader> reader(new BackupReader(path, std::move(file)));
  EPIC_ASSIGN_OR_RETURN(const std::string bytes, reader->Take(kBackupHeaderBytes));
  const auto header = DecodeBackupHeader(AsBytes(bytes));
  if (!header.ok()) return reader->Damaged(header.status());
  reader->header_ = *header;
  reader->sha_.Update(bytes);
  return reader;
}

absl::Status BackupReader::Damaged(const absl::Status& cause) const {
  if (absl::IsUnimplemented(cause)) {
    return absl::UnimplementedError(ToAbsl(path_ + ": " + std::string(ToStd(cause.message()))));
  }
  if (at_ <= kBackupHeaderBytes && absl::IsInvalidArgument(cause)) {
    return absl::InvalidArgumentError(ToAbsl(path_ + ": " + std::string(ToStd(cause.message()))));
  }
  return absl::DataLossError(ToAbsl(path_ + " is damaged at byte " + std::to_string(entry_) + " (" +
                                    std::string(ToStd(cause.message())) + "); use another backup"));
}

absl::StatusOr<std::string> BackupReader::Take(uint64_t bytes) {
  if (bytes > file_->size() - at_) {
    return absl::DataLossError(ToAbsl(path_ + " is cut off after " + std::to_string(file_->size()) +
                                      " bytes; it is no whole backup: use another"));
  }
  std::string taken(bytes, '\0');
  EPIC_RETURN_IF_ERROR(file_->ReadWhole(taken.data(), taken.size()));
  at_ += bytes;
  return taken;
}

absl::Status BackupReader::CheckOrder(BackupKind kind, const ContextKey& key) {
  const std::string row = RowKey(key);
  if (kind < kind_ || (kind == kind_ && row <= last_key_)) {
    return absl::InvalidArgumentError("its contexts are not in order");
  }
  kind_ = kind;
  last_key_ = row;
  return absl::OkStatus();
}

absl::Status BackupReader::CheckEnd(ByteSpan bytes) {
  EPIC_ASSIGN_OR_RETURN(const BackupEnd end, DecodeBackupEnd(bytes));
  if (end.counts != counts_) return absl::InvalidArgumentError("it has not as many contexts as it says");
  if (end.digest != sha_.Finish()) return absl::DataLossError("wrong SHA-256 of the whole");
  if (at_ != file_->size()) return absl::InvalidArgumentError("something follows its end");
  return absl::OkStatus();
}

absl::StatusOr<std::optional<BackupEntry>> BackupReader::Next() {
  entry_ = at_;
  EPIC_ASSIGN_OR_RETURN(const std::string head, Take(kBackupFrameBytes));
  const auto frame = DecodeBackupFrame(AsBytes(head));
  if (!frame.ok()) return Damaged(frame.status());
  EPIC_ASSIGN_OR_RETURN(const std::string bytes, Take(uint64_t{frame->payload_bytes} + sizeof(uint32_t)));
  if (frame->kind == BackupKind::kEnd) {
    if (absl::Status status = CheckEnd(AsBytes(bytes)); !status.ok()) return Damaged(status);
    return std::nullopt;
  }
  sha_.Update(head).Update(bytes);
  auto entry = DecodeBackupEntry(frame->kind, AsBytes(bytes));
  if (!entry.ok()) return Damaged(entry.status());
  if (absl::Status status = CheckOrder(frame->kind, entry->key); !status.ok()) return Damaged(status);
  ++(frame->kind == BackupKind::kLive ? counts_.live : counts_.gone);
  counts_.tokens += entry->tokens.size();
  return *std::move(entry);
}

absl::StatusOr<BackupSummary> VerifyBackup(const std::string& path) {
  EPIC_ASSIGN_OR_RETURN(const auto reader, BackupReader::Open(path));
  while (true) {
    EPIC_ASSIGN_OR_RETURN(const std::optional<BackupEntry> entry, reader->Next());
    if (!entry.has_value()) break;
  }
  return BackupSummary{.header = reader->header(), .counts = reader->counts(), .bytes = reader->bytes()};
}

}  // namespace epic::kv_store
