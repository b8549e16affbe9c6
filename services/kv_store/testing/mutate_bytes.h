// A few changes of bytes, as damage or an attacker would make them: cut off, put in, overwritten; half of
// them where a head is likely to lie. Tests only.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_MUTATE_BYTES_H_
#define EPIC_SERVICES_KV_STORE_TESTING_MUTATE_BYTES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/random.h"

namespace epic::kv_store {

inline std::string MutateBytes(std::string bytes, Rng* rng) {
  constexpr size_t kHeadBytes = 64;
  for (uint64_t changes = 1 + rng->Below(3); changes > 0 && !bytes.empty(); --changes) {
    const bool in_head = rng->Below(2) == 0;
    const size_t at = rng->Below(in_head ? std::min(bytes.size(), kHeadBytes) : bytes.size());
    switch (rng->Below(5)) {
      case 0:
        bytes.resize(at);
        break;
      case 1:
        bytes.insert(at, rng->Below(13), static_cast<char>(rng->Next()));
        break;
      default:
        bytes[at] = rng->Below(3) == 0 ? static_cast<char>(0xff) : static_cast<char>(rng->Next());
    }
  }
  return bytes;
}

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TESTING_MUTATE_BYTES_H_
