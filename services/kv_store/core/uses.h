// Which uses of a thing run now, so that somebody can wait for those that began before: readers of files that
// are to be deleted, writers over bytes that must go. New uses begin meanwhile. Owned by the thing.
// Thread-safe; no lock is held during a use.
#ifndef EPIC_SERVICES_KV_STORE_CORE_USES_H_
#define EPIC_SERVICES_KV_STORE_CORE_USES_H_

#include <cstdint>
#include <set>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace epic::kv_store {

class Uses {
 public:
  // Waits until every use that began before the call has ended. REQUIRES: none of them is the caller's.
  void AwaitOlder() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    const uint64_t next = next_;
    while (!running_.empty() && *running_.begin() < next) ended_.Wait(&mu_);
  }

 private:
  friend class UseScope;
  uint64_t Begin() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    running_.insert(next_);
    return next_++;
  }
  void End(uint64_t use) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    running_.erase(use);
    ended_.SignalAll();
  }

  Mutex mu_;
  CondVar ended_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<uint64_t> running_ ABSL_GUARDED_BY(mu_);
};

// One use, from the constructor to the destructor.
class UseScope {
 public:
  explicit UseScope(Uses* uses) : uses_(uses), use_(uses->Begin()) {}
  ~UseScope() { uses_->End(use_); }
  UseScope(const UseScope&) = delete;
  UseScope& operator=(const UseScope&) = delete;

 private:
  Uses* const uses_;
  const uint64_t use_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_USES_H_
