#include "common/transport/range_check.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/storage/object_codec.h"

namespace epic::transport {

std::optional<uint64_t> BlockAt(const KvLayout& layout, uint64_t offset) {
  if (offset == layout.LayerBytes()) return BlocksPerLayer(layout);
  if (offset > layout.LayerBytes()) return std::nullopt;
  const uint64_t within = offset % layout.HeadBytes();
  if (within % kObjectBlockBytes != 0) return std::nullopt;
  return offset / layout.HeadBytes() * BlocksPerHead(layout) + within / kObjectBlockBytes;
}

uint64_t BlockOffset(const KvLayout& layout, uint64_t block) {
  const uint64_t per_head = BlocksPerHead(layout);
  return block / per_head * layout.HeadBytes() + block % per_head * kObjectBlockBytes;
}

std::span<const uint32_t> KnownCrcs(const Region& region, uint32_t layer, uint64_t first, uint64_t count) {
  if (region.block_crcs.empty()) return {};
  return std::span(region.block_crcs).subspan(layer * BlocksPerLayer(region.layout) + first, count);
}

RangeCheck::RangeCheck(const Region& region, const FetchRange& range)
    : layout_(region.layout), layer_(range.layer), offset_(range.offset), to_(range.to) {
  const std::optional<uint64_t> first = BlockAt(layout_, range.offset);
  const std::optional<uint64_t> last = BlockAt(layout_, range.offset + range.to.size());
  if (to_.empty()) return;
  EPIC_CHECK(first.has_value() && last.has_value());
  first_ = *first;
  count_ = *last - *first;
  end_ = BlockOffset(layout_, first_ + 1) - offset_;
}

RangeCheck::RangeCheck(const Region& region, const FetchRange& range, std::span<const uint32_t> layer_crcs)
    : RangeCheck(region, range) {
  if (to_.empty()) return;
  damaged_ = layer_crcs.size() != BlocksPerLayer(layout_);
  if (!damaged_) Expect(region, layer_crcs.subspan(first_, count_));
}

void RangeCheck::Expect(const Region& region, std::span<const uint32_t> crcs) {
  expected_.assign(crcs.begin(), crcs.end());
  const std::span<const uint32_t> known = KnownCrcs(region, layer_, first_, count_);
  damaged_ = crcs.size() != count_ || (!known.empty() && !std::ranges::equal(crcs, known));
}

absl::Status RangeCheck::Copy(ByteSpan piece) { return Take(piece.size(), piece.data()); }

absl::Status RangeCheck::Seen(uint64_t bytes) { return Take(bytes, nullptr); }

absl::Status RangeCheck::Take(uint64_t bytes, const std::byte* from) {
  damaged_ = damaged_ || bytes > to_.size() - done_;
  while (bytes > 0 && !damaged_) {
    const uint64_t part = std::min(bytes, end_ - done_);
    const MutableByteSpan at = to_.subspan(done_, part);
    crc_ = from == nullptr ? Crc32c(crc_, at) : CopyWithCrc32c(crc_, {from, part}, at);
    if (from != nullptr) from += part;
    done_ += part;
    bytes -= part;
    if (done_ < end_) continue;
    damaged_ = crc_ != expected_[block_];
    crc_ = 0;
    ++block_;
    if (done_ < to_.size()) end_ = BlockOffset(layout_, first_ + block_ + 1) - offset_;
  }
  return damaged_ ? DamagedStatus(layer_) : absl::OkStatus();
}

absl::Status RangeCheck::Finish() const {
  return damaged_ || done_ != to_.size() ? DamagedStatus(layer_) : absl::OkStatus();
}

absl::Status CheckRange(const Region& region, const FetchRange& range, std::span<const uint32_t> crcs) {
  RangeCheck check(region, range);
  check.Expect(region, crcs);
  if (absl::Status status = check.Seen(range.to.size()); !status.ok()) return status;
  return check.Finish();
}

}  // namespace epic::transport
