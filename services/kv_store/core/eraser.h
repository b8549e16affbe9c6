// Erasures that somebody asked for: deleted bytes made physically gone. One run at a time, which serves all
// that asked before it began; what the disk refuses is due until it succeeds. Owned by StoreCore; a thread of
// its own. Thread-safe. Not here: what a run does.
#ifndef EPIC_SERVICES_KV_STORE_CORE_ERASER_H_
#define EPIC_SERVICES_KV_STORE_CORE_ERASER_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace epic::kv_store {

class Eraser {
 public:
  // OK: gone. Else what the disk says; it is tried again.
  using Done = std::function<void(const absl::Status&)>;
  // One run. `rows` name on disk what is due; the run deletes them once their bytes are gone.
  using Work = std::function<absl::Status(const std::vector<std::string>& rows)>;

  // `clock` outlives the eraser.
  Eraser(const Clock* clock, Work work) : clock_(clock), work_(std::move(work)), thread_([this] { Run(); }) {}
  ~Eraser() { Stop(); }
  Eraser(const Eraser&) = delete;
  Eraser& operator=(const Eraser&) = delete;

  // What is due and nobody waits for, such as from a life before: RetryDue begins it.
  void Load(std::string row) ABSL_LOCKS_EXCLUDED(mu_);
  // `done` is called once, on the eraser's thread; after Refuse with Unavailable, on the caller's.
  void Add(std::string row, Done done) ABSL_LOCKS_EXCLUDED(mu_);
  // Begins a run if something is due and the last failure is a minute past. Never blocks.
  void RetryDue() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until no run is going on or to come.
  void Drain() ABSL_LOCKS_EXCLUDED(mu_);
  // From now on no run begins; those who wait for one that has not are told Unavailable, on the caller's
  // thread. Waits for nobody. Idempotent.
  void Refuse() ABSL_LOCKS_EXCLUDED(mu_);
  // The same, and waits for the run that goes on. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Begin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  const Clock* const clock_;
  const Work work_;

  Mutex mu_;
  CondVar changed_;
  std::set<std::string> due_ ABSL_GUARDED_BY(mu_);
  std::vector<Done> waiting_ ABSL_GUARDED_BY(mu_);
  bool wanted_ ABSL_GUARDED_BY(mu_) = false;  // a run is to begin
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  int64_t failed_ns_ ABSL_GUARDED_BY(mu_) = 0;  // 0: the last run did not fail
  std::thread thread_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_ERASER_H_
