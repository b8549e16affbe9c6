// How a range is cut into pieces: whole blocks (range_check.h), so that each piece is checked by itself. Both
// ends use it: the reader to ask, the peer to know which checksums go with an answer. Free functions.
#ifndef EPIC_COMMON_TRANSPORT_UCX_PIECE_PLAN_H_
#define EPIC_COMMON_TRANSPORT_UCX_PIECE_PLAN_H_

#include <cstdint>
#include <optional>

#include "common/storage/kv_object.h"

namespace epic::transport {

// Blocks of a layer: [first, first + count).
struct BlockSpan {
  uint64_t first = 0;
  uint32_t count = 0;
};

// The end of the piece that begins at `offset` of a layer: as many whole blocks as fit into the limits of
// wire.h, up to `end`. REQUIRES: both are borders of blocks; offset < end.
uint64_t PieceEnd(const KvLayout& layout, uint64_t offset, uint64_t end);

// The blocks of a piece that somebody asks for; nullopt when it does not begin and end where blocks do, is
// not in its layer, or has too many. Bytes of the request may be hostile.
std::optional<BlockSpan> BlocksOf(const KvLayout& layout, uint64_t offset, uint64_t length);

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_PIECE_PLAN_H_
