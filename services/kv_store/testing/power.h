// What befalls all the files of one disk at the same instant: a power cut, calls that fail, calls that
// stand still, a hook for delays. Shared by the file systems that lie on that disk (faulty_file_system.h,
// faults/testing/faulty_rocks_file_system.h). Steps are counted: each piece that is written, each sync, each
// change of a name. Thread-safe. Tests only.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_POWER_H_
#define EPIC_SERVICES_KV_STORE_TESTING_POWER_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace epic::kv_store {

class Power {
 public:
  enum class Outcome : uint8_t { kDone, kFails, kCut };
  // Called before each call of a disk, with the bytes that it moves; may block, holds no lock.
  using Hook = std::function<void(uint64_t bytes)>;

  // Every step fails after `steps` more, until Restore().
  void CutAfter(uint64_t steps) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    cut_at_ = steps_ + steps;
  }
  // `count` steps fail, after `steps` more.
  void FailAfter(uint64_t steps, uint64_t count) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    fail_from_ = steps_ + steps;
    fail_until_ = fail_from_ + count;
  }
  void Restore() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    cut_at_ = kNever;
    fail_from_ = kNever;
    fail_until_ = kNever;
    refused_ = false;
    open_ = true;
    changed_.SignalAll();
  }
  bool is_cut() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return steps_ >= cut_at_;
  }
  // Whether the cut has been noticed: a step was refused.
  bool has_refused() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return refused_;
  }
  // Whether a step that was to fail did.
  bool has_failed() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return steps_ > fail_from_;
  }
  uint64_t steps() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return steps_;
  }
  // While the gate is shut every call waits in Pass().
  void SetGate(bool open) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    open_ = open;
    changed_.SignalAll();
  }
  // Waits until that many calls wait at the gate.
  void AwaitHeld(uint64_t calls) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    while (held_ < calls) changed_.Wait(&mu_);
  }
  void SetHook(Hook hook) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    hook_ = hook == nullptr ? nullptr : std::make_shared<const Hook>(std::move(hook));
  }

  // --- for file systems

  // Before a call, without locks: waits at the gate, runs the hook.
  void Pass(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_) {
    std::shared_ptr<const Hook> hook;
    {
      MutexLock lock(&mu_);
      ++held_;
      if (!open_) changed_.SignalAll();
      while (!open_) changed_.Wait(&mu_);
      --held_;
      hook = hook_;
    }
    if (hook != nullptr) (*hook)(bytes);
  }
  // A step is about to happen; it must not, unless kDone.
  Outcome Step() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (steps_ >= cut_at_) refused_ = true;
    if (refused_) return Outcome::kCut;
    const uint64_t step = steps_++;
    return step >= fail_from_ && step < fail_until_ ? Outcome::kFails : Outcome::kDone;
  }

 private:
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  Mutex mu_;
  CondVar changed_;
  uint64_t steps_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t cut_at_ ABSL_GUARDED_BY(mu_) = kNever;
  uint64_t fail_from_ ABSL_GUARDED_BY(mu_) = kNever;
  uint64_t fail_until_ ABSL_GUARDED_BY(mu_) = kNever;
  bool refused_ ABSL_GUARDED_BY(mu_) = false;
  bool open_ ABSL_GUARDED_BY(mu_) = true;
  uint64_t held_ ABSL_GUARDED_BY(mu_) = 0;  // calls at the gate
  std::shared_ptr<const Hook> hook_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TESTING_POWER_H_
