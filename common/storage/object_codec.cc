#include "common/storage/object_codec.h"

#include <algorithm>

#include "common/base/absl_std.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/status/status_macros.h"
#include "common/storage/byte_reader.h"

namespace epic {
namespace {

constexpr std::string_view kMagic = "EPICKVO1";
constexpr uint64_t kHeaderBytes = 144;
constexpr uint64_t kCrcBytes = 4;
constexpr size_t kCacheIdBytes = 36;
constexpr uint32_t kMaxLayers = 4096;
constexpr uint32_t kMaxHeads = 4096;
constexpr uint32_t kMaxHeadDim = 8192;
constexpr uint32_t kMaxTokens = 1u << 24;
// Keeps every product of sizes, and head_bytes as u32, far from overflow.
constexpr uint64_t kMaxBlocks = uint64_t{1} << 28;

uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
uint64_t RoundUp(uint64_t a, uint64_t b) { return CeilDiv(a, b) * b; }

absl::Status CheckBound(std::string_view field, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(ToAbsl("KV object: " + std::string(field) + " is " +
                                           std::to_string(value) + ", not in " + std::to_string(low) + ".." +
                                           std::to_string(high)));
}

// Calls fn(offset, bytes, index) for each block of a slab.
template <typename Fn>
void ForEachBlock(const KvLayout& layout, Fn fn) {
  const uint64_t head_bytes = layout.HeadBytes();
  uint64_t index = 0;
  for (uint64_t head = 0; head < 2 * uint64_t{layout.kv_heads}; ++head) {
    for (uint64_t at = 0; at < head_bytes; at += kObjectBlockBytes) {
      fn(head * head_bytes + at, std::min(kObjectBlockBytes, head_bytes - at), index++);
    }
  }
}

// Reads `count` u32 values and their CRC.
absl::Status TakeSection(ByteReader* reader, uint64_t count, std::string_view what,
                         std::vector<uint32_t>* out) {
  const ByteSpan section = reader->TakeBytes(count * sizeof(uint32_t));
  const uint32_t crc = reader->Take<uint32_t>();
  if (!reader->ok()) return absl::DataLossError(ToAbsl("KV object: truncated " + std::string(what)));
  if (Crc32c(0, section) != crc) {
    return absl::DataLossError(ToAbsl("KV object: wrong checksum of its " + std::string(what)));
  }
  out->resize(count);
  std::memcpy(out->data(), section.data(), section.size());
  return absl::OkStatus();
}

void AppendSection(std::string* out, std::span<const uint32_t> values) {
  const ByteSpan bytes = AsBytes(values);
  out->append(AsText(bytes));
  AppendLittle<uint32_t>(out, Crc32c(0, bytes));
}

}  // namespace

absl::Status ValidateLayout(const KvLayout& layout) {
  EPIC_RETURN_IF_ERROR(CheckBound("layers", layout.layers, 1, kMaxLayers));
  EPIC_RETURN_IF_ERROR(CheckBound("tokens", layout.tokens, 1, kMaxTokens));
  EPIC_RETURN_IF_ERROR(CheckBound("kv_heads", layout.kv_heads, 1, kMaxHeads));
  EPIC_RETURN_IF_ERROR(CheckBound("head_dim", layout.head_dim, 1, kMaxHeadDim));
  EPIC_RETURN_IF_ERROR(CheckBound("dtype", static_cast<uint64_t>(layout.dtype), 0, 1));
  EPIC_RETURN_IF_ERROR(CheckBound("first_position", layout.first_position, 0, kMaxTokens));
  return CheckBound("number of blocks", BlockCount(layout), 1, kMaxBlocks);
}

uint64_t BlocksPerHead(const KvLayout& layout) { return CeilDiv(layout.HeadBytes(), kObjectBlockBytes); }
uint64_t BlocksPerLayer(const KvLayout& layout) {
  return 2 * uint64_t{layout.kv_heads} * BlocksPerHead(layout);
}
uint64_t BlockCount(const KvLayout& layout) { return layout.layers * BlocksPerLayer(layout); }

uint64_t SlabAlignment(const KvLayout& layout) { return layout.LayerBytes() < 4096 ? 64 : 4096; }

uint64_t HeadBytes(const KvLayout& layout) {
  return kHeaderBytes + uint64_t{layout.tokens} * sizeof(TokenId) + kCrcBytes +
         BlockCount(layout) * sizeof(uint32_t) + kCrcBytes;
}

uint64_t SlabOffset(const KvLayout& layout, uint32_t layer) {
  const uint64_t alignment = SlabAlignment(layout);
  return RoundUp(HeadBytes(layout), alignment) + layer * RoundUp(layout.LayerBytes(), alignment);
}

uint64_t ObjectBytes(const KvLayout& layout) {
  return SlabOffset(layout, layout.layers - 1) + layout.LayerBytes();
}

void ComputeBlockCrcs(const KvLayout& layout, ByteSpan slab, std::span<uint32_t> crcs) {
  EPIC_CHECK(slab.size() == layout.LayerBytes() && crcs.size() == BlocksPerLayer(layout));
  ForEachBlock(layout, [&](uint64_t offset, uint64_t bytes, uint64_t index) {
    crcs[index] = Crc32c(0, slab.subspan(offset, bytes));
  });
}

void CopyWithBlockCrcs(const KvLayout& layout, ByteSpan slab, MutableByteSpan to, std::span<uint32_t> crcs) {
  EPIC_CHECK(slab.size() == layout.LayerBytes() && crcs.size() == BlocksPerLayer(layout));
  EPIC_CHECK(to.size() == slab.size());
  ForEachBlock(layout, [&](uint64_t offset, uint64_t bytes, uint64_t index) {
    crcs[index] = CopyWithCrc32c(0, slab.subspan(offset, bytes), to.subspan(offset, bytes));
  });
}

bool CopyIfMatches(const KvLayout& layout, ByteSpan slab, MutableByteSpan to,
                   std::span<const uint32_t> crcs) {
  EPIC_CHECK(slab.size() == layout.LayerBytes() && crcs.size() == BlocksPerLayer(layout));
  EPIC_CHECK(to.size() == slab.size());
  bool matches = true;
  ForEachBlock(layout, [&](uint64_t offset, uint64_t bytes, uint64_t index) {
    matches =
        matches && CopyWithCrc32c(0, slab.subspan(offset, bytes), to.subspan(offset, bytes)) == crcs[index];
  });
  return matches;
}

bool SlabMatches(const ObjectHead& head, uint32_t layer, ByteSpan slab) {
  if (layer >= head.layout.layers || slab.size() != head.layout.LayerBytes()) return false;
  const uint64_t per_layer = BlocksPerLayer(head.layout);
  if (head.block_crcs.size() != per_layer * head.layout.layers) return false;
  std::vector<uint32_t> crcs(per_layer);
  ComputeBlockCrcs(head.layout, slab, crcs);
  return std::equal(crcs.begin(), crcs.end(),
                    head.block_crcs.begin() + static_cast<ptrdiff_t>(layer * per_layer));
}

Digest BuildDigest(std::span<const uint32_t> block_crcs) {
  std::string field;
  AppendField(&field, "epic.kv_build.v1");
  AppendLittle<uint64_t>(&field, block_crcs.size_bytes());
  return Sha256().Update(field).Update(AsBytes(block_crcs)).Finish();
}

std::string EncodeHead(const ObjectHead& head) {
  const KvLayout& layout = head.layout;
  EPIC_CHECK(ValidateLayout(layout).ok());
  EPIC_CHECK(head.id.text().size() == kCacheIdBytes);
  EPIC_CHECK(head.tokens.size() == layout.tokens && head.block_crcs.size() == BlockCount(layout));
  std::string out;
  out.reserve(HeadBytes(layout));
  out.append(kMagic);
  AppendLittle<uint32_t>(&out, kObjectFormatVersion);
  AppendLittle<uint32_t>(&out, static_cast<uint32_t>(HeadBytes(layout)));
  out.append(head.id.text());
  out.append(head.variant.view());
  AppendLittle<uint32_t>(&out, layout.layers);
  AppendLittle<uint32_t>(&out, layout.tokens);
  AppendLittle<uint32_t>(&out, layout.kv_heads);
  AppendLittle<uint32_t>(&out, layout.head_dim);
  AppendLittle<uint32_t>(&out, static_cast<uint32_t>(layout.dtype));
  AppendLittle<uint32_t>(&out, layout.first_position);
  out.append(head.build.view());
  AppendLittle<uint32_t>(&out, Crc32c(0, AsBytes(out)));
  EPIC_CHECK(out.size() == kHeaderBytes);
  AppendSection(&out, head.tokens);
  AppendSection(&out, head.block_crcs);
  return out;
}

absl::StatusOr<ObjectHead> DecodeHead(ByteSpan bytes) {
  if (bytes.size() < kHeaderBytes) return absl::DataLossError("KV object: shorter than its header");
  ByteReader reader(bytes);
  if (AsText(reader.TakeBytes(kMagic.size())) != kMagic) {
    return absl::InvalidArgumentError("KV object: wrong magic, this is not a KV object");
  }
  if (const uint32_t version = reader.Take<uint32_t>(); version != kObjectFormatVersion) {
    return absl::UnimplementedError(
        ToAbsl("KV object: format version " + std::to_string(version) + " is not one that this build reads"));
  }
  if (Crc32c(0, bytes.first(kHeaderBytes - kCrcBytes)) !=
      LoadLittle<uint32_t>(bytes, kHeaderBytes - kCrcBytes)) {
    return absl::DataLossError("KV object: wrong checksum of its header");
  }
  const uint32_t head_bytes = reader.Take<uint32_t>();
  ObjectHead head;
  EPIC_ASSIGN_OR_RETURN(head.id, CacheId::Parse(AsText(reader.TakeBytes(kCacheIdBytes))));
  head.variant = reader.TakeDigest();
  head.layout.layers = reader.Take<uint32_t>();
  head.layout.tokens = reader.Take<uint32_t>();
  head.layout.kv_heads = reader.Take<uint32_t>();
  head.layout.head_dim = reader.Take<uint32_t>();
  const uint32_t dtype = reader.Take<uint32_t>();
  EPIC_RETURN_IF_ERROR(CheckBound("dtype", dtype, 0, 1));
  head.layout.dtype = static_cast<KvDtype>(dtype);
  head.layout.first_position = reader.Take<uint32_t>();
  head.build = reader.TakeDigest();
  reader.Take<uint32_t>();  // the header's checksum, compared above
  EPIC_RETURN_IF_ERROR(ValidateLayout(head.layout));
  if (head_bytes != HeadBytes(head.layout)) {
    return absl::InvalidArgumentError("KV object: head bytes do not follow from its layout");
  }
  EPIC_RETURN_IF_ERROR(TakeSection(&reader, head.layout.tokens, "token ids", &head.tokens));
  EPIC_RETURN_IF_ERROR(TakeSection(&reader, BlockCount(head.layout), "block checksums", &head.block_crcs));
  if (BuildDigest(head.block_crcs) != head.build) {
    return absl::DataLossError("KV object: its build digest is not that of its block checksums");
  }
  return head;
}

std::string EncodeObject(const ObjectHead& head, std::span<const ByteSpan> slabs) {
  EPIC_CHECK(slabs.size() == head.layout.layers);
  std::string out = EncodeHead(head);
  out.reserve(ObjectBytes(head.layout));
  for (uint32_t layer = 0; layer < head.layout.layers; ++layer) {
    EPIC_CHECK(slabs[layer].size() == head.layout.LayerBytes());
    out.resize(SlabOffset(head.layout, layer), '\0');
    out.append(AsText(slabs[layer]));
  }
  return out;
}

absl::StatusOr<DecodedObject> DecodeObject(ByteSpan bytes) {
  DecodedObject object;
  EPIC_ASSIGN_OR_RETURN(object.head, DecodeHead(bytes));
  const KvLayout& layout = object.head.layout;
  if (bytes.size() != ObjectBytes(layout)) {
    return absl::DataLossError(ToAbsl("KV object: " + std::to_string(bytes.size()) +
                                      " bytes where its layout has " + std::to_string(ObjectBytes(layout))));
  }
  for (uint32_t layer = 0; layer < layout.layers; ++layer) {
    const ByteSpan slab = bytes.subspan(SlabOffset(layout, layer), layout.LayerBytes());
    if (!SlabMatches(object.head, layer, slab)) {
      return absl::DataLossError(ToAbsl("KV object: wrong checksum in layer " + std::to_string(layer)));
    }
    object.slabs.push_back(slab);
  }
  return object;
}

}  // namespace epic
