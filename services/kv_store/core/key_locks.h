// One change at a time per context: whoever holds a KeyLock may write the rows of that context to disk
// without holding any mutex. Thread-safe. REQUIRES: a thread holds at most one KeyLock.
#ifndef EPIC_SERVICES_KV_STORE_CORE_KEY_LOCKS_H_
#define EPIC_SERVICES_KV_STORE_CORE_KEY_LOCKS_H_

#include <set>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "services/kv_store/core/disk_calls.h"
#include "services/kv_store/core/rows.h"

namespace epic::kv_store {

class KeyLocks {
 public:
  // False: it could not be had in `wait_ms`; 0: as long as it takes.
  bool Lock(const ContextKey& key, int64_t wait_ms) {
    const Patience patience(wait_ms);
    MutexLock lock(&mu_);
    while (busy_.contains(key)) {
      if (!patience.Wait(&changed_, &mu_)) return false;
    }
    return busy_.insert(key).second;
  }
  void Unlock(const ContextKey& key) {
    MutexLock lock(&mu_);
    busy_.erase(key);
    changed_.SignalAll();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::set<ContextKey> busy_ ABSL_GUARDED_BY(mu_);
};

class KeyLock {
 public:
  KeyLock(KeyLocks* locks, ContextKey key, int64_t wait_ms = 0)
      : locks_(locks), key_(std::move(key)), held_(locks_->Lock(key_, wait_ms)) {}
  ~KeyLock() {
    if (held_) locks_->Unlock(key_);
  }
  KeyLock(const KeyLock&) = delete;
  KeyLock& operator=(const KeyLock&) = delete;
  // Always, unless it waited for a bounded time.
  bool held() const { return held_; }

 private:
  KeyLocks* const locks_;
  const ContextKey key_;
  const bool held_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_KEY_LOCKS_H_
