#include "services/kv_store/core/arena_allocator.h"

#include <algorithm>
#include <iterator>

#include "common/base/check.h"

namespace epic::kv_store {

ArenaAllocator::ArenaAllocator(uint64_t capacity_bytes)
    : capacity_bytes_(capacity_bytes / kGranuleBytes * kGranuleBytes) {
  if (capacity_bytes_ > 0) AddHole(0, capacity_bytes_);
}

void ArenaAllocator::AddHole(uint64_t offset, uint64_t bytes) {
  holes_.emplace(offset, bytes);
  holes_by_size_.emplace(bytes, offset);
  free_bytes_ += bytes;
}

void ArenaAllocator::RemoveHole(uint64_t offset, uint64_t bytes) {
  holes_.erase(offset);
  holes_by_size_.erase({bytes, offset});
  free_bytes_ -= bytes;
}

ArenaAllocator::Extent ArenaAllocator::Take(uint64_t hole_bytes, uint64_t offset, uint64_t piece_bytes,
                                            uint64_t pieces) {
  const uint64_t bytes = Footprint(piece_bytes * pieces);
  RemoveHole(offset, hole_bytes);
  if (hole_bytes > bytes) AddHole(offset + bytes, hole_bytes - bytes);
  ++extents_;
  return {.offset = offset, .bytes = bytes, .pieces = pieces};
}

std::vector<ArenaAllocator::Extent> ArenaAllocator::Allocate(uint64_t piece_bytes, uint64_t pieces) {
  EPIC_CHECK(piece_bytes > 0 && pieces > 0);
  std::vector<Extent> extents;
  if (piece_bytes > free_bytes_ || pieces > free_bytes_ / piece_bytes) return extents;
  uint64_t left = pieces;
  while (extents.size() < kMaxExtents) {
    const auto fits = holes_by_size_.lower_bound({Footprint(piece_bytes * left), 0});
    if (fits != holes_by_size_.end()) {
      extents.push_back(Take(fits->first, fits->second, piece_bytes, left));
      return extents;
    }
    if (holes_by_size_.empty()) break;
    // The largest hole takes what it can: that makes the fewest extents.
    const auto [hole_bytes, offset] = *holes_by_size_.rbegin();
    const uint64_t taken = hole_bytes / piece_bytes;
    if (taken == 0 || extents.size() + 1 == kMaxExtents) break;
    extents.push_back(Take(hole_bytes, offset, piece_bytes, taken));
    left -= taken;
  }
  Free(extents);
  return {};
}

void ArenaAllocator::Free(std::span<const Extent> extents) {
  for (const Extent& extent : extents) FreeExtent(extent.offset, extent.bytes);
}

void ArenaAllocator::FreeExtent(uint64_t offset, uint64_t bytes) {
  uint64_t begin = offset;
  uint64_t end = offset + bytes;
  EPIC_CHECK(extents_ > 0 && bytes > 0 && end <= capacity_bytes_);
  --extents_;
  auto after = holes_.lower_bound(offset);
  if (after != holes_.begin()) {
    const auto before = std::prev(after);
    EPIC_CHECK(before->first + before->second <= begin);
    if (before->first + before->second == begin) begin = before->first;
  }
  if (after != holes_.end()) {
    EPIC_CHECK(after->first >= end);
    if (after->first == end) {
      end += after->second;
      RemoveHole(after->first, after->second);
    }
  }
  if (begin < offset) RemoveHole(begin, offset - begin);
  AddHole(begin, end - begin);
}

ArenaAllocator::Numbers ArenaAllocator::numbers() const {
  return {.capacity_bytes = capacity_bytes_,
          .free_bytes = free_bytes_,
          .largest_hole_bytes = holes_by_size_.empty() ? 0 : holes_by_size_.rbegin()->first,
          .holes = holes_.size(),
          .extents = extents_};
}

}  // namespace epic::kv_store
