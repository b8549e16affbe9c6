// Whether the bytes of a range are the object's: the checksums of its blocks (object_codec.h), computed as
// the pieces arrive, the same for every path. A path that copies does both in one pass. One thread at a time;
// no path may call a range OK that was not finished here.
//
// Blocks: a layer is 2 * kv_heads heads one behind the other, each cut at 256 KiB from its start.
#ifndef EPIC_COMMON_TRANSPORT_RANGE_CHECK_H_
#define EPIC_COMMON_TRANSPORT_RANGE_CHECK_H_

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "common/base/bytes.h"
#include "common/storage/kv_object.h"
#include "common/transport/transport.h"

namespace epic::transport {

// The block of a layer that begins at `offset`; the number of blocks of a layer for its end; nullopt where no
// block begins. REQUIRES: a layout that ValidateLayout accepts.
std::optional<uint64_t> BlockAt(const KvLayout& layout, uint64_t offset);
// Where a block of a layer begins; the layer's size for its number of blocks.
uint64_t BlockOffset(const KvLayout& layout, uint64_t block);

// What the region says of blocks [first, first + count) of a layer; empty when it knows no checksums.
std::span<const uint32_t> KnownCrcs(const Region& region, uint32_t layer, uint64_t first, uint64_t count);

class RangeCheck {
 public:
  // `layer_crcs`: what the peer says of the whole layer. What the region says besides is compared with it.
  // Both are copied as far as they are needed. REQUIRES: a request that ValidateRequest accepts has it.
  RangeCheck(const Region& region, const FetchRange& range, std::span<const uint32_t> layer_crcs);

  // The next bytes of the range, in order. Errors: DamagedStatus, from the first block on that is wrong;
  // also for more bytes than the range has. After an error: nothing more.
  // Copied into the buffer on the way.
  absl::Status Copy(ByteSpan piece);
  // In the buffer already.
  absl::Status Seen(uint64_t bytes);
  // OK when the whole range came and is right; DamagedStatus.
  absl::Status Finish() const;

  uint64_t done_bytes() const { return done_; }
  // Of the range's blocks, for OnRange. Shape: [blocks of the range].
  std::span<const uint32_t> block_crcs() const { return expected_; }

 private:
  friend absl::Status CheckRange(const Region&, const FetchRange&, std::span<const uint32_t>);
  RangeCheck(const Region& region, const FetchRange& range);
  // Of the range's blocks.
  void Expect(const Region& region, std::span<const uint32_t> crcs);
  absl::Status Take(uint64_t bytes, const std::byte* from);

  const KvLayout layout_;
  const uint32_t layer_;
  const uint64_t offset_;
  const MutableByteSpan to_;
  std::vector<uint32_t> expected_;
  bool damaged_ = false;
  uint64_t done_ = 0;   // bytes
  size_t block_ = 0;    // of the range: the one that is being summed
  uint64_t end_ = 0;    // of that block, in bytes from the range's start
  uint32_t crc_ = 0;    // of what came of it
  uint64_t first_ = 0;  // block of the layer with which the range begins
  uint64_t count_ = 0;  // of its blocks
};

// The whole range at once, for paths whose pieces come in any order. `crcs`: what the peer says of the
// range's blocks. Errors: DamagedStatus.
absl::Status CheckRange(const Region& region, const FetchRange& range, std::span<const uint32_t> crcs);

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_RANGE_CHECK_H_
