// One change at a time per context: whoever holds a KeyLock may write the rows of that context to disk
// without holding any mutex. Thread-safe. REQUIRES: a thread holds at most one KeyLock.
#ifndef EPIC_SERVICES_KV_STORE_CORE_KEY_LOCKS_H_
#define EPIC_SERVICES_KV_STORE_CORE_KEY_LOCKS_H_

#include <set>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "services/kv_store/core/rows.h"

namespace epic::kv_store {

class KeyLocks {
 public:
  void Lock(const ContextKey& key) {
    MutexLock lock(&mu_);
    while (busy_.contains(key)) changed_.Wait(&mu_);
    busy_.insert(key);
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
  KeyLock(KeyLocks* locks, ContextKey key) : locks_(locks), key_(std::move(key)) { locks_->Lock(key_); }
  ~KeyLock() { locks_->Unlock(key_); }
  KeyLock(const KeyLock&) = delete;
  KeyLock& operator=(const KeyLock&) = delete;

 private:
  KeyLocks* const locks_;
  const ContextKey key_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_KEY_LOCKS_H_
