// Runs compiles: one at a time per (tenant, object), many waiters, bounded in number and in queue.
//
// State: the flights (running and queued compiles) and their waiters, in memory only. A flight looks for the
// object first, then reserves it in the store, has the engine compute it, commits it and, where asked, writes
// the record's state. Layers are copied into the store's memory on the engine's thread, or for a
// store of another process beside it (layer_queue.h); everything that may
// block on the disk runs on the executor. Thread-safe. Metrics are read from stats().
#ifndef EPIC_SERVICES_COMPILE_WORKER_CORE_COMPILE_SERVICE_H_
#define EPIC_SERVICES_COMPILE_WORKER_CORE_COMPILE_SERVICE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/cancel.h"
#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/mutex.h"
#include "common/metrics/metrics.h"
#include "common/storage/kv_store.h"
#include "services/engine/engine.h"
#include "services/worker_api/compiler.h"

namespace epic {

struct CompileLimits {
  uint32_t max_running = 4;
  uint32_t max_queue = 64;  // flights that wait for a place; beyond it kQueueFull
  // More than max_running run at once while all that run have at most so many rows, compile prefixes counted:
  // many short contexts fill the steps of the engine. 0: never more.
  uint32_t max_batch_rows = 0;
  int64_t retry_after_ms = 1000;
  // The store is another process: layers are copied and written by the executor, beside the engine.
  bool queues_layers = false;
};

struct CompileStats {
  uint64_t compiled = 0;  // objects committed
  uint64_t found = 0;     // flights that found their object stored
  uint64_t failed = 0;
  uint64_t cancelled = 0;
  uint64_t refused = 0;  // kQueueFull
  uint64_t compiled_tokens = 0;
  uint32_t running = 0;
  uint32_t queued = 0;
  uint32_t waiters = 0;
};

class CompileService final : public Compiler {
 public:
  // All pointers outlive the service; metrics may be null.
  CompileService(const CompileLimits& limits, Engine* engine, KvStore* store, Executor* executor,
                 const Clock* clock, Metrics* metrics = nullptr);
  // REQUIRES: Stop returned, and the engine and the executor run no more work of this service.
  ~CompileService() override;

  absl::StatusOr<CompileTicket> Ensure(CompileJob job, Done done) override;
  void Abandon(CompileTicket ticket) override;
  bool Detach(CompileTicket ticket) override;
  void Forget(std::string_view tenant, const CacheId& id) override;

  CompileStats stats() const;
  // Refuses new work and cancels every flight; their waiters get kDraining. Does not wait: flights end with
  // the engine's Stop and the executor's. Idempotent.
  void Stop();

 private:
  class Sink;
  struct Series {
    Counter ok, failed, cancelled, tokens;
    Histogram seconds;
  };
  struct Flight;
  using FlightKey = std::pair<std::string, ObjectKey>;  // tenant, key
  using Outcome = absl::StatusOr<CompileOutcome>;

  // The steps of a flight: Begin and Finish on the executor, the engine in between.
  void Begin(const std::shared_ptr<Flight>& flight);
  absl::Status StartEngine(const std::shared_ptr<Flight>& flight);
  void Finish(const std::shared_ptr<Flight>& flight, const absl::Status& compiled);
  absl::StatusOr<std::shared_ptr<const KvObject>> Publish(const std::shared_ptr<Flight>& flight,
                                                          const absl::Status& compiled);
  void WriteState(const Flight& flight, const absl::Status& status);
  // Ends the flight, or begins it again when it was cancelled and somebody joined since.
  void Complete(const std::shared_ptr<Flight>& flight,
                const absl::StatusOr<std::shared_ptr<const KvObject>>& result, bool computed);
  void Count(const Flight& flight, const absl::Status& status, bool computed, bool cancelled)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasPlace(const Flight& flight) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives free places to queued flights.
  void Launch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CancelIfUnwanted(const std::shared_ptr<Flight>& flight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const CompileLimits limits_;
  Engine* const engine_;
  KvStore* const store_;
  Executor* const executor_;
  const Clock* const clock_;
  std::optional<Series> series_;  // constant after construction; none without metrics

  mutable Mutex mu_;
  std::map<FlightKey, std::shared_ptr<Flight>> flights_ ABSL_GUARDED_BY(mu_);
  std::deque<std::shared_ptr<Flight>> queue_ ABSL_GUARDED_BY(mu_);
  std::map<CompileTicket, std::shared_ptr<Flight>> tickets_ ABSL_GUARDED_BY(mu_);
  CompileTicket next_ticket_ ABSL_GUARDED_BY(mu_) = 1;
  uint32_t running_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t running_rows_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  CompileStats totals_ ABSL_GUARDED_BY(mu_);  // the counters only
};

}  // namespace epic

#endif  // EPIC_SERVICES_COMPILE_WORKER_CORE_COMPILE_SERVICE_H_
