#include "services/router/placement/bench/sim_policy.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/check.h"

namespace epic::router {
namespace {

WorkerFleet::Options FleetOptions(const ClusterOptions& options, uint32_t router) {
  return {.max_workers = options.link_workers,
          .stale_report_s = 10,
          .max_in_flight = 1 << 20,
          .routers = options.routers,
          .seed = router};
}

WorkerInfo InfoOf(const ClusterOptions& options, uint32_t worker) {
  return {.name = std::to_string(worker),
          .models = {1},
          .fetch_bytes_per_s = options.link_bytes_per_s,
          .rows_per_s = options.link_rows_per_s};
}

class RoundRobin final : public SimPolicy {
 public:
  explicit RoundRobin(const ClusterOptions& options)
      : down_(options.link_workers, false), next_(options.routers) {
    for (uint32_t router = 0; router < options.routers; ++router) {
      next_[router] = router * options.link_workers / options.routers;
    }
  }
  SimDecision Choose(uint32_t router, const TraceRequest& /*request*/) override {
    do {
      next_[router] = (next_[router] + 1) % down_.size();
    } while (down_[next_[router]]);
    return {.worker = static_cast<uint32_t>(next_[router])};
  }
  void Done(uint32_t, const SimDecision&, const WorkerMeasure&) override {}
  void Report(uint32_t, uint32_t, const WorkerReport&) override {}
  void LinkDown(uint32_t worker) override { down_[worker] = true; }

 private:
  std::vector<bool> down_;
  std::vector<size_t> next_;
};

// The shortest queue, by the same reports, numbers and measured rates as ours, and what a request costs on
// average: all but what is where.
class LeastLoaded final : public SimPolicy {
 public:
  LeastLoaded(const ClusterOptions& options, const Clock* clock) : options_(options), clock_(clock) {
    for (uint32_t router = 0; router < options.routers; ++router) {
      fleets_.emplace_back(FleetOptions(options, router));
      for (uint32_t worker = 0; worker < options.link_workers; ++worker) {
        EPIC_CHECK(*fleets_[router].Add(InfoOf(options, worker), NowS()) == worker);
      }
    }
  }
  SimDecision Choose(uint32_t router, const TraceRequest& request) override {
    WorkerFleet& fleet = fleets_[router];
    const uint32_t rows = options_.rows_per_request + request.count * options_.rows_per_context;
    SimDecision decision;
    double least = 1e300, fetch_s = 0, compute_s = 0;
    first_.clear();
    fleet.AppendFirst(1, 2, &first_);
    const auto cost = [&](const WorkerFleet::Worker& worker) {
      return worker.QueueS(NowS()) + mean_bytes_ * worker.s_per_byte + rows * worker.s_per_row;
    };
    for (const WorkerSlot slot : first_) least = std::min(least, cost(fleet.worker(slot)));
    double longest_s = 1e300;
    for (const WorkerSlot slot : first_) {
      const WorkerFleet::Worker& worker = fleet.worker(slot);
      if (worker.BusyS() >= longest_s || cost(worker) > least * Placement::kNearlyEqual) continue;
      const double fetch = mean_bytes_ / options_.link_bytes_per_s, compute = rows * worker.s_per_row;
      longest_s = worker.BusyS();
      decision.worker = slot;
      fetch_s = fetch;
      compute_s = compute;
    }
    decision.serial =
        fleet.Sent(static_cast<WorkerSlot>(decision.worker), fetch_s, compute_s + options_.decode_s, NowS());
    return decision;
  }
  void Done(uint32_t router, const SimDecision& decision, const WorkerMeasure& measure) override {
    mean_bytes_ += 0.001 * (static_cast<double>(measure.fetched_bytes) - mean_bytes_);
    fleets_[router].Ended(static_cast<WorkerSlot>(decision.worker), decision.serial, measure, NowS());
  }
  void Report(uint32_t router, uint32_t worker, const WorkerReport& report) override {
    fleets_[router].Report(static_cast<WorkerSlot>(worker), report, NowS());
  }
  void LinkDown(uint32_t worker) override {
    for (WorkerFleet& fleet : fleets_) fleet.SetStanding(static_cast<WorkerSlot>(worker), Standing::kDown);
  }

 private:
  double NowS() const { return static_cast<double>(clock_->SteadyNs()) * 1e-9; }

  const ClusterOptions options_;
  const Clock* const clock_;
  std::vector<WorkerFleet> fleets_;
  std::vector<WorkerSlot> first_;
  double mean_bytes_ = 0;
};

// Consistent hashing of a request's first context with bounded loads: along the ring, past workers that have
// more than kBound times the mean of what the router has in flight.
class PrefixHash final : public SimPolicy {
 public:
  static constexpr double kBound = 1.25;
  static constexpr uint32_t kPoints = 100;

  explicit PrefixHash(const ClusterOptions& options)
      : down_(options.link_workers, false),
        in_flight_(options.routers, std::vector<uint32_t>(options.link_workers, 0)),
        all_(options.routers, 0) {
    for (uint32_t worker = 0; worker < options.link_workers; ++worker) {
      for (uint32_t point = 0; point < kPoints; ++point) {
        ring_.emplace_back(Rng(uint64_t{worker} * kPoints + point).Next(), worker);
      }
    }
    std::sort(ring_.begin(), ring_.end());
  }
  SimDecision Choose(uint32_t router, const TraceRequest& request) override {
    const uint64_t hash = SimKey(request.contexts[0]).high;
    std::vector<uint32_t>& in_flight = in_flight_[router];
    const double mean = static_cast<double>(all_[router] + 1) / static_cast<double>(down_.size());
    const double bound = std::max(1.0, std::ceil(kBound * mean));
    auto at = std::lower_bound(ring_.begin(), ring_.end(), std::pair<uint64_t, uint32_t>{hash, 0});
    for (size_t tries = 0; tries < ring_.size(); ++tries, ++at) {
      if (at == ring_.end()) at = ring_.begin();
      if (!down_[at->second] && in_flight[at->second] < bound) break;
    }
    if (at == ring_.end()) at = ring_.begin();
    ++in_flight[at->second];
    ++all_[router];
    return {.worker = at->second};
  }
  void Done(uint32_t router, const SimDecision& decision, const WorkerMeasure&) override {
    --in_flight_[router][decision.worker];
    --all_[router];
  }
  void Report(uint32_t, uint32_t, const WorkerReport&) override {}
  void LinkDown(uint32_t worker) override { down_[worker] = true; }

 private:
  std::vector<std::pair<uint64_t, uint32_t>> ring_;
  std::vector<bool> down_;
  std::vector<std::vector<uint32_t>> in_flight_;  // by router
  std::vector<uint64_t> all_;
};

// Placement, one per router, over one index: routers have the same events, so their indexes are alike.
class Ours final : public SimPolicy {
 public:
  Ours(const ClusterOptions& options, uint32_t contexts, const Clock* clock)
      : options_(options),
        decode_rows_(static_cast<uint32_t>(options.decode_s * options.link_rows_per_s)),
        index_({.max_nodes = 2048, .max_bytes = 300ull * (contexts + 1'000'000)}) {
    for (uint32_t store = 0; store < options.stores; ++store) {
      stores_.push_back(*index_.AddNode({.name = "store-" + std::to_string(store)}));
    }
    for (uint32_t worker = 0; worker < options.link_workers; ++worker) {
      workers_.push_back(
          *index_.AddNode({.name = "link-" + std::to_string(worker), .kind = NodeKind::kLinkWorker}));
    }
    sequences_.assign(2048, 1);
    for (const auto& nodes : {stores_, workers_}) {
      for (const NodeSlot node : nodes) {
        index_.NodeUp(node);
        index_.ApplyInventory(node,
                              {.begins = true, .done = true, .tail_incarnation = 1, .tail_sequence = 1});
      }
    }
    for (uint32_t router = 0; router < options.routers; ++router) AddRouter(router, clock);
  }

  SimDecision Choose(uint32_t router, const TraceRequest& request) override {
    objects_.clear();
    for (uint32_t at = 0; at < request.count; ++at) {
      objects_.push_back({SimKey(request.contexts[at]), static_cast<uint64_t>(options_.context_bytes),
                          options_.context_rows});
    }
    const PlacementChoice choice = routers_[router]->ChooseLink(
        {.model = 1,
         .objects = objects_,
         .rows = options_.rows_per_request + request.count * options_.rows_per_context + decode_rows_},
        &scratch_);
    EPIC_CHECK(choice.outcome == PlacementOutcome::kChosen);
    return {choice.worker, choice.compile_elsewhere, choice.ticket, choice.serial};
  }
  void Done(uint32_t router, const SimDecision& decision, const WorkerMeasure& measure) override {
    routers_[router]->Done(decision.ticket, measure);
  }
  void Report(uint32_t router, uint32_t worker, const WorkerReport& report) override {
    routers_[router]->Report(WorkerKind::kLink, static_cast<WorkerSlot>(worker), report);
  }
  void Tick() override {
    for (auto& router : routers_) router->Tick();
    index_.Sweep(1000);
  }
  void LinkDown(uint32_t worker) override {
    for (auto& router : routers_) {
      router->SetStanding(WorkerKind::kLink, static_cast<WorkerSlot>(worker), Standing::kDown);
    }
    index_.NodeDown(workers_[worker]);
  }
  void StoreDown(uint32_t store) override { index_.NodeDown(stores_[store]); }
  void DeviceChanged(uint32_t worker, ContextNumber context, bool there) override {
    Tell(workers_[worker], context, there ? kDeviceTier : kNowhere);
  }
  void StoreChanged(uint32_t store, ContextNumber context, Tiers tiers) override {
    Tell(stores_[store], context, tiers);
  }

 private:
  void AddRouter(uint32_t router, const Clock* clock) {
    routers_.push_back(std::make_unique<Placement>(PlacementOptions{.link = FleetOptions(options_, router),
                                                                    .compile = {.stale_report_s = 1e18},
                                                                    .max_queue_s = 1e9,
                                                                    .max_in_flight = 1 << 24},
                                                   &index_, clock));
    for (uint32_t worker = 0; worker < options_.link_workers; ++worker) {
      WorkerInfo info = InfoOf(options_, worker);
      info.node = workers_[worker];
      EPIC_CHECK(*routers_.back()->AddWorker(WorkerKind::kLink, info) == worker);
    }
    // What a compile worker would cost is guessed: rates as they are said to be, no queue.
    const WorkerInfo compile{.name = "compile", .models = {1}, .rows_per_s = options_.compile_rows_per_s};
    EPIC_CHECK(routers_.back()->AddWorker(WorkerKind::kCompile, compile).ok());
  }
  void Tell(NodeSlot node, ContextNumber context, Tiers tiers) {
    const PlaceEvent event{.sequence = sequences_[node]++,
                           .item = {.key = SimKey(context),
                                    .tiers = tiers,
                                    .facts = {.extent = static_cast<uint64_t>(options_.context_bytes),
                                              .rows = options_.context_rows,
                                              .model = 1}}};
    index_.ApplyEvents(node, {.incarnation = 1, .events = {&event, 1}});
  }

  const ClusterOptions options_;
  const uint32_t decode_rows_;  // that take a device as long as a request's decoding
  PlacementIndex index_;
  std::vector<NodeSlot> stores_, workers_;
  std::vector<uint64_t> sequences_;
  std::vector<std::unique_ptr<Placement>> routers_;
  std::vector<NeededObject> objects_;
  Placement::Scratch scratch_;
};

}  // namespace

std::string NameOf(PolicyKind kind) {
  switch (kind) {
    case PolicyKind::kRoundRobin:
      return "round-robin";
    case PolicyKind::kLeastLoaded:
      return "least-loaded";
    case PolicyKind::kPrefixHash:
      return "prefix-hash";
    case PolicyKind::kOurs:
      break;
  }
  return "ours";
}

std::unique_ptr<SimPolicy> MakePolicy(PolicyKind kind, const ClusterOptions& options, uint32_t contexts,
                                      const Clock* clock) {
  switch (kind) {
    case PolicyKind::kRoundRobin:
      return std::make_unique<RoundRobin>(options);
    case PolicyKind::kLeastLoaded:
      return std::make_unique<LeastLoaded>(options, clock);
    case PolicyKind::kPrefixHash:
      return std::make_unique<PrefixHash>(options);
    case PolicyKind::kOurs:
      break;
  }
  return std::make_unique<Ours>(options, contexts, clock);
}

}  // namespace epic::router
