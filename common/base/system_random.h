// Random bits of the operating system, which nobody can foretell: for tokens, and for seeds that differ from
// process to process. Any thread. What is to be replayed takes an Rng (random.h).
#ifndef EPIC_COMMON_BASE_SYSTEM_RANDOM_H_
#define EPIC_COMMON_BASE_SYSTEM_RANDOM_H_

#include <cstdint>

namespace epic {

// Uniform 64 bits.
uint64_t SystemRandom();

}  // namespace epic

#endif  // EPIC_COMMON_BASE_SYSTEM_RANDOM_H_
