#include "common/base/system_random.h"

#include <sys/random.h>

#include "common/base/check.h"

namespace epic {

uint64_t SystemRandom() {
  uint64_t value = 0;
  // Up to 256 bytes come whole once the system has gathered entropy, which it waits for.
  EPIC_CHECK(getrandom(&value, sizeof value, 0) == static_cast<ssize_t>(sizeof value));
  return value;
}

}  // namespace epic
