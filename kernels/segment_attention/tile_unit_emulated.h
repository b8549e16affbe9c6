// The tile instructions in plain C++, for tests on CPUs without them.
//
// Follows the instructions' published definition: configuration, zeros where a tile has no rows, sums in
// their order, subnormal numbers as zero. A product of two bf16 is exact in f32, so a plain multiplication
// and addition round like the fused one.
#ifndef EPIC_KERNELS_SEGMENT_ATTENTION_TILE_UNIT_EMULATED_H_
#define EPIC_KERNELS_SEGMENT_ATTENTION_TILE_UNIT_EMULATED_H_

#include "kernels/segment_attention/tile_unit.h"

namespace epic::internal {

const TileUnit& EmulatedTileUnit();

}  // namespace epic::internal

#endif  // EPIC_KERNELS_SEGMENT_ATTENTION_TILE_UNIT_EMULATED_H_
