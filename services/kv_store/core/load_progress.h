// How far the load of one object has come: its layers become ready in order, or the load ends early and the
// rest never does. Shared by the thread that loads (object_io.h) and the object's readers (host_object.h).
// Thread-safe: what was written before SetReady(l) is seen by whoever was told that layer l is ready.
#ifndef EPIC_SERVICES_KV_STORE_CORE_LOAD_PROGRESS_H_
#define EPIC_SERVICES_KV_STORE_CORE_LOAD_PROGRESS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace epic::kv_store {

class LoadProgress {
 public:
  LoadProgress() = default;
  LoadProgress(const LoadProgress&) = delete;
  LoadProgress& operator=(const LoadProgress&) = delete;

  // --- by the one thread that loads

  // This layer and those before it are in memory and verified. Does nothing once it has failed.
  void SetReady(uint32_t layer) ABSL_LOCKS_EXCLUDED(mu_);

  // By that thread, or by who takes the load for too late: the layers that are not ready never will be. The
  // first one counts. REQUIRES: !status.ok().
  void Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  // --- by readers

  // How many layers are ready.
  uint32_t ready() const { return ready_.load(std::memory_order_acquire); }
  bool HasFailed() const { return failed_.load(std::memory_order_acquire); }
  // Returns when the layer is ready. Errors: that of Fail.
  absl::Status Wait(uint32_t layer) const ABSL_LOCKS_EXCLUDED(mu_);
  // Calls `then` once, when Wait would not block: within this call, or on the thread that brings the layers
  // or ends them, where it must not block.
  void When(uint32_t layer, std::function<void()> then) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Waiter {
    uint32_t layer = 0;
    std::function<void()> then;
  };
  // Those that wait for no layer behind `last`.
  std::vector<Waiter> TakeWaiters(uint32_t last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::atomic<uint32_t> ready_{0};   // changed under mu_
  std::atomic<bool> failed_{false};  // the same
  mutable Mutex mu_;
  mutable CondVar changed_;
  mutable std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mu_);
  absl::Status error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_LOAD_PROGRESS_H_
