#include "common/rpc/kv_store/object_convert.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/rpc/kv_store/record_convert.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic {
namespace {

constexpr std::string_view kIdPrefix = "ctx_";
constexpr uint32_t kDigitBits = 5;

constexpr uint32_t DigitOf(char c) {
  return static_cast<uint32_t>(c >= 'a' && c <= 'z' ? c - 'a' : c - '2' + 26);
}

absl::Status BadTable(std::string_view field) {
  return Error(
      ErrorCode::kInvalidRequest,
      std::string(field) + " must name an entry of its table for each key, or be empty with one entry",
      field);
}

// For each of `count` keys the place of its entry in a table of `size`.
absl::StatusOr<std::vector<uint32_t>> PlacesOf(const google::protobuf::RepeatedField<uint32_t>& places,
                                               size_t count, size_t size, std::string_view field) {
  if (count == 0) return std::vector<uint32_t>();
  if (places.empty() && size > 0) return std::vector<uint32_t>(count, 0);
  const auto too_large = [&](uint32_t place) { return place >= size; };
  if (static_cast<size_t>(places.size()) != count || std::any_of(places.begin(), places.end(), too_large)) {
    return BadTable(field);
  }
  return std::vector<uint32_t>(places.begin(), places.end());
}

// The place of `value` in `table`, where it is put if it is new. Few values in long runs: the last one is
// tried first.
template <typename Value>
uint32_t PlaceIn(std::vector<Value>* table, const Value& value, uint32_t last) {
  if (last < table->size() && (*table)[last] == value) return last;
  const auto found = std::find(table->begin(), table->end(), value);
  const auto place = static_cast<uint32_t>(found - table->begin());
  if (found == table->end()) table->push_back(value);
  return place;
}

}  // namespace

absl::Status CheckBatch(size_t items, std::string_view field) {
  if (items <= kMaxBatchItems) return absl::OkStatus();
  return Error(ErrorCode::kInvalidRequest,
               "at most " + std::to_string(kMaxBatchItems) + " items go in one call: split it", field);
}

void AppendCacheId(const CacheId& id, std::string* bytes) {
  EPIC_CHECK(!id.empty());
  uint32_t bits = 0, have = 0;
  for (const char c : std::string_view(id.text()).substr(kIdPrefix.size())) {
    bits = bits << kDigitBits | DigitOf(c);
    have += kDigitBits;
    if (have < 8) continue;
    have -= 8;
    bytes->push_back(static_cast<char>(bits >> have));
    bits &= (1u << have) - 1;
  }
}

CacheId CacheIdFromBytes(std::string_view bytes) {
  EPIC_CHECK(bytes.size() == kCacheIdBytes);
  auto id = CacheId::Parse(std::string(kIdPrefix) + Base32Lower(AsBytes(bytes)));
  EPIC_CHECK(id.ok());
  return *std::move(id);
}

v1::KvLayout ToProto(const KvLayout& layout) {
  v1::KvLayout proto;
  proto.set_layers(layout.layers);
  proto.set_kv_heads(layout.kv_heads);
  proto.set_head_dim(layout.head_dim);
  proto.set_tokens(layout.tokens);
  proto.set_dtype(layout.dtype == KvDtype::kF32 ? v1::KV_DTYPE_F32 : v1::KV_DTYPE_BF16);
  proto.set_first_position(layout.first_position);
  return proto;
}

absl::StatusOr<KvLayout> FromProto(const v1::KvLayout& proto) {
  if (proto.dtype() != v1::KV_DTYPE_F32 && proto.dtype() != v1::KV_DTYPE_BF16) {
    return Error(ErrorCode::kInvalidRequest, "dtype has a value that this version does not know",
                 "layouts.dtype");
  }
  return KvLayout{.layers = proto.layers(),
                  .kv_heads = proto.kv_heads(),
                  .head_dim = proto.head_dim(),
                  .tokens = proto.tokens(),
                  .dtype = proto.dtype() == v1::KV_DTYPE_F32 ? KvDtype::kF32 : KvDtype::kBf16,
                  .first_position = proto.first_position()};
}

v1::ObjectKeys ToProto(std::span<const ObjectKey> keys, std::span<const KvLayout> layouts) {
  EPIC_CHECK(layouts.empty() || layouts.size() == keys.size());
  v1::ObjectKeys proto;
  std::vector<ObjectVariant> variants;
  std::vector<KvLayout> shapes;
  uint32_t variant = 0, shape = 0;
  proto.mutable_ids()->reserve(keys.size() * kCacheIdBytes);
  for (size_t i = 0; i < keys.size(); ++i) {
    AppendCacheId(keys[i].id, proto.mutable_ids());
    variant = PlaceIn(&variants, keys[i].variant, variant);
    proto.add_variant_of(variant);
    if (layouts.empty()) continue;
    shape = PlaceIn(&shapes, layouts[i], shape);
    proto.add_layout_of(shape);
  }
  if (variants.size() == 1) proto.clear_variant_of();
  if (shapes.size() == 1) proto.clear_layout_of();
  for (const ObjectVariant& entry : variants) *proto.add_variants() = ToProto(entry);
  for (const KvLayout& entry : shapes) *proto.add_layouts() = ToProto(entry);
  return proto;
}

absl::StatusOr<std::vector<ObjectKey>> KeysFromProto(const v1::ObjectKeys& proto) {
  EPIC_ASSIGN_OR_RETURN(const auto ids, PiecesOf(proto.ids(), kCacheIdBytes, "keys.ids"));
  EPIC_RETURN_IF_ERROR(CheckBatch(static_cast<size_t>(proto.variants_size()), "keys.variants"));
  std::vector<ObjectVariant> variants;
  for (const v1::ObjectVariant& variant : proto.variants()) {
    EPIC_ASSIGN_OR_RETURN(variants.emplace_back(), FromProto(variant));
  }
  EPIC_ASSIGN_OR_RETURN(const auto places,
                        PlacesOf(proto.variant_of(), ids.size(), variants.size(), "keys.variant_of"));
  std::vector<ObjectKey> keys;
  keys.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) keys.push_back({CacheIdFromBytes(ids[i]), variants[places[i]]});
  return keys;
}

absl::StatusOr<std::vector<KvLayout>> LayoutsFromProto(const v1::ObjectKeys& proto) {
  const size_t count = proto.ids().size() / kCacheIdBytes;
  EPIC_RETURN_IF_ERROR(CheckBatch(static_cast<size_t>(proto.layouts_size()), "keys.layouts"));
  std::vector<KvLayout> table;
  for (const v1::KvLayout& layout : proto.layouts()) {
    EPIC_ASSIGN_OR_RETURN(table.emplace_back(), FromProto(layout));
  }
  EPIC_ASSIGN_OR_RETURN(const auto places,
                        PlacesOf(proto.layout_of(), count, table.size(), "keys.layout_of"));
  std::vector<KvLayout> layouts;
  layouts.reserve(count);
  for (const uint32_t place : places) layouts.push_back(table[place]);
  return layouts;
}

v1::MissCause ToProto(MissCause cause) {
  switch (cause) {
    case MissCause::kNeverStored:
      return v1::MISS_CAUSE_NEVER_STORED;
    case MissCause::kEvicted:
      return v1::MISS_CAUSE_EVICTED;
    case MissCause::kDeleted:
      return v1::MISS_CAUSE_DELETED;
    case MissCause::kLayoutMismatch:
      return v1::MISS_CAUSE_LAYOUT_MISMATCH;
    case MissCause::kChecksum:
      return v1::MISS_CAUSE_CHECKSUM;
    case MissCause::kIoError:
      return v1::MISS_CAUSE_IO_ERROR;
    case MissCause::kOldFormat:
      return v1::MISS_CAUSE_OLD_FORMAT;
    case MissCause::kNoMemory:
      return v1::MISS_CAUSE_NO_MEMORY;
    case MissCause::kDiskSlow:
      return v1::MISS_CAUSE_DISK_SLOW;
  }
  return v1::MISS_CAUSE_UNSPECIFIED;
}

MissCause FromProto(v1::MissCause cause) {
  switch (cause) {
    case v1::MISS_CAUSE_EVICTED:
      return MissCause::kEvicted;
    case v1::MISS_CAUSE_DELETED:
      return MissCause::kDeleted;
    case v1::MISS_CAUSE_LAYOUT_MISMATCH:
      return MissCause::kLayoutMismatch;
    case v1::MISS_CAUSE_CHECKSUM:
      return MissCause::kChecksum;
    case v1::MISS_CAUSE_IO_ERROR:
      return MissCause::kIoError;
    case v1::MISS_CAUSE_OLD_FORMAT:
      return MissCause::kOldFormat;
    case v1::MISS_CAUSE_NO_MEMORY:
      return MissCause::kNoMemory;
    case v1::MISS_CAUSE_DISK_SLOW:
      return MissCause::kDiskSlow;
    default:
      return MissCause::kNeverStored;
  }
}

absl::StatusOr<std::vector<std::string_view>> PiecesOf(const std::string& bytes, size_t size,
                                                       std::string_view field) {
  EPIC_RETURN_IF_ERROR(CheckBatch(bytes.size() / size, field));
  if (bytes.size() % size != 0) {
    return Error(ErrorCode::kInvalidRequest,
                 std::string(field) + " takes " + std::to_string(size) + " bytes an item", field);
  }
  std::vector<std::string_view> pieces;
  pieces.reserve(bytes.size() / size);
  for (size_t at = 0; at < bytes.size(); at += size)
    pieces.push_back(std::string_view(bytes).substr(at, size));
  return pieces;
}

}  // namespace epic
