// The simulation of scale: a cluster without models or bytes, event by event on a virtual clock. Links, disks
// and devices are queues that serve in order at a stated rate; caches are real ones of context numbers. What
// is routed is a SimTrace, by a SimPolicy. Deterministic. One thread. Benches and tests only.
//
// A request goes to its worker, which looks for each context: on its device (or on its way there: waited
// for); in the host memory or on the disk of a store that has it, the one whose link is free first; else it
// is compiled, once at a time, and stored on `replicas` stores. What is pulled takes the store's link, the
// worker's link, and the disk where it is only there. When all is there the request waits for the device,
// repairs its rows, and its first token is out; its decoding takes the device for decode_s more. Layers are
// not told apart: nothing overlaps.
#ifndef EPIC_SERVICES_ROUTER_PLACEMENT_BENCH_CLUSTER_SIM_H_
#define EPIC_SERVICES_ROUTER_PLACEMENT_BENCH_CLUSTER_SIM_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/router/placement/bench/sim_cache.h"
#include "services/router/placement/bench/sim_policy.h"
#include "services/router/placement/bench/sim_trace.h"

namespace epic::router {

struct SimLoad {
  double per_s = 0;
  double seconds = 1;    // of arrivals
  double ignored_s = 0;  // at their start, of what is measured
  uint64_t seed = 0;
  double kill_at_s = -1;  // then a tenth of all nodes dies; < 0: none
};

struct SimResult {
  uint64_t requests = 0;
  double mean_ttft_s = 0;
  double p50_ttft_s = 0;
  double p99_ttft_s = 0;
  double device_hits = 0;  // share of contexts
  double pulled_per_request = 0;
  double host_share = 0;  // of what was pulled: from a store's memory
  double compiled_per_request = 0;
  double balance = 0;       // most requests at a worker / mean
  double last_queue_s = 0;  // mean wait of workers' devices and links at the last arrival
  uint64_t failed_over = 0;
  std::vector<double> window_p95_s;  // per 0.25 s of arrivals
};

class ClusterSim {
 public:
  static constexpr double kWindowS = 0.25;

  ClusterSim(const ClusterOptions& options, const TraceOptions& trace, PolicyKind policy);

  // Arrivals for load.seconds, then until all is answered. Caches, estimates and the clock go on from load to
  // load.
  SimResult Run(const SimLoad& load);

 private:
  enum class Kind : uint8_t { kPlace, kAtWorker, kCompiled, kFetched, kAnswered, kReported };
  struct Event {
    double at_s = 0;
    uint64_t order = 0;  // of events at the same time
    Kind kind = Kind::kPlace;
    uint32_t subject = 0;  // a request, or an index into reports_
    bool operator>(const Event& other) const {
      return at_s != other.at_s ? at_s > other.at_s : order > other.order;
    }
  };
  struct Request {
    TraceRequest trace;
    uint32_t router = 0;
    SimDecision decision;
    double pulling_s = 0;  // measured: pulls, without waiting for its own link
    double ready_s = 0;    // all that is on its way is there
    double compute_s = 0;
    uint32_t pulled = 0;
    uint32_t rows = 0;
    uint32_t compiling = 0;                                  // contexts of it that a compile worker has
    std::array<ContextNumber, TraceRequest::kMost> fresh{};  // pulled by this request
    uint32_t fresh_count = 0;
  };
  struct LinkWorker {
    SimCache device;
    double link_free_s = 0;
    double device_free_s = 0;
    double coming_s = 0;  // rows of requests that wait for their contexts
    double speed = 1;
    double link_speed = 1;
    bool dead = false;
    uint64_t served = 0;
    std::vector<uint64_t> last_serial;  // by router
  };
  struct Store {
    SimCache host;
    double link_free_s = 0;
    double disk_free_s = 0;
    bool dead = false;
  };
  struct Change {
    double at_s = 0;
    uint32_t node = 0;
    ContextNumber context = 0;
    Tiers tiers = kNowhere;
    bool is_store = false;
  };
  struct Report {
    uint32_t worker = 0;
    WorkerReport report;
    std::vector<uint64_t> last_serial;
  };

  void Push(double at_s, Kind kind, uint32_t subject) { events_.push({at_s, ++order_, kind, subject}); }
  void Handle(const Event& event);
  void Place(uint32_t at);
  void AtWorker(uint32_t at);
  void Compiled(uint32_t at);
  void Fetched(uint32_t at);
  void Answered(uint32_t at);
  bool FailsOver(uint32_t at);  // where its worker is dead
  void Bring(Request* request, ContextNumber context, uint32_t at);
  std::optional<uint32_t> SourceOf(ContextNumber context) const;
  void Pull(Request* request, ContextNumber context, uint32_t store);
  void Compile(Request* request, ContextNumber context, uint32_t at);
  void StoreCompiled(ContextNumber context);
  void PutInHost(uint32_t store, ContextNumber context);
  void PutOnDevice(uint32_t worker, ContextNumber context, double ready_s);
  uint32_t HomeOf(ContextNumber context, uint32_t turn) const;
  bool IsStored(ContextNumber context) const;
  void Publish(bool is_store, uint32_t node, ContextNumber context, Tiers tiers);
  void Deliver();
  void SendReports();
  void Kill();
  void Detect();
  uint32_t NewRequest(const TraceRequest& trace);
  void Measure(const SimLoad& load, SimResult* result);

  const ClusterOptions options_;
  const TraceOptions trace_options_;
  SimClock clock_;
  std::unique_ptr<SimPolicy> policy_;
  Rng rng_{99};
  ContextNumber fresh_;

  std::vector<LinkWorker> workers_;
  std::vector<Store> stores_;
  std::vector<double> compile_free_s_;
  std::vector<double> compile_speed_;
  std::vector<bool> compile_dead_;
  std::vector<bool> stored_;                              // by context: on the disks of its homes
  absl::flat_hash_map<ContextNumber, double> compiling_;  // until when

  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t order_ = 0;
  std::deque<Change> changes_;  // published, not yet heard of
  std::vector<Report> reports_;
  std::vector<uint32_t> free_reports_;
  uint32_t next_report_ = 0;
  double next_report_s_ = 0;
  double next_tick_s_ = 0;
  std::optional<double> detect_at_s_;
  std::vector<Request> requests_;
  std::vector<uint32_t> free_requests_;
  uint64_t open_ = 0;

  // Of the load.
  double begin_s_ = 0;
  double ignored_until_s_ = 0;
  std::vector<float> ttfts_;
  std::vector<std::vector<float>> windows_;
  uint64_t contexts_ = 0, device_hits_ = 0, pulled_ = 0, from_host_ = 0, compiled_ = 0, failed_over_ = 0;
};

}  // namespace epic::router

#endif  // EPIC_SERVICES_ROUTER_PLACEMENT_BENCH_CLUSTER_SIM_H_
