// A reader-writer lock that is held during I/O: readers never wait for each other, and a writer that waits
// keeps new readers out, so that it gets its turn. A reader must not enter twice. Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_ROCKSDB_GATE_H_
#define EPIC_SERVICES_KV_STORE_ROCKSDB_GATE_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace epic::kv_store {

class ABSL_LOCKABLE Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void ReaderLock() ABSL_SHARED_LOCK_FUNCTION() {
    MutexLock lock(&mu_);
    while (shut_) changed_.Wait(&mu_);
    ++readers_;
  }
  // False at once where a reader would wait.
  bool TryReaderLock() ABSL_SHARED_TRYLOCK_FUNCTION(true) {
    MutexLock lock(&mu_);
    if (!shut_) ++readers_;
    return !shut_;
  }
  void ReaderUnlock() ABSL_UNLOCK_FUNCTION() {
    MutexLock lock(&mu_);
    if (--readers_ == 0 && shut_) changed_.SignalAll();
  }
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    MutexLock lock(&mu_);
    while (shut_) changed_.Wait(&mu_);
    shut_ = true;
    while (readers_ > 0) changed_.Wait(&mu_);
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    MutexLock lock(&mu_);
    shut_ = false;
    changed_.SignalAll();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  uint64_t readers_ ABSL_GUARDED_BY(mu_) = 0;
  bool shut_ ABSL_GUARDED_BY(mu_) = false;  // a writer is in, or waits for the readers to leave
};

class ABSL_SCOPED_LOCKABLE GateReader {
 public:
  explicit GateReader(Gate* gate) ABSL_SHARED_LOCK_FUNCTION(gate) : gate_(gate) { gate_->ReaderLock(); }
  ~GateReader() ABSL_UNLOCK_FUNCTION() { gate_->ReaderUnlock(); }
  GateReader(const GateReader&) = delete;
  GateReader& operator=(const GateReader&) = delete;

 private:
  Gate* const gate_;
};

class ABSL_SCOPED_LOCKABLE GateWriter {
 public:
  explicit GateWriter(Gate* gate) ABSL_EXCLUSIVE_LOCK_FUNCTION(gate) : gate_(gate) { gate_->Lock(); }
  ~GateWriter() ABSL_UNLOCK_FUNCTION() { gate_->Unlock(); }
  GateWriter(const GateWriter&) = delete;
  GateWriter& operator=(const GateWriter&) = delete;

 private:
  Gate* const gate_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_ROCKSDB_GATE_H_
