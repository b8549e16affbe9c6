#include "kernels/segment_attention/tile_unit_emulated.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "common/base/check.h"
#include "kernels/segment_attention/tile_product.h"

namespace epic::internal {
namespace {

struct Tile {
  uint8_t bytes[16][64];
};

// The tile registers of a thread.
struct Registers {
  TileConfig config;
  Tile tiles[8];
};
thread_local Registers registers = {};

float Flushed(float value) {
  return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0f, value) : value;
}

struct EmulatedTiles {
  static void Configure(const TileConfig& config) {
    EPIC_CHECK(config.palette == 1);
    for (size_t t = 0; t < 8; ++t) EPIC_CHECK(config.rows[t] <= 16 && config.row_bytes[t] <= 64);
    registers = {};
    registers.config = config;
  }
  static void Release() { registers = {}; }

  template <int kTile>
  static void Zero() {
    Configured(kTile) = {};
  }
  template <int kTile>
  static void Load(const void* from, size_t stride) {
    Tile& tile = Configured(kTile);
    tile = {};
    for (size_t r = 0; r < registers.config.rows[kTile]; ++r) {
      std::memcpy(tile.bytes[r], static_cast<const char*>(from) + r * stride,
                  registers.config.row_bytes[kTile]);
    }
  }
  template <int kTile>
  static void Store(void* to, size_t stride) {
    const Tile& tile = Configured(kTile);
    for (size_t r = 0; r < registers.config.rows[kTile]; ++r) {
      std::memcpy(static_cast<char*>(to) + r * stride, tile.bytes[r], registers.config.row_bytes[kTile]);
    }
  }
  template <int kSum, int kA, int kB>
  static void Dot() {
    static_assert(kSum != kA && kSum != kB && kA != kB);
    const TileConfig& config = registers.config;
    const size_t pairs = config.row_bytes[kA] / 4;
    EPIC_CHECK(config.rows[kSum] == config.rows[kA] && config.rows[kB] == pairs &&
               config.row_bytes[kSum] == config.row_bytes[kB]);
    for (size_t m = 0; m < config.rows[kSum]; ++m) {
      AddRow(Configured(kA).bytes[m], Configured(kB), pairs, config.row_bytes[kSum] / 4,
             Configured(kSum).bytes[m]);
    }
  }

 private:
  // A tile without rows may not be named.
  static Tile& Configured(int tile) {
    EPIC_CHECK(registers.config.palette == 1 && registers.config.rows[tile] > 0);
    return registers.tiles[tile];
  }

  static void AddRow(const uint8_t* a_bytes, const Tile& b_tile, size_t pairs, size_t columns,
                     uint8_t* c_bytes) {
    Bf16 a[32];
    float c[16];
    float even[16] = {}, odd[16] = {};
    std::memcpy(a, a_bytes, sizeof(a));
    std::memcpy(c, c_bytes, sizeof(c));
    for (size_t k = 0; k < pairs; ++k) {
      Bf16 b[32];
      std::memcpy(b, b_tile.bytes[k], sizeof(b));
      const float a_even = Flushed(ToF32(a[2 * k])), a_odd = Flushed(ToF32(a[2 * k + 1]));
      for (size_t n = 0; n < columns; ++n) {
        even[n] = Flushed(even[n] + a_even * Flushed(ToF32(b[2 * n])));
        odd[n] = Flushed(odd[n] + a_odd * Flushed(ToF32(b[2 * n + 1])));
      }
    }
    for (size_t n = 0; n < columns; ++n) c[n] = Flushed(Flushed(c[n]) + Flushed(even[n] + odd[n]));
    std::memcpy(c_bytes, c, columns * sizeof(float));
  }
};

void Begin() { EmulatedTiles::Configure(kAllTiles); }
void End() { EmulatedTiles::Release(); }
void Multiply(const TileProduct& product) { MultiplyTiles<EmulatedTiles>(product); }

constexpr TileUnit kUnit = {"emulated", Begin, Multiply, End};

}  // namespace

const TileUnit& EmulatedTileUnit() { return kUnit; }

}  // namespace epic::internal
