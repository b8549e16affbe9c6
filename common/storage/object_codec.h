// The bytes of a KV object, format version 1. Little-endian. Thread-safe: free functions without state.
//
//   offset  size   field
//        0     8   magic "EPICKVO1"
//        8     4   format version, 1
//       12     4   head bytes: header, token section and block section together
//       16    36   Cache ID, "ctx_" and 32 characters
//       52    32   variant digest (ObjectVariant::ToDigest)
//       84     4   layers, L               1..4096
//       88     4   tokens, n               1..2^24
//       92     4   kv heads, G             1..4096
//       96     4   head dim, D             1..8192
//      100     4   dtype: 0 f32, 1 bf16
//      104     4   first position, p0      0..2^24
//      108    32   build digest: SHA-256(field("epic.kv_build.v1") field(block CRCs as u32))
//      140     4   header CRC32C of bytes 0..139
//      144    4n   token section: ids as u32,
//     then     4     and CRC32C of the ids
//     then    4b   block section: CRC32C of each block as u32, b = L * 2 * G * ceil(n*D*size / 256 KiB),
//     then     4     in the order layer, K then V, head, block; and CRC32C of the section
//     then         zeros to a multiple of the alignment, then the slabs [2][G][n][D], K then V; each slab
//                  starts at a multiple of the alignment; nothing follows the last one
//
// Blocks never cross a {layer, K or V, head}: the last one of a head may be shorter than 256 KiB. The
// alignment is 4096; where a slab is smaller than that ("small objects") it is 64, so that they pack. A store
// that keeps slabs in rows or extents of its own keeps the head (all before the slabs) beside them. Not here:
// how objects are stored or become visible (services/kv_store).
#ifndef EPIC_COMMON_STORAGE_OBJECT_CODEC_H_
#define EPIC_COMMON_STORAGE_OBJECT_CODEC_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/base/digest.h"
#include "common/storage/cache_id.h"
#include "common/storage/kv_object.h"

namespace epic {

inline constexpr uint32_t kObjectFormatVersion = 1;
inline constexpr uint64_t kObjectBlockBytes = uint64_t{256} << 10;

// Everything of an object but its slabs.
struct ObjectHead {
  CacheId id;
  Digest variant;
  KvLayout layout;
  Digest build;
  std::vector<TokenId> tokens;       // Shape: [layout.tokens]
  std::vector<uint32_t> block_crcs;  // Shape: [BlockCount(layout)]
  bool operator==(const ObjectHead&) const = default;
};

// Whether each dimension lies in the bounds above. Errors: InvalidArgument that names the field.
absl::Status ValidateLayout(const KvLayout& layout);

// The rest REQUIRES a layout that ValidateLayout accepts.

// Blocks of one {layer, K or V, head}; of one layer; of the object.
uint64_t BlocksPerHead(const KvLayout& layout);
uint64_t BlocksPerLayer(const KvLayout& layout);
uint64_t BlockCount(const KvLayout& layout);
// Alignment of slabs in bytes: 4096, or 64 for small objects.
uint64_t SlabAlignment(const KvLayout& layout);
uint64_t HeadBytes(const KvLayout& layout);
// Where the slab of `layer` starts in the whole object, in bytes.
uint64_t SlabOffset(const KvLayout& layout, uint32_t layer);
uint64_t ObjectBytes(const KvLayout& layout);

// CRC32C of every block of one slab into `crcs`. REQUIRES: slab.size() == layout.LayerBytes(),
// crcs.size() == BlocksPerLayer(layout).
void ComputeBlockCrcs(const KvLayout& layout, ByteSpan slab, std::span<uint32_t> crcs);
// The same, fused with a copy of `slab` to `to`, block by block while it is in cache. REQUIRES: equal sizes.
void CopyWithBlockCrcs(const KvLayout& layout, ByteSpan slab, MutableByteSpan to, std::span<uint32_t> crcs);
// The same, compared with checksums that are known: whether the copy has them. Stops at the first block that
// has not. REQUIRES as above.
bool CopyIfMatches(const KvLayout& layout, ByteSpan slab, MutableByteSpan to, std::span<const uint32_t> crcs);
// Whether the bytes of one slab are those that the head was made for.
bool SlabMatches(const ObjectHead& head, uint32_t layer, ByteSpan slab);

Digest BuildDigest(std::span<const uint32_t> block_crcs);

// REQUIRES: tokens and block_crcs have the sizes that the layout asks for, build == BuildDigest(block_crcs).
std::string EncodeHead(const ObjectHead& head);
// Reads a head at the start of `bytes`; what follows it is not looked at.
// Errors: InvalidArgument (not an object, or a field out of bounds; named), Unimplemented (another format
// version), DataLoss (truncated, or a checksum does not match).
absl::StatusOr<ObjectHead> DecodeHead(ByteSpan bytes);

// The whole object in one piece. REQUIRES as EncodeHead; slabs.size() == layers, each of LayerBytes().
std::string EncodeObject(const ObjectHead& head, std::span<const ByteSpan> slabs);

struct DecodedObject {
  ObjectHead head;
  std::vector<ByteSpan> slabs;  // views of the input
};
// Verifies every checksum. Errors as DecodeHead; the size must be exact.
absl::StatusOr<DecodedObject> DecodeObject(ByteSpan bytes);

}  // namespace epic

#endif  // EPIC_COMMON_STORAGE_OBJECT_CODEC_H_
