// A reader-writer lock for what is read at a high rate and changed seldom: readers on different CPUs touch
// different cache lines, so that they do not slow each other down; a writer locks all of them, one after the
// other. Also a condition variable for its writers, like those of mutex.h.
//
// Readers of one CPU may exclude each other: who reads must not wait for another reader, nor lock twice.
// Each lock of a reader is one slot; what is kept for each slot apart may be changed by the reader that has
// the slot, and by writers (see SharedLock::slot).
#ifndef EPIC_COMMON_BASE_SHARED_MUTEX_H_
#define EPIC_COMMON_BASE_SHARED_MUTEX_H_

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/check.h"

namespace epic {

class ABSL_LOCKABLE SharedMutex {
 public:
  SharedMutex() : slots_(SlotsOfThisMachine()) {}
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    for (Slot& slot : slots_) slot.Lock();
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    for (Slot& slot : slots_) slot.Unlock();
  }
  // The slot, to be handed to ReaderUnlock.
  size_t ReaderLock() ABSL_SHARED_LOCK_FUNCTION() {
    const int cpu = sched_getcpu();  // a guess is enough: the thread may move
    const size_t slot = static_cast<size_t>(std::max(cpu, 0)) & (slots_.size() - 1);
    slots_[slot].Lock();
    return slot;
  }
  void ReaderUnlock(size_t slot) ABSL_UNLOCK_FUNCTION() { slots_[slot].Unlock(); }

  // A power of two.
  size_t slots() const { return slots_.size(); }

 private:
  static constexpr size_t kMostSlots = 32;
  // Two cache lines: CPUs fetch them in pairs. Spins a little before it sleeps: readers are soon done, and a
  // writer that slept for each of them would wait for long.
  class alignas(128) Slot {
   public:
    Slot() {
      pthread_mutexattr_t kind;
      EPIC_CHECK(pthread_mutexattr_init(&kind) == 0);
      EPIC_CHECK(pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP) == 0);
      EPIC_CHECK(pthread_mutex_init(&mu_, &kind) == 0);
      pthread_mutexattr_destroy(&kind);
    }
    ~Slot() { pthread_mutex_destroy(&mu_); }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    void Lock() { pthread_mutex_lock(&mu_); }
    void Unlock() { pthread_mutex_unlock(&mu_); }

   private:
    pthread_mutex_t mu_;
  };

  static size_t SlotsOfThisMachine() {
    const long cpus = sysconf(_SC_NPROCESSORS_CONF);
    return std::min(std::bit_ceil(static_cast<size_t>(std::max(cpus, 1L))), kMostSlots);
  }

  std::vector<Slot> slots_;
};

// Of a writer.
class ABSL_SCOPED_LOCKABLE ExclusiveLock {
 public:
  explicit ExclusiveLock(SharedMutex* mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : mu_(mu) { mu_->Lock(); }
  ~ExclusiveLock() ABSL_UNLOCK_FUNCTION() { mu_->Unlock(); }
  ExclusiveLock(const ExclusiveLock&) = delete;
  ExclusiveLock& operator=(const ExclusiveLock&) = delete;

 private:
  SharedMutex* const mu_;
};

// Of a reader.
class ABSL_SCOPED_LOCKABLE SharedLock {
 public:
  explicit SharedLock(SharedMutex* mu) ABSL_SHARED_LOCK_FUNCTION(mu) : mu_(mu), slot_(mu->ReaderLock()) {}
  ~SharedLock() ABSL_UNLOCK_FUNCTION() { mu_->ReaderUnlock(slot_); }
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;

  // Below mu->slots(); until the end of this lock nobody else has the slot.
  size_t slot() const { return slot_; }

 private:
  SharedMutex* const mu_;
  const size_t slot_;
};

// May wake without a signal: wait in a loop over the condition.
class SharedCondVar {
 public:
  void Wait(SharedMutex* mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    Writer writer{mu};
    changed_.wait(writer);
  }
  void SignalAll() { changed_.notify_all(); }

 private:
  struct Writer {
    SharedMutex* mu;
    void lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mu->Lock(); }
    void unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mu->Unlock(); }
  };

  std::condition_variable_any changed_;
};

}  // namespace epic

#endif  // EPIC_COMMON_BASE_SHARED_MUTEX_H_
