#include "services/kv_store/tools/backup_format.h"

#include <utility>

#include "common/base/absl_std.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/status/status_macros.h"
#include "common/storage/byte_reader.h"
#include "common/storage/record_codec.h"

namespace epic::kv_store {
namespace {

constexpr std::string_view kMagic = "EPICBAK1";

void AppendCrc(std::string* out, size_t from) {
  AppendLittle<uint32_t>(out, Crc32c(0, AsBytes(*out).subspan(from)));
}

void AppendPart(std::string* out, std::string_view part) {
  AppendLittle<uint32_t>(out, static_cast<uint32_t>(part.size()));
  out->append(part);
}

ByteSpan TakePart(ByteReader* reader) { return reader->TakeBytes(reader->Take<uint32_t>()); }

std::string Framed(BackupKind kind, std::string_view payload) {
  EPIC_CHECK(payload.size() <= kMaxBackupPayload);
  std::string out;
  out.reserve(kBackupFrameBytes + payload.size() + sizeof(uint32_t));
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(kind));
  AppendLittle<uint32_t>(&out, static_cast<uint32_t>(payload.size()));
  AppendCrc(&out, 0);
  out.append(payload);
  AppendCrc(&out, kBackupFrameBytes);
  return out;
}

// The payload in front of its checksum.
absl::StatusOr<ByteSpan> Checked(ByteSpan bytes) {
  if (bytes.size() < sizeof(uint32_t)) return absl::DataLossError("cut off");
  const ByteSpan payload = bytes.first(bytes.size() - sizeof(uint32_t));
  if (Crc32c(0, payload) != LoadLittle<uint32_t>(bytes, payload.size())) {
    return absl::DataLossError("wrong checksum");
  }
  return payload;
}

}  // namespace

absl::Status CheckBackupEntry(const BackupEntry& entry) {
  const ReplicaState& state = entry.state;
  if (!state.record.has_value()) {
    if (state.tombstone.has_value() && entry.tokens.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("a context that is gone has a tombstone and no token ids");
  }
  const ContextRecord& record = *state.record;
  EPIC_RETURN_IF_ERROR(ValidateRecord(record));
  if (record.tenant != entry.key.tenant || record.id != entry.key.id) {
    return absl::InvalidArgumentError("the record is another context's");
  }
  if (record.token_count != entry.tokens.size()) {
    return absl::InvalidArgumentError("the token ids are not as many as the record says");
  }
  if (CacheId::Of(record.tenant, record.model_identity, entry.tokens) != record.id) {
    return absl::InvalidArgumentError("the token ids are not those of the Cache ID");
  }
  if (state.tombstone.has_value() && !Counts(record, *state.tombstone)) {
    return absl::InvalidArgumentError("the record is of a context that is gone");
  }
  return absl::OkStatus();
}

std::string EncodeBackupHeader(const BackupHeader& header) {
  std::string out(kMagic);
  AppendLittle<uint32_t>(&out, kBackupVersion);
  AppendLittle<int64_t>(&out, header.created_at_ms);
  AppendLittle<uint64_t>(&out, header.incarnation);
  AppendCrc(&out, 0);
  return out;
}

std::string EncodeBackupEntry(const BackupEntry& entry) {
  const ReplicaState& state = entry.state;
  std::string payload;
  AppendPart(&payload, RowKey(entry.key));
  if (state.record.has_value()) {
    AppendPart(&payload, EncodeRecord(*state.record));
    AppendPart(&payload, EncodeTokens(entry.tokens));
  }
  EPIC_CHECK(state.record.has_value() || state.tombstone.has_value());
  AppendPart(&payload, state.tombstone.has_value() ? EncodeTombstone(*state.tombstone) : "");
  return Framed(state.record.has_value() ? BackupKind::kLive : BackupKind::kGone, payload);
}

std::string EncodeBackupEnd(const BackupEnd& end) {
  std::string payload;
  AppendLittle<uint64_t>(&payload, end.counts.live);
  AppendLittle<uint64_t>(&payload, end.counts.gone);
  AppendLittle<uint64_t>(&payload, end.counts.tokens);
  payload.append(end.digest.view());
  return Framed(BackupKind::kEnd, payload);
}

absl::StatusOr<BackupHeader> DecodeBackupHeader(ByteSpan bytes) {
  EPIC_CHECK(bytes.size() == kBackupHeaderBytes);
  ByteReader reader(bytes);
  if (AsText(reader.TakeBytes(kMagic.size())) != kMagic) {
    return absl::InvalidArgumentError("this is no backup of EPIC");
  }
  const uint32_t version = reader.Take<uint32_t>();
  if (version > kBackupVersion) {
    return absl::UnimplementedError(ToAbsl("its format version " + std::to_string(version) +
                                           " is newer than this build; use the newer EPIC"));
  }
  if (Crc32c(0, bytes.first(bytes.size() - sizeof(uint32_t))) !=
      LoadLittle<uint32_t>(bytes, bytes.size() - sizeof(uint32_t))) {
    return absl::DataLossError("wrong checksum");
  }
  if (version == 0) return absl::InvalidArgumentError("format version 0 does not exist");
  BackupHeader header;
  header.created_at_ms = reader.Take<int64_t>();
  header.incarnation = reader.Take<uint64_t>();
  return header;
}

absl::StatusOr<BackupFrame> DecodeBackupFrame(ByteSpan bytes) {
  EPIC_CHECK(bytes.size() == kBackupFrameBytes);
  constexpr size_t kFields = kBackupFrameBytes - sizeof(uint32_t);
  if (Crc32c(0, bytes.first(kFields)) != LoadLittle<uint32_t>(bytes, kFields)) {
    return absl::DataLossError("wrong checksum");
  }
  const BackupFrame frame{.kind = static_cast<BackupKind>(LoadLittle<uint8_t>(bytes)),
                          .payload_bytes = LoadLittle<uint32_t>(bytes, 1)};
  const bool known =
      frame.kind == BackupKind::kLive || frame.kind == BackupKind::kGone || frame.kind == BackupKind::kEnd;
  if (!known || frame.payload_bytes > kMaxBackupPayload) {
    return absl::InvalidArgumentError("a field is out of its bounds");
  }
  return frame;
}

absl::StatusOr<BackupEntry> DecodeBackupEntry(BackupKind kind, ByteSpan bytes) {
  EPIC_ASSIGN_OR_RETURN(const ByteSpan payload, Checked(bytes));
  ByteReader reader(payload);
  BackupEntry entry;
  const ByteSpan key = TakePart(&reader);
  const bool live = kind == BackupKind::kLive;
  const ByteSpan record = live ? TakePart(&reader) : ByteSpan();
  const ByteSpan tokens = live ? TakePart(&reader) : ByteSpan();
  const ByteSpan tombstone = TakePart(&reader);
  if (!reader.AtEnd()) return absl::InvalidArgumentError("its parts are not those of a context");
  EPIC_ASSIGN_OR_RETURN(entry.key, ParseContextKey(AsText(key)));
  if (live) {
    EPIC_ASSIGN_OR_RETURN(entry.state.record, DecodeRecord(record));
    EPIC_ASSIGN_OR_RETURN(entry.tokens, DecodeTokens(tokens));
  }
  if (!tombstone.empty()) {
    EPIC_ASSIGN_OR_RETURN(entry.state.tombstone, DecodeTombstone(tombstone));
  }
  EPIC_RETURN_IF_ERROR(CheckBackupEntry(entry));
  return entry;
}

absl::StatusOr<BackupEnd> DecodeBackupEnd(ByteSpan bytes) {
  EPIC_ASSIGN_OR_RETURN(const ByteSpan payload, Checked(bytes));
  ByteReader reader(payload);
  BackupEnd end;
  end.counts.live = reader.Take<uint64_t>();
  end.counts.gone = reader.Take<uint64_t>();
  end.counts.tokens = reader.Take<uint64_t>();
  end.digest = reader.TakeDigest();
  if (!reader.AtEnd()) return absl::InvalidArgumentError("the last entry has another size");
  return end;
}

}  // namespace epic::kv_store
