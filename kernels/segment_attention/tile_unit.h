// Matrix tiles of bf16 (AMX), as attention uses them: products of blocks of 16 rows and columns.
//
// A unit is a few functions without state of their own; tile registers belong to a thread, from its begin()
// to its end(). The real unit is chosen by CPUID, the system's permission and a trial; the emulated one is
// for tests. A row of `c` depends on that row of `a` and on `b` only.
#ifndef EPIC_KERNELS_SEGMENT_ATTENTION_TILE_UNIT_H_
#define EPIC_KERNELS_SEGMENT_ATTENTION_TILE_UNIT_H_

#include <cstddef>

#include "kernels/api/dtype.h"

namespace epic::internal {

constexpr size_t kTileSide = 16;   // rows of a tile, and columns of f32
constexpr size_t kTileSteps = 32;  // bf16 along the sum: 16 pairs
constexpr size_t kTileElements = kTileSide * kTileSteps;

// c = a · b, or c += a · b. Each 32 steps of the sum are one addition to c: even and odd steps in chains of
// their own from zero, then even + odd. Subnormal numbers count as zero, in and out.
struct TileProduct {
  const Bf16* a = nullptr;  // [row_tiles * 16][a_stride], k_tiles * 32 of each row count
  size_t a_stride = 0;      // elements
  // Tiles [col_tiles][b_stride], k_tiles of each column count. Shape of a tile: [16 pairs][16 columns][2].
  const Bf16* b = nullptr;
  size_t b_stride = 0;  // tiles
  float* c = nullptr;   // [row_tiles * 16][c_stride]
  size_t c_stride = 0;  // elements
  size_t row_tiles = 0;
  size_t col_tiles = 0;
  size_t k_tiles = 0;
  bool add = false;
};

struct TileUnit {
  const char* name;
  void (*begin)();  // before the first product of a thread's task
  void (*multiply)(const TileProduct& product);
  void (*end)();  // after the last: the thread has no tiles any more
};

// Null unless this CPU has bf16 tiles of the expected size, the system lets this process use them, and a
// product by them comes out right.
const TileUnit* AmxTileUnit();

}  // namespace epic::internal

#endif  // EPIC_KERNELS_SEGMENT_ATTENTION_TILE_UNIT_H_
