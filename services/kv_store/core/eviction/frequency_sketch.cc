#include "services/kv_store/core/eviction/frequency_sketch.h"

#include <algorithm>
#include <bit>

#include "common/base/check.h"
#include "common/base/random.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kFewestKeys = 64;
constexpr uint64_t kMostKeys = uint64_t{1} << 30;

}  // namespace

FrequencySketch::FrequencySketch(uint64_t keys) : width_(std::bit_ceil(std::max(keys, kFewestKeys))) {
  EPIC_CHECK(keys >= 1 && keys <= kMostKeys);
  counters_.resize(kRows * width_ / 2);
}

std::array<uint64_t, FrequencySketch::kRows> FrequencySketch::PlacesOf(uint64_t fingerprint) const {
  Rng mixed(fingerprint);
  std::array<uint64_t, kRows> places;
  for (uint64_t row = 0; row < kRows; ++row) places[row] = row * width_ + (mixed.Next() & (width_ - 1));
  return places;
}

uint32_t FrequencySketch::Estimate(uint64_t fingerprint) const {
  uint32_t least = 15;
  for (const uint64_t place : PlacesOf(fingerprint)) least = std::min(least, At(place));
  return least;
}

void FrequencySketch::Add(uint64_t fingerprint) {
  const auto places = PlacesOf(fingerprint);
  uint32_t least = 15;
  for (const uint64_t place : places) least = std::min(least, At(place));
  if (least < 15) {
    // Only the smallest counters: the others have counted other keys too.
    for (const uint64_t place : places) {
      if (At(place) == least) counters_[place / 2] += static_cast<uint8_t>(1u << (place % 2 * 4));
    }
  }
  if (++added_ >= period()) Halve();
}

void FrequencySketch::Halve() {
  for (uint8_t& pair : counters_) pair = (pair >> 1) & 0x77;
  added_ = 0;
}

}  // namespace epic::kv_store
