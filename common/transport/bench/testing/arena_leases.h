// Objects of a TestSource in an arena, as a store would hand them over by shm: copied there once. Header
// only; thread-safe after construction. Tests and benches only.
#ifndef EPIC_COMMON_TRANSPORT_BENCH_TESTING_ARENA_LEASES_H_
#define EPIC_COMMON_TRANSPORT_BENCH_TESTING_ARENA_LEASES_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/storage/shm/lease_source.h"
#include "common/storage/shm/unix_socket.h"
#include "common/transport/testing/test_source.h"

namespace epic::transport {

class ArenaLeases final : public shm::LeaseSource {
 public:
  // REQUIRES: the regions are of `source`, and are told.
  ArenaLeases(const TestSource& source, const std::vector<std::shared_ptr<const Region>>& regions)
      : file_(memfd_create("arena", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    for (const auto& region : regions) size_ += region->layout.layers * LayerRoom(region->layout);
    EPIC_CHECK(file_.valid() && ftruncate(file_.get(), static_cast<off_t>(size_)) == 0);
    void* const pages = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    EPIC_CHECK(pages != MAP_FAILED);
    uint64_t at = 0;
    for (const auto& region : regions) {
      shm::LeasedObject& object = answers_[region->key];
      object.generation = region->generation;
      object.build = *region->build;
      object.block_crcs = region->block_crcs;
      for (uint32_t layer = 0; layer < region->layout.layers; ++layer) {
        const ByteSpan slab = source.Bytes(*region, layer);
        std::copy(slab.begin(), slab.end(), static_cast<std::byte*>(pages) + at);
        object.layer_offsets.push_back(at);
        at += LayerRoom(region->layout);
      }
    }
    munmap(pages, size_);
    EPIC_CHECK(fcntl(file_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK) == 0);
    read_only_.Reset(open(("/proc/self/fd/" + std::to_string(file_.get())).c_str(), O_RDONLY | O_CLOEXEC));
    EPIC_CHECK(read_only_.valid());
  }
  int fd() const { return read_only_.get(); }
  uint64_t size() const { return size_; }

  Lease Find(const shm::LeaseRequest& request) override {
    Lease lease;
    const auto found = answers_.find(request.key);
    if (found == answers_.end()) return lease;
    lease.answer.outcome = shm::LeaseOutcome::kLeased;
    lease.answer.object = found->second;
    if (request.zero_copy) lease.hold = std::make_shared<int>(0);
    return lease;
  }
  bool IsCurrent(const std::string&, const ObjectKey& key, uint64_t generation) override {
    const auto found = answers_.find(key);
    return found != answers_.end() && found->second.generation == generation;
  }

 private:
  static uint64_t LayerRoom(const KvLayout& layout) { return (layout.LayerBytes() + 4095) / 4096 * 4096; }

  shm::UniqueFd file_;
  shm::UniqueFd read_only_;
  uint64_t size_ = 0;
  std::map<ObjectKey, shm::LeasedObject> answers_;  // constant after construction
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_BENCH_TESTING_ARENA_LEASES_H_
