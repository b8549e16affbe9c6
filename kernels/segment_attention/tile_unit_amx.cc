// The instructions themselves, and whether they may be used. Functions carry their target, so the file is
// compiled for the baseline like every other one.
#include <cpuid.h>

#include "kernels/api/dispatch.h"
#include "kernels/segment_attention/tile_unit.h"

#define EPIC_TILE_TARGET __attribute__((target("amx-tile,amx-bf16")))
#include "kernels/segment_attention/tile_product.h"

namespace epic::internal {
namespace {

// Written out, not as the compilers' intrinsics: those of GCC take literal numbers only and do not say that
// a load reads memory.
struct AmxTiles {
  EPIC_TILE_TARGET static void Configure(const TileConfig& config) {
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
  }
  EPIC_TILE_TARGET static void Release() { __asm__ volatile("tilerelease"); }
  template <int kTile>
  EPIC_TILE_TARGET static void Zero() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  EPIC_TILE_TARGET static void Load(const void* from, size_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  EPIC_TILE_TARGET static void Store(void* to, size_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kSum, int kA, int kB>
  EPIC_TILE_TARGET static void Dot() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
  }
};

EPIC_TILE_TARGET void Begin() { AmxTiles::Configure(kAllTiles); }
EPIC_TILE_TARGET void End() { AmxTiles::Release(); }
EPIC_TILE_TARGET void Multiply(const TileProduct& product) { MultiplyTiles<AmxTiles>(product); }

constexpr TileUnit kUnit = {"AMX", Begin, Multiply, End};

// Palette 1 has eight tiles of 16 rows of 64 bytes.
bool HasExpectedPalette() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(0x1d, 1, &a, &b, &c, &d) == 0) return false;
  return (a >> 16) >= 1024 && (b & 0xffffu) >= 64 && (b >> 16) >= 8 && (c & 0xffffu) >= 16;
}

// A product of whole numbers, which is exact in any order of sums.
bool MultipliesRight() {
  alignas(64) Bf16 a[2 * kTileSide * kTileSteps];
  alignas(64) Bf16 b[2 * kTileElements];
  alignas(64) float c[2 * kTileSide * 2 * kTileSide];
  for (size_t i = 0; i < 2 * kTileElements; ++i) {
    a[i] = ToBf16(static_cast<float>(i * 7 % 23) - 11);
    b[i] = ToBf16(static_cast<float>(i * 5 % 19) - 9);
  }
  kUnit.begin();
  kUnit.multiply({.a = a,
                  .a_stride = kTileSteps,
                  .b = b,
                  .b_stride = 1,
                  .c = c,
                  .c_stride = 2 * kTileSide,
                  .row_tiles = 2,
                  .col_tiles = 2,
                  .k_tiles = 1});
  kUnit.end();
  for (size_t row = 0; row < 2 * kTileSide; ++row) {
    for (size_t col = 0; col < 2 * kTileSide; ++col) {
      float sum = 0;
      for (size_t k = 0; k < kTileSteps; ++k) {
        const size_t at = ((col / kTileSide * kTileSide + k / 2) * kTileSide + col % kTileSide) * 2 + k % 2;
        sum += ToF32(a[row * kTileSteps + k]) * ToF32(b[at]);
      }
      if (c[row * 2 * kTileSide + col] != sum) return false;
    }
  }
  return true;
}

}  // namespace

const TileUnit* AmxTileUnit() {
  static const bool works = GetCpuFeatures().amx_bf16 && HasExpectedPalette() && MultipliesRight();
  return works ? &kUnit : nullptr;
}

}  // namespace epic::internal

#undef EPIC_TILE_TARGET
