#include "common/storage/record_codec.h"

#include <algorithm>

#include "common/base/absl_std.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/byte_reader.h"

namespace epic {
namespace {

constexpr uint32_t kRecordMagic = 0x31524345;  // "ECR1"
constexpr uint32_t kTokensMagic = 0x314b5445;  // "ETK1"
constexpr size_t kCacheIdBytes = 36;
constexpr uint32_t kMaxTenantBytes = 256;
constexpr uint32_t kMaxTextBytes = 1024;
constexpr uint32_t kMaxTags = 1024;
constexpr uint32_t kMaxPrefixTokens = 1u << 20;
constexpr uint32_t kMaxTokens = 1u << 24;

void AppendText(std::string* out, std::string_view text) {
  AppendLittle<uint32_t>(out, static_cast<uint32_t>(text.size()));
  out->append(text);
}

template <typename T>
void AppendOptional(std::string* out, const std::optional<T>& value) {
  AppendLittle<uint8_t>(out, value.has_value() ? 1 : 0);
  AppendLittle<T>(out, value.value_or(T{}));
}

template <typename Enum>
Enum TakeEnum(ByteReader* reader, Enum largest) {
  return static_cast<Enum>(reader->TakeUpTo<uint8_t>(static_cast<uint8_t>(largest)));
}

CacheId TakeCacheId(ByteReader* reader) {
  const auto id = CacheId::Parse(AsText(reader->TakeBytes(kCacheIdBytes)));
  if (id.ok()) return *id;
  reader->Fail();
  return CacheId();
}

std::vector<TokenId> TakeTokens(ByteReader* reader, uint32_t max_tokens) {
  const uint32_t count = reader->TakeUpTo<uint32_t>(max_tokens);
  const ByteSpan bytes = reader->TakeBytes(uint64_t{count} * sizeof(TokenId));
  std::vector<TokenId> tokens(bytes.size() / sizeof(TokenId));
  if (!tokens.empty()) std::memcpy(tokens.data(), bytes.data(), bytes.size());
  return tokens;
}

struct OpenBytes {
  uint32_t version = 0;
  ByteReader fields;
};

// Checks magic, version and trailing checksum; returns a reader of what lies between.
absl::StatusOr<OpenBytes> Open(ByteSpan bytes, uint32_t magic, uint32_t newest, std::string_view what) {
  const std::string name(what);
  if (bytes.size() < 3 * sizeof(uint32_t)) return absl::DataLossError(ToAbsl(name + ": truncated"));
  if (LoadLittle<uint32_t>(bytes) != magic) {
    return absl::InvalidArgumentError(ToAbsl(name + ": wrong magic, this is something else"));
  }
  const uint32_t version = LoadLittle<uint32_t>(bytes, 4);
  if (version > newest) {
    return absl::UnimplementedError(ToAbsl(name + ": format version " + std::to_string(version) +
                                           " is newer than this build; run the newer EPIC"));
  }
  const ByteSpan body = bytes.first(bytes.size() - sizeof(uint32_t));
  if (Crc32c(0, body) != LoadLittle<uint32_t>(bytes, body.size())) {
    return absl::DataLossError(ToAbsl(name + ": wrong checksum"));
  }
  if (version == 0) return absl::InvalidArgumentError(ToAbsl(name + ": format version 0 does not exist"));
  return OpenBytes{version, ByteReader(body.subspan(2 * sizeof(uint32_t)))};
}

void TakeMutableFields(ByteReader* reader, ContextRecord* record) {
  record->ttl_seconds = reader->TakeOptional<int64_t>();
  record->expires_at_ms = reader->TakeOptional<int64_t>();
  record->expiry_changed = TakeHybrid(reader);
  record->pin = TakeEnum(reader, Pin::kHard);
  record->pin_until_ms = reader->TakeOptional<int64_t>();
  record->pin_changed = TakeHybrid(reader);
  const uint32_t tags = reader->TakeUpTo<uint32_t>(kMaxTags);
  for (uint32_t i = 0; i < tags && reader->ok(); ++i) record->tags.push_back(reader->TakeText(kMaxTextBytes));
  record->tags_changed = TakeHybrid(reader);
  record->name = reader->TakeText(kMaxTextBytes);
  record->name_changed = TakeHybrid(reader);
}

HybridTime FirstChange(const ContextRecord& record) {
  return std::min({record.expiry_changed, record.pin_changed, record.tags_changed, record.name_changed});
}

bool SortedAndUnique(const std::vector<std::string>& tags) {
  return std::adjacent_find(tags.begin(), tags.end(), std::greater_equal<>()) == tags.end();
}

absl::Status TooLong(std::string_view field, uint64_t limit) {
  return Error(ErrorCode::kInvalidRequest,
               std::string(field) + " is over its limit of " + std::to_string(limit), field);
}

}  // namespace

void AppendHybrid(std::string* out, const HybridTime& time) {
  AppendLittle<int64_t>(out, time.unix_ms);
  AppendLittle<uint32_t>(out, time.counter);
}

HybridTime TakeHybrid(ByteReader* reader) {
  HybridTime time;
  time.unix_ms = reader->Take<int64_t>();
  time.counter = reader->Take<uint32_t>();
  return time;
}

absl::Status ValidateRecord(const ContextRecord& record) {
  if (record.id.text().size() != kCacheIdBytes)
    return absl::InvalidArgumentError("a record needs a Cache ID");
  if (record.tenant.size() > kMaxTenantBytes) return TooLong("tenant", kMaxTenantBytes);
  if (record.model.size() > kMaxTextBytes) return TooLong("model", kMaxTextBytes);
  if (record.name.size() > kMaxTextBytes) return TooLong("name", kMaxTextBytes);
  if (record.error.size() > kMaxRecordErrorBytes) return TooLong("error", kMaxRecordErrorBytes);
  if (record.tags.size() > kMaxTags) return TooLong("tags", kMaxTags);
  for (const std::string& tag : record.tags) {
    if (tag.size() > kMaxTextBytes) return TooLong("tags", kMaxTextBytes);
  }
  if (!SortedAndUnique(record.tags)) return absl::InvalidArgumentError("tags must be sorted and unique");
  if (record.compile_prefix.tokens.size() > kMaxPrefixTokens)
    return TooLong("compile_prefix", kMaxPrefixTokens);
  if (record.token_count > kMaxTokens) return TooLong("tokens", kMaxTokens);
  return absl::OkStatus();
}

std::string EncodeRecord(const ContextRecord& record) {
  EPIC_CHECK(ValidateRecord(record).ok());
  std::string out;
  AppendLittle<uint32_t>(&out, kRecordMagic);
  AppendLittle<uint32_t>(&out, kRecordFormatVersion);
  AppendText(&out, record.tenant);
  out.append(record.id.text());
  out.append(record.model_identity.view());
  AppendText(&out, record.model);
  AppendLittle<uint32_t>(&out, record.token_count);
  AppendLittle<int64_t>(&out, record.created_at_ms);
  AppendLittle<uint8_t>(&out, record.hidden ? 1 : 0);
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(record.durability));
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(record.compile_prefix.kind));
  AppendLittle<uint32_t>(&out, static_cast<uint32_t>(record.compile_prefix.tokens.size()));
  out.append(AsText(AsBytes(std::span<const TokenId>(record.compile_prefix.tokens))));
  AppendLittle<uint8_t>(&out, record.compile_prefix.context_id.empty() ? 0 : 1);
  out.append(record.compile_prefix.context_id.text());
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(record.state));
  AppendLittle<int64_t>(&out, record.compile_ms);
  AppendText(&out, record.error);
  AppendOptional<int64_t>(&out, record.ttl_seconds);
  AppendOptional<int64_t>(&out, record.expires_at_ms);
  AppendHybrid(&out, record.expiry_changed);
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(record.pin));
  AppendOptional<int64_t>(&out, record.pin_until_ms);
  AppendHybrid(&out, record.pin_changed);
  AppendLittle<uint32_t>(&out, static_cast<uint32_t>(record.tags.size()));
  for (const std::string& tag : record.tags) AppendText(&out, tag);
  AppendHybrid(&out, record.tags_changed);
  AppendText(&out, record.name);
  AppendHybrid(&out, record.name_changed);
  AppendHybrid(&out, record.created);
  AppendLittle<int64_t>(&out, record.last_used_at_ms);
  AppendLittle<uint64_t>(&out, record.hits);
  AppendLittle<uint32_t>(&out, Crc32c(0, AsBytes(out)));
  return out;
}

absl::StatusOr<ContextRecord> DecodeRecord(ByteSpan bytes) {
  EPIC_ASSIGN_OR_RETURN(OpenBytes open, Open(bytes, kRecordMagic, kRecordFormatVersion, "context record"));
  ByteReader& reader = open.fields;
  ContextRecord record;
  record.tenant = reader.TakeText(kMaxTenantBytes);
  record.id = TakeCacheId(&reader);
  record.model_identity = reader.TakeDigest();
  record.model = reader.TakeText(kMaxTextBytes);
  record.token_count = reader.TakeUpTo<uint32_t>(kMaxTokens);
  record.created_at_ms = reader.Take<int64_t>();
  record.hidden = reader.TakeBool();
  record.durability = TakeEnum(&reader, Durability::kObject);
  record.compile_prefix.kind = TakeEnum(&reader, CompilePrefixKind::kSystem);
  record.compile_prefix.tokens = TakeTokens(&reader, kMaxPrefixTokens);
  if (reader.TakeBool()) record.compile_prefix.context_id = TakeCacheId(&reader);
  record.state = TakeEnum(&reader, ContextState::kFailed);
  record.compile_ms = reader.Take<int64_t>();
  record.error = reader.TakeText(kMaxRecordErrorBytes);
  TakeMutableFields(&reader, &record);
  record.created = open.version >= 2 ? TakeHybrid(&reader) : FirstChange(record);
  record.last_used_at_ms = reader.Take<int64_t>();
  record.hits = reader.Take<uint64_t>();
  if (!reader.AtEnd() || !SortedAndUnique(record.tags)) {
    return absl::InvalidArgumentError("context record: a field is out of its bounds");
  }
  return record;
}

std::string EncodeTokens(std::span<const TokenId> tokens) {
  EPIC_CHECK(tokens.size() <= kMaxTokens);
  std::string out;
  out.reserve(tokens.size_bytes() + 16);
  AppendLittle<uint32_t>(&out, kTokensMagic);
  AppendLittle<uint32_t>(&out, kTokensFormatVersion);
  AppendLittle<uint32_t>(&out, static_cast<uint32_t>(tokens.size()));
  out.append(AsText(AsBytes(tokens)));
  AppendLittle<uint32_t>(&out, Crc32c(0, AsBytes(out)));
  return out;
}

absl::StatusOr<std::vector<TokenId>> DecodeTokens(ByteSpan bytes) {
  EPIC_ASSIGN_OR_RETURN(OpenBytes open, Open(bytes, kTokensMagic, kTokensFormatVersion, "token ids"));
  ByteReader& reader = open.fields;
  std::vector<TokenId> tokens = TakeTokens(&reader, kMaxTokens);
  if (!reader.AtEnd()) return absl::InvalidArgumentError("token ids: their count is not that of the bytes");
  return tokens;
}

}  // namespace epic
