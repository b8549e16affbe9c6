#include "services/kv_store/core/rows.h"

#include <charconv>
#include <limits>
#include <system_error>

#include "absl/status/status.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/status/status_macros.h"
#include "common/storage/byte_reader.h"
#include "common/storage/record_codec.h"

namespace epic::kv_store {
namespace {

constexpr uint32_t kTombstoneMagic = 0x31425445;  // "ETB1"
constexpr uint32_t kEntryMagic = 0x31454f45;      // "EOE1"
constexpr uint32_t kTombstoneVersion = 3;
constexpr uint32_t kEntryVersion = 2;
constexpr size_t kCacheIdBytes = 36;
constexpr size_t kDigestBytes = 32;
constexpr std::string_view kErasePrefix = "erase/";

template <typename T>
void AppendBig(std::string* out, T value) {
  for (int shift = (sizeof(T) - 1) * 8; shift >= 0; shift -= 8) {
    out->push_back(static_cast<char>((value >> shift) & 0xff));
  }
}

struct OpenRow {
  uint32_t version = 0;
  ByteReader fields;
};

// Versions 1 to `newest` are read.
absl::StatusOr<OpenRow> Open(ByteSpan bytes, uint32_t magic, uint32_t newest) {
  if (bytes.size() < 3 * sizeof(uint32_t)) return absl::DataLossError("store row: truncated");
  if (LoadLittle<uint32_t>(bytes) != magic) return absl::InvalidArgumentError("store row: wrong magic");
  const uint32_t version = LoadLittle<uint32_t>(bytes, 4);
  if (version < 1 || version > newest) {
    return absl::UnimplementedError("store row: a format version that this build does not read");
  }
  const ByteSpan body = bytes.first(bytes.size() - sizeof(uint32_t));
  if (Crc32c(0, body) != LoadLittle<uint32_t>(bytes, body.size())) {
    return absl::DataLossError("store row: wrong checksum");
  }
  return OpenRow{version, ByteReader(body.subspan(2 * sizeof(uint32_t)))};
}

std::string Begin(uint32_t magic, uint32_t version) {
  std::string out;
  AppendLittle<uint32_t>(&out, magic);
  AppendLittle<uint32_t>(&out, version);
  return out;
}

}  // namespace

std::string EraseRowName(uint64_t number) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string row(kErasePrefix);
  for (int shift = 60; shift >= 0; shift -= 4) row += kDigits[number >> shift & 15];
  return row;
}

std::optional<uint64_t> ParseEraseRowName(std::string_view row) {
  if (!row.starts_with(kErasePrefix)) return std::nullopt;
  const std::string_view digits = row.substr(kErasePrefix.size());
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.size() != 16)
    return std::nullopt;
  return number;
}

std::string RowKey(const ContextKey& key) {
  EPIC_CHECK(key.tenant.size() <= std::numeric_limits<uint16_t>::max());
  std::string out;
  AppendBig<uint16_t>(&out, static_cast<uint16_t>(key.tenant.size()));
  return out + key.tenant + key.id.text();
}

std::string RowKey(const TenantObjectKey& key) {
  return RowKey(key.context) + std::string(key.variant.ToDigest().view());
}

std::string SlabRowKey(uint64_t number, uint32_t layer, uint32_t piece) {
  std::string out;
  AppendBig<uint64_t>(&out, number);
  AppendBig<uint32_t>(&out, layer);
  AppendBig<uint32_t>(&out, piece);
  return out;
}

std::string SlabEndKey(uint64_t number) { return SlabRowKey(number + 1, 0, 0); }

absl::StatusOr<ContextKey> ParseContextKey(std::string_view row) {
  if (row.size() < 2) return absl::InvalidArgumentError("store row: key too short");
  const size_t tenant = (static_cast<uint8_t>(row[0]) << 8) | static_cast<uint8_t>(row[1]);
  if (row.size() != 2 + tenant + kCacheIdBytes) {
    return absl::InvalidArgumentError("store row: key of a wrong length");
  }
  ContextKey key;
  key.tenant = std::string(row.substr(2, tenant));
  EPIC_ASSIGN_OR_RETURN(key.id, CacheId::Parse(row.substr(2 + tenant)));
  return key;
}

absl::StatusOr<ContextKey> ParseObjectContextKey(std::string_view row) {
  if (row.size() < kDigestBytes) return absl::InvalidArgumentError("store row: key too short");
  return ParseContextKey(row.substr(0, row.size() - kDigestBytes));
}

std::string EncodeTombstone(const Tombstone& tombstone) {
  std::string out = Begin(kTombstoneMagic, kTombstoneVersion);
  AppendHybrid(&out, tombstone.at);
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(tombstone.cause));
  AppendLittle<uint8_t>(&out, tombstone.created_at_ms.has_value() ? 1 : 0);
  AppendLittle<int64_t>(&out, tombstone.created_at_ms.value_or(0));
  AppendHybrid(&out, tombstone.deleted);
  AppendHybrid(&out, tombstone.expired_life);
  AppendHybrid(&out, tombstone.expired);
  AppendLittle<uint32_t>(&out, Crc32c(0, AsBytes(out)));
  return out;
}

absl::StatusOr<Tombstone> DecodeTombstone(ByteSpan bytes) {
  EPIC_ASSIGN_OR_RETURN(OpenRow row, Open(bytes, kTombstoneMagic, kTombstoneVersion));
  ByteReader& reader = row.fields;
  Tombstone tombstone;
  tombstone.at = TakeHybrid(&reader);
  tombstone.cause = static_cast<RemovalCause>(reader.TakeUpTo<uint8_t>(1));
  if (row.version >= 3) {
    tombstone.created_at_ms = reader.TakeOptional<int64_t>();
    tombstone.deleted = TakeHybrid(&reader);
    tombstone.expired_life = TakeHybrid(&reader);
    tombstone.expired = TakeHybrid(&reader);
  } else {
    if (row.version == 2) tombstone.created_at_ms = reader.Take<int64_t>();
    (tombstone.cause == RemovalCause::kDeleted ? tombstone.deleted : tombstone.expired_life) = tombstone.at;
  }
  if (!reader.AtEnd()) return absl::InvalidArgumentError("tombstone: a field is out of its bounds");
  return tombstone;
}

std::string EncodeObjectEntry(const ObjectEntry& entry) {
  EPIC_CHECK(entry.extents.size() <= kMaxSlabExtents);
  std::string out = Begin(kEntryMagic, entry.extents.empty() ? 1 : kEntryVersion);
  AppendLittle<uint64_t>(&out, entry.number);
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(entry.variant.prefix));
  out.append(entry.variant.prefix_tokens.view());
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(entry.variant.dtype));
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(entry.variant.compute));
  const std::string head = EncodeHead(entry.head);
  AppendLittle<uint32_t>(&out, static_cast<uint32_t>(head.size()));
  out.append(head);
  if (!entry.extents.empty()) AppendLittle<uint32_t>(&out, static_cast<uint32_t>(entry.extents.size()));
  for (const SlabExtent& extent : entry.extents) {
    AppendLittle<uint32_t>(&out, extent.file);
    AppendLittle<uint32_t>(&out, extent.page);
    AppendLittle<uint32_t>(&out, extent.pages);
  }
  AppendLittle<uint32_t>(&out, Crc32c(0, AsBytes(out)));
  return out;
}

absl::StatusOr<ObjectEntry> DecodeObjectEntry(ByteSpan bytes) {
  EPIC_ASSIGN_OR_RETURN(OpenRow row, Open(bytes, kEntryMagic, kEntryVersion));
  ByteReader& reader = row.fields;
  ObjectEntry entry;
  entry.number = reader.Take<uint64_t>();
  entry.variant.prefix =
      static_cast<CompilePrefixKind>(reader.TakeUpTo(static_cast<uint8_t>(CompilePrefixKind::kSystem)));
  entry.variant.prefix_tokens = reader.TakeDigest();
  entry.variant.dtype = static_cast<KvDtype>(reader.TakeUpTo(static_cast<uint8_t>(KvDtype::kBf16)));
  entry.variant.compute =
      static_cast<ComputeFormat>(reader.TakeUpTo(static_cast<uint8_t>(ComputeFormat::kBf16)));
  const ByteSpan head = reader.TakeBytes(reader.Take<uint32_t>());
  if (row.version >= 2) {
    const uint32_t runs = reader.TakeUpTo<uint32_t>(kMaxSlabExtents);
    if (runs == 0) reader.Fail();
    for (uint32_t run = 0; run < runs && reader.ok(); ++run) {
      SlabExtent& extent = entry.extents.emplace_back();
      extent.file = reader.Take<uint32_t>();
      extent.page = reader.Take<uint32_t>();
      extent.pages = reader.Take<uint32_t>();
    }
  }
  // The last number is kept free: SlabEndKey names the one behind.
  if (!reader.AtEnd() || entry.number == std::numeric_limits<uint64_t>::max()) {
    return absl::InvalidArgumentError("object entry: a field is out of its bounds");
  }
  EPIC_ASSIGN_OR_RETURN(entry.head, DecodeHead(head));
  if (HeadBytes(entry.head.layout) != head.size() || entry.head.variant != entry.variant.ToDigest() ||
      entry.head.layout.dtype != entry.variant.dtype) {
    return absl::InvalidArgumentError("object entry: its head is that of another object");
  }
  return entry;
}

}  // namespace epic::kv_store
