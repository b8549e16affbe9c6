// What the hand-over asks of a store: where an object is in the arena, and whether that is still so. A store
// implements it; the server (server.h) calls it, from any of its threads.
#ifndef EPIC_COMMON_STORAGE_SHM_LEASE_SOURCE_H_
#define EPIC_COMMON_STORAGE_SHM_LEASE_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "common/storage/kv_object.h"
#include "common/storage/shm/wire.h"

namespace epic::shm {

class LeaseSource {
 public:
  virtual ~LeaseSource() = default;

  struct Lease {
    LeaseAnswer answer;  // its lease number is the server's affair
    // For zero copy, where the outcome is kLeased: as long as it lives, the bytes stay where they are.
    std::shared_ptr<const void> hold;
  };
  // May block on a disk. Everything about the data is an outcome.
  virtual Lease Find(const LeaseRequest& request) = 0;
  // Whether readers of the key get the object of this generation from memory now: then it was there without a
  // break since Find said so. Never blocks on a disk.
  virtual bool IsCurrent(const std::string& tenant, const ObjectKey& key, uint64_t generation) = 0;
};

}  // namespace epic::shm

#endif  // EPIC_COMMON_STORAGE_SHM_LEASE_SOURCE_H_
