// The workers of one kind as a router sees them: how fast each is, how long its queue is, and which of them
// are worth a look for a model. Pure logic; one thread at a time (placement.h has the lock).
//
// A queue is kept as the time when the worker will be done with what it has, so that it drains without
// anybody's doing, and order among workers does not change as time passes. A report sets it, plus what this
// router sent that the worker had not received when it reported: sends to one worker are numbered, and a
// report names the last number seen. So nothing is counted twice, and nothing is forgotten between reports.
//
// Workers of one model are in cells: those of one cell differ by less than kCellRatio in bytes per second and
// in rows per second. Whatever a request needs, the least busy worker of a cell costs less than kCellRatio
// times what any other of that cell costs, if neither holds anything of it: so the first of each cell stand
// for all.
#ifndef EPIC_SERVICES_ROUTER_PLACEMENT_WORKER_FLEET_H_
#define EPIC_SERVICES_ROUTER_PLACEMENT_WORKER_FLEET_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/status/statusor.h"
#include "services/router/placement/place_types.h"
#include "services/router/placement/rate_estimate.h"

namespace epic::router {

using WorkerSlot = uint16_t;

enum class Standing : uint8_t { kUp, kDraining, kSuspected, kDown };

struct WorkerInfo {
  std::string name;              // unique in its fleet
  std::vector<uint16_t> models;  // the router's numbers of what it serves
  std::optional<NodeSlot> node;  // in the index, of a link worker
  // What to expect of such a worker before it was measured. > 0
  double fetch_bytes_per_s = 1e9;
  double rows_per_s = 1e3;
};

struct WorkerReport {
  double fetch_queue_s = 0;    // until what it is pulling, and will pull, is there
  double compute_queue_s = 0;  // until the rows that wait are computed
  uint64_t last_serial = 0;    // the last request of this router that it had received
};

// What a request that ended has shown. Zeros where there is nothing to measure.
struct WorkerMeasure {
  uint64_t fetched_bytes = 0;
  double fetch_s = 0;  // pulling them, without waiting
  uint64_t rows = 0;
  double compute_s = 0;
};

class WorkerFleet {
 public:
  static constexpr double kCellRatio = 1.5;

  struct Options {
    uint32_t max_workers = 4096;
    double stale_report_s = 1.0;     // no report for so long: not chosen until the next one
    uint32_t explore_samples = 3;    // a worker with fewer measurements
    uint32_t explore_in_flight = 1;  // is sent no more than this at a time
    uint32_t max_in_flight = 4096;   // of one worker
    // How many routers send to these workers. What this one has sent to a worker since its last report the
    // others are taken to have sent, too: nobody has said so yet.
    uint32_t routers = 1;
    // Another one for every router: among workers that are idle alike each begins with others.
    uint64_t seed = 0;
  };
  struct Worker {
    WorkerInfo info;
    bool used = false;
    bool candidate = false;  // may be sent requests
    double s_per_byte = 0;
    double s_per_row = 0;
    // Until then, on the clock's seconds. Of an idle worker: since then, as far as this router is concerned,
    // so that idle ones take turns, at each router in another order.
    double fetch_busy_s = 0;
    double compute_busy_s = 0;

    double BusyS() const { return std::max(fetch_busy_s, compute_busy_s); }
    double QueueS(double now_s) const { return std::max(0.0, BusyS() - now_s); }

   private:
    friend class WorkerFleet;
    struct Sent {
      uint64_t serial = 0;
      double fetch_s = 0;
      double compute_s = 0;
    };
    struct Key {
      int32_t cell = 0;
      double order = 0;
      bool operator==(const Key&) const = default;
    };
    Standing standing = Standing::kUp;
    bool stale = false;
    RateEstimate fetch{1};
    RateEstimate compute{1};
    double last_report_s = 0;
    uint64_t first_serial = 0;  // those up to it were of the slot's last worker
    uint64_t last_serial = 0;
    uint32_t in_flight = 0;
    std::deque<Sent> unseen;  // sent, not seen in a report
    std::optional<Key> key;   // where it is in the cells of its models
  };

  explicit WorkerFleet(const Options& options) : options_(options), workers_(options.max_workers) {}

  // Counts as a report of an idle worker. Errors: AlreadyExists; ResourceExhausted; InvalidArgument for rates
  // that are not positive.
  absl::StatusOr<WorkerSlot> Add(const WorkerInfo& info, double now_s);
  // REQUIRES for all slots below: of a worker that was added.
  void Remove(WorkerSlot slot);
  void SetStanding(WorkerSlot slot, Standing standing);
  void Report(WorkerSlot slot, const WorkerReport& report, double now_s);
  // Returns the request's number, to be sent with it.
  uint64_t Sent(WorkerSlot slot, double fetch_s, double compute_s, double now_s);
  // The end of a request, well or not; nothing for a worker that was removed since.
  void Ended(WorkerSlot slot, uint64_t serial, const WorkerMeasure& measure, double now_s);
  // Passes over those that have not reported; renews what is expected of those not measured. Call some times
  // a second.
  void Tick(double now_s);

  const Worker& worker(WorkerSlot slot) const { return workers_[slot]; }
  bool Serves(WorkerSlot slot, uint16_t model) const;
  // Appends the first `each` workers of every cell of a model, least busy first.
  void AppendFirst(uint16_t model, size_t each, std::vector<WorkerSlot>* out) const;
  // Of all cells; nullopt where there is no worker.
  std::optional<WorkerSlot> LeastBusy(uint16_t model, double now_s) const;

 private:
  using Cell = absl::btree_set<std::pair<double, WorkerSlot>>;

  void RenewRates(Worker* worker, double now_s);
  void AddWork(Worker* worker, double fetch_s, double compute_s, double now_s) const;
  // Puts the worker where it belongs in the cells, or takes it out.
  void Place(WorkerSlot slot);
  void TakeOut(WorkerSlot slot);

  const Options options_;
  std::vector<Worker> workers_;
  std::map<uint16_t, std::map<int32_t, Cell>> cells_;  // by model, then by rates; no empty cells
};

}  // namespace epic::router

#endif  // EPIC_SERVICES_ROUTER_PLACEMENT_WORKER_FLEET_H_
