// A store for tests of the hand-over: objects in a small sealed memfd, at places that the test gives them,
// and hooks that change them while a client reads. Thread-safe. Tests only.
#ifndef EPIC_COMMON_STORAGE_SHM_TESTING_PLAIN_STORE_H_
#define EPIC_COMMON_STORAGE_SHM_TESTING_PLAIN_STORE_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/storage/object_codec.h"
#include "common/storage/shm/lease_source.h"
#include "common/storage/shm/unix_socket.h"

namespace epic::shm {

inline KvLayout PlainLayout(uint32_t tokens = 64, uint32_t layers = 3) {
  return {.layers = layers,
          .kv_heads = 2,
          .head_dim = 16,
          .tokens = tokens,
          .dtype = KvDtype::kBf16,
          .first_position = 0};
}

inline ObjectKey PlainKey(uint32_t number) {
  return {.id = CacheId::Of("t", {}, std::vector<TokenId>{number}), .variant = {}};
}

// The bytes of all layers, one behind the other.
inline std::string PlainContent(const KvLayout& layout, uint64_t seed) {
  Rng rng(seed);
  std::string content(layout.TotalBytes(), '\0');
  for (char& byte : content) byte = static_cast<char>(rng.Next());
  return content;
}

class PlainStore final : public LeaseSource {
 public:
  static constexpr uint64_t kArenaBytes = 1 << 20;

  explicit PlainStore(bool sealed = true)
      : file_(memfd_create("plain-store", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    EPIC_CHECK(file_.valid() && ftruncate(file_.get(), kArenaBytes) == 0);
    void* pages = mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    EPIC_CHECK(pages != MAP_FAILED);
    memory_ = {static_cast<std::byte*>(pages), kArenaBytes};
    if (sealed) {
      EPIC_CHECK(fcntl(file_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK) == 0);
    }
    read_only_.Reset(open(("/proc/self/fd/" + std::to_string(file_.get())).c_str(), O_RDONLY | O_CLOEXEC));
    EPIC_CHECK(read_only_.valid());
  }
  ~PlainStore() override { munmap(memory_.data(), memory_.size()); }

  int fd() const { return read_only_.get(); }

  // The object of `key` from now on, its layers one behind the other from `offset` on.
  void Put(const ObjectKey& key, const KvLayout& layout, uint64_t offset, uint64_t seed)
      ABSL_LOCKS_EXCLUDED(mu_) {
    const std::string content = PlainContent(layout, seed);
    MutexLock lock(&mu_);
    Object& object = objects_[key];
    object = {.layout = layout, .leased = {}};
    object.leased.generation = ++generations_;
    for (uint32_t layer = 0; layer < layout.layers; ++layer) {
      const ByteSpan slab = AsBytes(content).subspan(layer * layout.LayerBytes(), layout.LayerBytes());
      object.leased.layer_offsets.push_back(offset + layer * layout.LayerBytes());
      std::memcpy(memory_.data() + object.leased.layer_offsets.back(), slab.data(), slab.size());
      std::vector<uint32_t> crcs(BlocksPerLayer(layout));
      ComputeBlockCrcs(layout, slab, crcs);
      object.leased.block_crcs.insert(object.leased.block_crcs.end(), crcs.begin(), crcs.end());
    }
    object.leased.build = BuildDigest(object.leased.block_crcs);
  }
  void Scribble(uint64_t offset) { memory_[offset] ^= std::byte{0x40}; }

  // Runs at the end of each Find that leased something: between a client's request and its copy.
  void AfterFind(std::function<void()> hook) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    after_find_ = std::move(hook);
  }
  void AnswerAllWith(LeaseAnswer answer) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    fixed_ = std::make_unique<LeaseAnswer>(std::move(answer));
  }
  // Until then Find waits.
  void Block() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    blocked_ = true;
  }
  void Unblock() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    blocked_ = false;
    changed_.SignalAll();
  }
  void WaitForHolds(int holds) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    while (holds_ != holds) changed_.Wait(&mu_);
  }
  int holds() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return holds_;
  }

  Lease Find(const LeaseRequest& request) override ABSL_LOCKS_EXCLUDED(mu_) {
    Lease lease;
    std::function<void()> after;
    {
      MutexLock lock(&mu_);
      while (blocked_) changed_.Wait(&mu_);
      if (fixed_ != nullptr) return {.answer = *fixed_, .hold = nullptr};
      const auto object = objects_.find(request.key);
      if (object == objects_.end()) return lease;
      if (object->second.layout != request.layout) {
        lease.answer.cause = MissCause::kLayoutMismatch;
        return lease;
      }
      lease.answer.outcome = LeaseOutcome::kLeased;
      lease.answer.object = object->second.leased;
      after = after_find_;
      if (request.zero_copy) lease.hold = NewHold();
    }
    if (after) after();
    return lease;
  }

  bool IsCurrent(const std::string&, const ObjectKey& key, uint64_t generation) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    const auto object = objects_.find(key);
    return object != objects_.end() && object->second.leased.generation == generation;
  }

 private:
  struct Object {
    KvLayout layout;
    LeasedObject leased;
  };

  std::shared_ptr<const void> NewHold() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ++holds_;
    changed_.SignalAll();
    return {static_cast<const void*>(this), [this](const void*) {
              MutexLock lock(&mu_);
              --holds_;
              changed_.SignalAll();
            }};
  }

  UniqueFd file_;
  UniqueFd read_only_;
  MutableByteSpan memory_;
  mutable Mutex mu_;
  CondVar changed_;
  std::map<ObjectKey, Object> objects_ ABSL_GUARDED_BY(mu_);
  std::function<void()> after_find_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<LeaseAnswer> fixed_ ABSL_GUARDED_BY(mu_);
  bool blocked_ ABSL_GUARDED_BY(mu_) = false;
  int holds_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t generations_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace epic::shm

#endif  // EPIC_COMMON_STORAGE_SHM_TESTING_PLAIN_STORE_H_
