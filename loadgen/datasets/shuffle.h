// Orders and draws that are the same on every machine for a seed. Pure.
#ifndef EPIC_LOADGEN_DATASETS_SHUFFLE_H_
#define EPIC_LOADGEN_DATASETS_SHUFFLE_H_

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "common/base/random.h"

namespace epic::loadgen {

// A seed for one use out of a seed and numbers that name the use.
inline uint64_t MixSeed(uint64_t seed, std::initializer_list<uint64_t> numbers) {
  for (const uint64_t number : numbers) seed = Rng(seed ^ Rng(number).Next()).Next();
  return seed;
}

// In place, by Fisher and Yates.
template <typename T>
void Shuffle(Rng* rng, std::vector<T>* values) {
  for (size_t left = values->size(); left > 1; --left)
    std::swap((*values)[left - 1], (*values)[rng->Below(left)]);
}

// 0..count-1, shuffled.
inline std::vector<uint32_t> ShuffledIndices(Rng* rng, uint32_t count) {
  std::vector<uint32_t> indices(count);
  for (uint32_t i = 0; i < count; ++i) indices[i] = i;
  Shuffle(rng, &indices);
  return indices;
}

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_DATASETS_SHUFFLE_H_
