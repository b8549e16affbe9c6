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

RangeCheck::RangeCheck(const Region& region, const FetchRange& range, std::span<const uint32_t> layer_crcs)
    : layout_(region.layout), layer_(range.layer), offset_(range.offset), to_(range.to) {
  const std::optional<uint64_t> first = BlockAt(layout_, range.offset);
  const std::optional<uint64_t> last = BlockAt(layout_, range.offset + range.to.size());
  if (to_.empty()) return;
  EPIC_CHECK(first.has_value() && last.has_value());
  first_ = *first;
  if (layer_crcs.size() != BlocksPerLayer(layout_)) {
    damaged_ = true;
    return;
  }
  const auto said = layer_crcs.subspan(first_, *last - first_);
  expected_.assign(said.begin(), said.end());
  if (!region.block_crcs.empty()) {
    const uint64_t at = layer_ * BlocksPerLayer(layout_) + first_;
    damaged_ = !std::equal(expected_.begin(), expected_.end(),
                           region.block_crcs.begin() + static_cast<ptrdiff_t>(at));
  }
  end_ = BlockOffset(layout_, first_ + 1) - offset_;
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

absl::Status CheckRange(const Region& region, const FetchRange& range, std::span<const uint32_t> layer_crcs) {
  RangeCheck check(region, range, layer_crcs);
  if (absl::Status status = check.Seen(range.to.size()); !status.ok()) return status;
  return check.Finish();
}

}  // namespace epic::transport
