// Calls that wait for a disk, made on threads of their own, so that who wants their result may stop waiting:
// a disk that stands still holds these threads, and nobody else for longer than `wait_ms`. A call that was
// begun goes on to its end, whoever waits, and owns what it needs until then. Owned by the store.
// Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_CORE_DISK_CALLS_H_
#define EPIC_SERVICES_KV_STORE_CORE_DISK_CALLS_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace epic::kv_store {

// How long somebody still waits; 0 at the start: for ever. In real time, as condition variables have it.
class Patience {
 public:
  explicit Patience(int64_t ms);
  bool is_over() const { return until_.has_value() && std::chrono::steady_clock::now() >= *until_; }
  // Waits for a change; false: no patience is left.
  bool Wait(CondVar* changed, Mutex* mu) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

 private:
  std::optional<std::chrono::steady_clock::time_point> until_;
};

// What bytes may take of a disk that is waited for, at 32 MiB/s.
constexpr int64_t DiskMsFor(uint64_t bytes) { return static_cast<int64_t>(bytes >> 15); }

class DiskCalls {
 public:
  struct Options {
    int64_t wait_ms = 0;  // 0: calls are made where they are asked for, and take what they take
    uint32_t threads_max = 64;
    // While so many calls go on for which nobody waits any more, others are refused at once: the disk stands
    // still.
    uint32_t late_max = 1;
  };
  explicit DiskCalls(const Options& options) : options_(options) {}
  ~DiskCalls() { Stop(); }
  DiskCalls(const DiskCalls&) = delete;
  DiskCalls& operator=(const DiskCalls&) = delete;

  enum class End : uint8_t {
    kDone,
    kLate,     // it goes on, and will end
    kRefused,  // it was not begun, and never will be
  };
  // Waits for the call for wait_ms, and longer by `extra_ms`.
  End Run(std::function<void()> call, int64_t extra_ms = 0) ABSL_LOCKS_EXCLUDED(mu_);
  // The same for its result; nullopt unless kDone.
  template <typename Result>
  std::optional<Result> Ask(std::function<Result()> call, int64_t extra_ms = 0, End* end = nullptr) {
    auto result = std::make_shared<std::optional<Result>>();
    const End ended = Run([result, call = std::move(call)] { result->emplace(call()); }, extra_ms);
    if (end != nullptr) *end = ended;
    if (ended != End::kDone) return std::nullopt;
    return std::move(*result);
  }
  bool bounded() const { return options_.wait_ms > 0; }
  // Calls whose caller did not get to see their end, refused ones included.
  uint64_t late() const ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the calls that were begun, refuses those that were not, and ends the threads. Later ones are
  // made where they are asked for. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Job {
    std::function<void()> call;
    enum class State : uint8_t { kWaiting, kRunning, kDone, kRefused } state = State::kWaiting;
    bool late = false;
    CondVar changed;
  };
  bool Submit(const std::shared_ptr<Job>& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Work() ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  mutable Mutex mu_;
  CondVar work_;
  std::deque<std::shared_ptr<Job>> waiting_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
  size_t idle_ ABSL_GUARDED_BY(mu_) = 0;
  uint32_t late_running_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t late_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_DISK_CALLS_H_
