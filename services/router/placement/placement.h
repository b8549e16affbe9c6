// Which worker a request goes to: the scheduling of a router, by what the index knows and what workers
// report. Owned by the router; thread-safe by one lock, which is held for microseconds. No I/O; time comes
// with a Clock.
//
//   link worker     cost = queue + bytes it does not hold / its bandwidth + rows to compute / its rate,
//                   where an object that no store has costs its rows on the worker, or, if that is less, the
//                   least compile worker's queue and rows there and then its bytes
//   compile worker  cost = queue
// Bandwidths and rates are measured (rate_estimate.h); queues are reported, plus what was sent since
// (worker_fleet.h). Looked at are the link workers that hold some of the objects, as far as the index knows
// them, and the least busy ones of each cell of the fleet; the least cost wins. Of those that hold
// as much of the request as the cheapest and cost at most kNearlyEqual times as much, the one wins that is
// longest without work: small differences in speed would else send all routers to the same few workers. So it
// costs less than kCellRatio * kNearlyEqual times the least cost of all workers whose copies the index has
// kept.
//
// Refused at once is a request that the cheapest worker cannot begin to answer before its deadline, that
// finds too long a queue, or no worker. Not here: queues of requests, fairness between tenants, retries.
#ifndef EPIC_SERVICES_ROUTER_PLACEMENT_PLACEMENT_H_
#define EPIC_SERVICES_ROUTER_PLACEMENT_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "services/router/placement/hot_objects.h"
#include "services/router/placement/placement_index.h"
#include "services/router/placement/worker_fleet.h"

namespace epic::router {

enum class WorkerKind : uint8_t { kLink, kCompile };

struct NeededObject {
  PlaceKey key;
  uint64_t bytes = 0;
  uint32_t rows = 0;  // what a compile of it computes
};

struct LinkRequest {
  uint16_t model = 0;
  std::span<const NeededObject> objects;
  uint32_t rows = 0;                   // to compute wherever it goes: of its own text, and repairs
  std::optional<int64_t> deadline_ns;  // on the steady clock
};

struct PlacementCost {
  double queue_s = 0;
  double fetch_s = 0;
  double compute_s = 0;
  double compile_s = 0;  // elsewhere, queue included
  double total() const { return queue_s + fetch_s + compute_s + compile_s; }
};

enum class PlacementOutcome : uint8_t {
  kChosen,
  kNoWorker,   // none for the model that is up
  kQueueFull,  // of the cheapest, or of this router
  kTooLate,    // the deadline is before the cheapest could answer
};

struct PlacementChoice {
  PlacementOutcome outcome = PlacementOutcome::kNoWorker;
  WorkerSlot worker = 0;
  PlacementCost cost;              // of the cheapest, chosen or refused
  bool compile_elsewhere = false;  // what no store has is better compiled by a compile worker
  uint64_t fetch_bytes = 0;        // it does not hold
  // kChosen: for Done, and the number to send along (WorkerReport).
  uint64_t ticket = 0;
  uint64_t serial = 0;
};

struct PlacementOptions {
  WorkerFleet::Options link;
  WorkerFleet::Options compile;
  double max_queue_s = 30;
  size_t max_in_flight = 1 << 20;
  double host_tier_bytes_per_s = 20e9;  // from a link worker's own host memory to its device
  // An object is hot when it is pulled at more than this, for each store that has it.
  double hot_bytes_per_s = 1e9;
  size_t max_replicas = 8;
};

// An object that should lie on more stores than it does.
struct ReplicaWish {
  PlaceKey key;
  size_t stores = 0;  // that have it
  size_t wanted = 0;
  double bytes_per_s = 0;
};

class Placement {
 public:
  static constexpr double kNearlyEqual = 1.3;
  // Memory for one choice; one thread at a time. Reuse it.
  struct Scratch {
    std::vector<PlaceKey> keys;
    PlaceAnswers answers;
  };

  // `index` and `clock` outlive this.
  Placement(const PlacementOptions& options, PlacementIndex* index, const Clock* clock);
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  // Errors of Add: those of WorkerFleet.
  absl::StatusOr<WorkerSlot> AddWorker(WorkerKind kind, const WorkerInfo& info) ABSL_LOCKS_EXCLUDED(mu_);
  void RemoveWorker(WorkerKind kind, WorkerSlot slot) ABSL_LOCKS_EXCLUDED(mu_);
  void SetStanding(WorkerKind kind, WorkerSlot slot, Standing standing) ABSL_LOCKS_EXCLUDED(mu_);
  void Report(WorkerKind kind, WorkerSlot slot, const WorkerReport& report) ABSL_LOCKS_EXCLUDED(mu_);
  void Tick() ABSL_LOCKS_EXCLUDED(mu_);

  PlacementChoice ChooseLink(const LinkRequest& request, Scratch* scratch) ABSL_LOCKS_EXCLUDED(mu_);
  PlacementChoice ChooseCompile(uint16_t model, uint32_t rows, std::optional<int64_t> deadline_ns)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Once for each ticket, however it ended.
  void Done(uint64_t ticket, const WorkerMeasure& measure) ABSL_LOCKS_EXCLUDED(mu_);

  // What a request would cost at one link worker; nullopt where it may not go. For tests and for people.
  std::optional<PlacementCost> CostAt(const LinkRequest& request, WorkerSlot worker, Scratch* scratch)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Decisions only, hottest first.
  std::vector<ReplicaWish> HotReplicas() ABSL_LOCKS_EXCLUDED(mu_);

  struct Counts {
    uint64_t chosen = 0;
    uint64_t no_worker = 0;
    uint64_t queue_full = 0;
    uint64_t too_late = 0;
    uint64_t in_flight = 0;  // now
  };
  Counts counts() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Of one request, what has to be brought to a worker that holds nothing of it.
  struct Need {
    double bytes = 0;  // that stores have
    double missing_bytes = 0;
    double missing_rows = 0;
  };
  // Of one request, what a worker holds of it. Void unless `round` is that of the request.
  struct Held {
    uint64_t round = 0;
    double bytes = 0;  // of Need's
    double missing_bytes = 0;
    double missing_rows = 0;
    double host_bytes = 0;  // in its host memory, not on its device
    uint64_t objects = 0;   // bits of the first 64 of the request
  };
  struct Ticket {
    WorkerKind kind = WorkerKind::kLink;
    WorkerSlot worker = 0;
    uint64_t serial = 0;
  };

  WorkerFleet& FleetOf(WorkerKind kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return kind == WorkerKind::kLink ? link_ : compile_;
  }
  double NowS() const { return static_cast<double>(clock_->SteadyNs()) * 1e-9; }
  void Look(const LinkRequest& request, Scratch* scratch);
  // Fills held_ and seen_ from the answers.
  Need Gather(const LinkRequest& request, const Scratch& scratch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Seconds until the least busy compile worker is done with so many rows; infinite where there is none.
  double CompileS(uint16_t model, double rows, double now_s) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  PlacementCost CostOf(WorkerSlot slot, const LinkRequest& request, const Need& need, double compile_s,
                       double now_s, bool* elsewhere) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of the request, on its device.
  double HeldBytes(WorkerSlot slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  PlacementOutcome Verdict(const PlacementCost& cost, std::optional<int64_t> deadline_ns, double now_s)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Send(WorkerKind kind, double fetch_s, double compute_s, double now_s, PlacementChoice* choice)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountPulls(const LinkRequest& request, const Scratch& scratch, WorkerSlot worker)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const PlacementOptions options_;
  PlacementIndex* const index_;
  const Clock* const clock_;

  mutable Mutex mu_;
  WorkerFleet link_ ABSL_GUARDED_BY(mu_);
  WorkerFleet compile_ ABSL_GUARDED_BY(mu_);
  HotObjects hot_ ABSL_GUARDED_BY(mu_);
  std::vector<int32_t> worker_of_node_ ABSL_GUARDED_BY(mu_);  // link workers; -1: none
  std::vector<Held> held_ ABSL_GUARDED_BY(mu_);               // by worker
  std::vector<WorkerSlot> seen_ ABSL_GUARDED_BY(mu_);         // workers to be looked at for the request
  uint64_t round_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint64_t, Ticket> tickets_ ABSL_GUARDED_BY(mu_);
  uint64_t last_ticket_ ABSL_GUARDED_BY(mu_) = 0;
  Counts counts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic::router

#endif  // EPIC_SERVICES_ROUTER_PLACEMENT_PLACEMENT_H_
