// The ids of requests: which of a client's are taken, and new ones where it sends none. Owned by a door.
// Thread-safe.
#ifndef EPIC_COMMON_BASE_REQUEST_IDS_H_
#define EPIC_COMMON_BASE_REQUEST_IDS_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace epic {

class RequestIds {
 public:
  // `seed` begins the sequence of new ids: another seed, other ids.
  explicit RequestIds(uint64_t seed) : seed_(seed) {}

  // `sent` where it is safe to log and to send back (1 to 128 of A-Z a-z 0-9 . _ : -), else a new id.
  std::string TakeOrMake(std::string_view sent);

 private:
  const uint64_t seed_;
  std::atomic<uint64_t> made_{0};
};

}  // namespace epic

#endif  // EPIC_COMMON_BASE_REQUEST_IDS_H_
