// Mutations of bytes for fuzz tests of decoders that take any bytes. Tests only.
#ifndef EPIC_COMMON_TESTING_MUTATE_H_
#define EPIC_COMMON_TESTING_MUTATE_H_

#include <string>

#include "common/base/random.h"

namespace epic::testing {

// Up to four times: a byte changed, to 0 and 255 more often than to others; the end cut off; or up to eight
// equal bytes put in.
std::string Mutate(std::string bytes, Rng* rng);

}  // namespace epic::testing

#endif  // EPIC_COMMON_TESTING_MUTATE_H_
