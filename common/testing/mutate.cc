#include "common/testing/mutate.h"

#include <cstddef>
#include <cstdint>

namespace epic::testing {

std::string Mutate(std::string bytes, Rng* rng) {
  for (uint64_t changes = rng->Below(5); changes > 0; --changes) {
    const size_t at = bytes.empty() ? 0 : rng->Below(bytes.size());
    switch (rng->Below(4)) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(rng->Next());
        break;
      case 1:
        bytes.resize(at);
        break;
      case 2:
        bytes.insert(at, rng->Below(9), static_cast<char>(rng->Next()));
        break;
      default:
        if (!bytes.empty()) bytes[at] = static_cast<char>(rng->Below(2) == 0 ? 0xff : 0);
    }
  }
  return bytes;
}

}  // namespace epic::testing
