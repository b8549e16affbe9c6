#include "common/transport/ucx/piece_plan.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/transport/range_check.h"
#include "common/transport/ucx/wire.h"

namespace epic::transport {

uint64_t PieceEnd(const KvLayout& layout, uint64_t offset, uint64_t end) {
  const std::optional<uint64_t> first = BlockAt(layout, offset);
  const std::optional<uint64_t> last = BlockAt(layout, end);
  EPIC_CHECK(first.has_value() && last.has_value() && *first < *last);
  // The largest number of blocks that fits: offsets of blocks only grow.
  uint64_t low = *first + 1;
  uint64_t high = std::min(*last, *first + wire::kMaxPieceBlocks);
  while (low < high) {
    const uint64_t middle = low + (high - low + 1) / 2;
    if (BlockOffset(layout, middle) - offset <= wire::kMaxPieceBytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return BlockOffset(layout, low);
}

std::optional<BlockSpan> BlocksOf(const KvLayout& layout, uint64_t offset, uint64_t length) {
  if (length == 0 || offset > layout.LayerBytes() || length > layout.LayerBytes() - offset) {
    return std::nullopt;
  }
  const std::optional<uint64_t> first = BlockAt(layout, offset);
  const std::optional<uint64_t> last = BlockAt(layout, offset + length);
  if (!first.has_value() || !last.has_value() || *last - *first > wire::kMaxPieceBlocks) return std::nullopt;
  return BlockSpan{.first = *first, .count = static_cast<uint32_t>(*last - *first)};
}

}  // namespace epic::transport
