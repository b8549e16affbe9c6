// Mutex, MutexLock and CondVar over std::mutex with Clang's thread-safety annotations. ThreadSanitizer sees
// every std::mutex; it cannot see into the system's Abseil, whose Mutex gives false reports there.
#ifndef EPIC_COMMON_BASE_MUTEX_H_
#define EPIC_COMMON_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace epic {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : mu_(mu) { mu_->Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mu_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mu_;
};

// May wake without a signal: wait in a loop over the condition.
class CondVar {
 public:
  void Wait(Mutex* mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }
  // False when the time ran out first.
  bool WaitForMs(Mutex* mu, int64_t timeout_ms) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    const auto result = changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms));
    lock.release();
    return result == std::cv_status::no_timeout;
  }
  void Signal() { changed_.notify_one(); }
  void SignalAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace epic

#endif  // EPIC_COMMON_BASE_MUTEX_H_
