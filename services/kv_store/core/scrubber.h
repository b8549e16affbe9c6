// A thread that makes pass after pass at a bounded rate. The store has several: one re-reads what lies on
// disk, as bytes that nobody asks for go bad unseen; one, once, fills memory after a start (warm_up.h); and
// two are but timers: of loads that are late, and of probes of a slow disk (store_patience.cc). What a pass
// does is its owner's (store_core.h); here is when. Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_CORE_SCRUBBER_H_
#define EPIC_SERVICES_KV_STORE_CORE_SCRUBBER_H_

#include <cstdint>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace epic::kv_store {

// Called after so many bytes were read; waits as long as the rate asks for. False: the pass is to end.
using ScrubPace = std::function<bool(uint64_t bytes)>;

// Since the store was opened.
struct ScrubCounts {
  uint64_t passes = 0;   // that came to their end
  uint64_t objects = 0;  // that were right
  uint64_t bytes = 0;    // read, of right and wrong ones
  uint64_t damaged = 0;  // dropped
  uint64_t errors = 0;   // objects that the disk did not let us read; they stay
};

class Scrubber {
 public:
  struct Options {
    uint64_t bytes_per_s = 0;    // 0: nothing is scrubbed
    int64_t period_ms = 60'000;  // before the first pass, and between two
    bool once = false;           // ends after its first pass, as a warm-up does (warm_up.h)
  };
  // `pass` runs on the scrubber's thread and ends soon after its pace returned false.
  Scrubber(const Options& options, std::function<void(const ScrubPace&)> pass);
  ~Scrubber();
  Scrubber(const Scrubber&) = delete;
  Scrubber& operator=(const Scrubber&) = delete;

  // Waits for the thread's end. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  // How long reading so many bytes is to take at least.
  static int64_t WaitMs(uint64_t bytes, uint64_t bytes_per_s);

 private:
  // Waits that long, or until Stop(); false: stopping.
  bool Wait(int64_t ms) ABSL_LOCKS_EXCLUDED(mu_);
  void Run();

  const Options options_;
  const std::function<void(const ScrubPace&)> pass_;
  Mutex mu_;
  CondVar stopped_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // none when nothing is scrubbed
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_SCRUBBER_H_
