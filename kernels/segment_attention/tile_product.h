// The walk of TileProduct over tiles, the same for every unit. A unit whose functions need an attribute to
// run tile instructions defines it as EPIC_TILE_TARGET before it includes this.
//
// `Tiles` has the instructions as static functions: Configure(config), Release(), Zero<t>(), Load<t>(from,
// stride in bytes), Store<t>(to, stride in bytes) and Dot<c, a, b>(). Four tiles are sums, two hold rows and
// two columns.
#ifndef EPIC_KERNELS_SEGMENT_ATTENTION_TILE_PRODUCT_H_
#define EPIC_KERNELS_SEGMENT_ATTENTION_TILE_PRODUCT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/segment_attention/tile_unit.h"

#ifndef EPIC_TILE_TARGET
#define EPIC_TILE_TARGET
#endif

namespace epic::internal {

// What LDTILECFG reads.
struct alignas(64) TileConfig {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

// Eight tiles of 16 rows of 64 bytes.
inline constexpr TileConfig kAllTiles = {
    1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

template <class Tiles, int kSum>
EPIC_TILE_TARGET inline void BeginSum(const TileProduct& p, size_t row, size_t col) {
  if (!p.add) return Tiles::template Zero<kSum>();
  Tiles::template Load<kSum>(p.c + row * kTileSide * p.c_stride + col * kTileSide,
                             p.c_stride * sizeof(float));
}

template <class Tiles, int kSum>
EPIC_TILE_TARGET inline void EndSum(const TileProduct& p, size_t row, size_t col) {
  Tiles::template Store<kSum>(p.c + row * kTileSide * p.c_stride + col * kTileSide,
                              p.c_stride * sizeof(float));
}

// Sums 0 and 1 are row tile `row` times two column tiles, 2 and 3 the next row tile.
template <class Tiles, bool kTwoRows, bool kTwoCols>
EPIC_TILE_TARGET inline void MultiplyFour(const TileProduct& p, size_t row, size_t col) {
  BeginSum<Tiles, 0>(p, row, col);
  if constexpr (kTwoCols) BeginSum<Tiles, 1>(p, row, col + 1);
  if constexpr (kTwoRows) BeginSum<Tiles, 2>(p, row + 1, col);
  if constexpr (kTwoRows && kTwoCols) BeginSum<Tiles, 3>(p, row + 1, col + 1);
  const size_t a_bytes = p.a_stride * sizeof(Bf16);
  constexpr size_t kBBytes = kTileSteps * sizeof(Bf16);
  for (size_t k = 0; k < p.k_tiles; ++k) {
    const Bf16* a = p.a + row * kTileSide * p.a_stride + k * kTileSteps;
    const Bf16* b = p.b + (col * p.b_stride + k) * kTileElements;
    Tiles::template Load<4>(a, a_bytes);
    Tiles::template Load<6>(b, kBBytes);
    Tiles::template Dot<0, 4, 6>();
    if constexpr (kTwoCols) {
      Tiles::template Load<7>(b + p.b_stride * kTileElements, kBBytes);
      Tiles::template Dot<1, 4, 7>();
    }
    if constexpr (kTwoRows) {
      Tiles::template Load<5>(a + kTileSide * p.a_stride, a_bytes);
      Tiles::template Dot<2, 5, 6>();
    }
    if constexpr (kTwoRows && kTwoCols) Tiles::template Dot<3, 5, 7>();
  }
  EndSum<Tiles, 0>(p, row, col);
  if constexpr (kTwoCols) EndSum<Tiles, 1>(p, row, col + 1);
  if constexpr (kTwoRows) EndSum<Tiles, 2>(p, row + 1, col);
  if constexpr (kTwoRows && kTwoCols) EndSum<Tiles, 3>(p, row + 1, col + 1);
}

template <class Tiles, bool kTwoRows>
EPIC_TILE_TARGET inline void MultiplyRows(const TileProduct& p, size_t row) {
  size_t col = 0;
  for (; col + 2 <= p.col_tiles; col += 2) MultiplyFour<Tiles, kTwoRows, true>(p, row, col);
  if (col < p.col_tiles) MultiplyFour<Tiles, kTwoRows, false>(p, row, col);
}

// REQUIRES: Tiles::Configure(kAllTiles) on this thread.
template <class Tiles>
EPIC_TILE_TARGET inline void MultiplyTiles(const TileProduct& p) {
  size_t row = 0;
  for (; row + 2 <= p.row_tiles; row += 2) MultiplyRows<Tiles, true>(p, row);
  if (row < p.row_tiles) MultiplyRows<Tiles, false>(p, row);
}

}  // namespace epic::internal

#endif  // EPIC_KERNELS_SEGMENT_ATTENTION_TILE_PRODUCT_H_
