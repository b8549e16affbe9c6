#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "services/router/placement/bench/sections.h"
#include "services/router/placement/placement.h"

namespace epic::router {
namespace {

constexpr size_t kPage = 1024;
constexpr double kHomes = 2;

double WallS() { return static_cast<double>(SystemClock::Get()->SteadyNs()) * 1e-9; }

double ResidentBytes() {
  long pages = 0, resident = 0;
  FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  const bool read = std::fscanf(file, "%ld %ld", &pages, &resident) == 2;
  std::fclose(file);
  return read ? static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) : 0;
}

PlaceKey RecordKey(ContextNumber context) {
  const PlaceKey key = SimKey(context);
  return {key.low ^ 0x5555, key.high};
}

// What the stores and link workers of a cluster say, page by page as they would.
class Cluster {
 public:
  Cluster(const ClusterOptions& options, const TraceOptions& trace, PlacementIndex* index)
      : options_(options), trace_(trace), index_(index) {
    for (uint32_t at = 0; at < options.stores + options.link_workers; ++at) {
      const bool store = at < options.stores;
      nodes_.push_back(*index->AddNode(
          {.name = std::to_string(at), .kind = store ? NodeKind::kStore : NodeKind::kLinkWorker}));
      index->NodeUp(nodes_.back());
      index->ApplyInventory(nodes_.back(), {.begins = true});
    }
    pages_.resize(nodes_.size());
  }

  uint32_t HomeOf(ContextNumber context, uint32_t turn) const {
    return static_cast<uint32_t>((SimKey(context).high + turn * 7) % options_.stores);
  }
  void TellStores() {
    for (ContextNumber context = 0; context < trace_.contexts; ++context) {
      for (uint32_t turn = 0; turn < kHomes; ++turn) {
        const uint32_t store = HomeOf(context, turn);
        Tell(store, {.key = RecordKey(context), .tiers = kRecordTier, .facts = {.rows = 512, .model = 1}});
        Tell(store, ObjectOf(context, turn == 0 ? kHostTier | kDiskTier : kDiskTier));
      }
    }
    for (uint32_t store = 0; store < options_.stores; ++store) Done(store);
  }
  // Each link worker holds what requests of its own would have left there.
  void TellLinkWorkers() {
    ContextNumber fresh = trace_.contexts;
    for (uint32_t at = options_.stores; at < nodes_.size(); ++at) {
      SimTrace trace(trace_, at);
      std::set<ContextNumber> held;
      while (held.size() < options_.device_contexts) held.insert(trace.Next(1, &fresh).contexts[0]);
      for (const ContextNumber context : held) Tell(at, ObjectOf(context, kDeviceTier));
      Done(at);
    }
  }
  PlaceItem ObjectOf(ContextNumber context, Tiers tiers) const {
    return {.key = SimKey(context),
            .tiers = tiers,
            .facts = {.extent = static_cast<uint64_t>(options_.context_bytes), .rows = 512, .model = 1}};
  }
  NodeSlot SlotOf(uint32_t node) const { return nodes_[node]; }
  const ClusterOptions& options() const { return options_; }
  const TraceOptions& trace() const { return trace_; }

 private:
  void Tell(uint32_t node, const PlaceItem& item) {
    pages_[node].push_back(item);
    if (pages_[node].size() < kPage) return;
    index_->ApplyInventory(nodes_[node], {.items = pages_[node]});
    pages_[node].clear();
  }
  void Done(uint32_t node) {
    index_->ApplyInventory(nodes_[node],
                           {.items = pages_[node], .done = true, .tail_incarnation = 1, .tail_sequence = 1});
    pages_[node] = {};
  }

  const ClusterOptions options_;
  const TraceOptions trace_;
  PlacementIndex* const index_;
  std::vector<NodeSlot> nodes_;
  std::vector<std::vector<PlaceItem>> pages_;
};

bool AnswersAreRight(const Cluster& cluster, PlacementIndex* index) {
  Rng rng(5);
  PlaceAnswers answers;
  for (int sample = 0; sample < 10'000; ++sample) {
    const auto context = static_cast<ContextNumber>(rng.Below(cluster.trace().contexts));
    const PlaceKey keys[] = {RecordKey(context), SimKey(context)};
    index->Find(keys, &answers);
    for (size_t at = 0; at < 2; ++at) {
      std::set<NodeSlot> stores;
      for (const Holder& holder : answers.HoldersOf(at)) {
        if (holder.tiers != kDeviceTier) stores.insert(holder.node);
      }
      if (stores != std::set<NodeSlot>{cluster.SlotOf(cluster.HomeOf(context, 0)),
                                       cluster.SlotOf(cluster.HomeOf(context, 1))}) {
        return false;
      }
    }
  }
  return true;
}

void TimeEvents(const Cluster& cluster, PlacementIndex* index, BenchReport* report) {
  constexpr int kBatches = 60'000;
  constexpr uint64_t kBatch = 16;
  Rng rng(6);
  std::vector<uint64_t> sequences(cluster.options().stores, 1);
  std::vector<PlaceEvent> events(kBatch);
  double seconds = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto store = static_cast<uint32_t>(rng.Below(cluster.options().stores));
    for (PlaceEvent& event : events) {
      const auto context = static_cast<ContextNumber>(rng.Below(cluster.trace().contexts));
      event = {sequences[store]++, cluster.ObjectOf(context, rng.Below(2) == 0 ? kDiskTier : kAllTiers)};
    }
    const double begin_s = WallS();
    index->ApplyEvents(cluster.SlotOf(store), {.incarnation = 1, .events = events});
    seconds += WallS() - begin_s;
  }
  report->Add("index: events applied, batches of 16", kBatches * kBatch / seconds, "/s");
}

void TimeLookups(const Cluster& cluster, PlacementIndex* index, BenchReport* report) {
  constexpr int kBatches = 500'000;
  constexpr size_t kBatch = 4;
  Rng rng(7);
  PlaceAnswers answers;
  std::vector<PlaceKey> keys(kBatch * kBatches);
  for (PlaceKey& key : keys) key = SimKey(static_cast<ContextNumber>(rng.Below(cluster.trace().contexts)));
  const double begin_s = WallS();
  for (int batch = 0; batch < kBatches; ++batch) {
    index->Find(std::span(keys).subspan(static_cast<size_t>(batch) * kBatch, kBatch), &answers);
  }
  report->Add("index: lookups, batches of 4 anywhere", kBatches * kBatch / (WallS() - begin_s), "/s");
}

void TimePlacements(const Cluster& cluster, PlacementIndex* index, BenchReport* report) {
  constexpr int kPlacements = 300'000;
  const ClusterOptions& options = cluster.options();
  SimClock clock;
  Placement placement({.link = {.stale_report_s = 1e9, .explore_samples = 0},
                       .compile = {.stale_report_s = 1e9, .explore_samples = 0},
                       .max_queue_s = 1e9},
                      index, &clock);
  for (uint32_t at = 0; at < options.link_workers; ++at) {
    const WorkerInfo info{.name = std::to_string(at),
                          .models = {1},
                          .node = cluster.SlotOf(options.stores + at),
                          .fetch_bytes_per_s = options.link_bytes_per_s,
                          .rows_per_s = options.link_rows_per_s};
    EPIC_CHECK(placement.AddWorker(WorkerKind::kLink, info).ok());
  }
  for (uint32_t at = 0; at < options.compile_workers; ++at) {
    EPIC_CHECK(placement.AddWorker(WorkerKind::kCompile, {.name = std::to_string(at), .models = {1}}).ok());
  }
  SimTrace trace(cluster.trace(), 8);
  ContextNumber fresh = cluster.trace().contexts;
  std::vector<TraceRequest> requests;
  for (int at = 0; at < kPlacements; ++at) requests.push_back(trace.Next(50'000, &fresh));
  Placement::Scratch scratch;
  std::vector<NeededObject> objects;
  std::vector<uint64_t> served(options.link_workers, 0);
  Rng rng(9);
  const double begin_s = WallS();
  for (const TraceRequest& request : requests) {
    clock.now_s = 1 + request.at_s;
    objects.clear();
    for (uint32_t at = 0; at < request.count; ++at) {
      objects.push_back({SimKey(request.contexts[at]), uint64_t{64} << 20, 512});
    }
    const PlacementChoice choice =
        placement.ChooseLink({.model = 1, .objects = objects, .rows = 192}, &scratch);
    EPIC_CHECK(choice.outcome == PlacementOutcome::kChosen);
    ++served[choice.worker];
    placement.Done(choice.ticket, {.fetched_bytes = choice.fetch_bytes,
                                   .fetch_s = static_cast<double>(choice.fetch_bytes) / 25e9,
                                   .rows = 192,
                                   .compute_s = 0.0064});
    // At 50,000 requests and 6,000 reports a second.
    if (rng.Below(8) == 0) {
      placement.Report(WorkerKind::kLink, static_cast<WorkerSlot>(rng.Below(options.link_workers)),
                       {.last_serial = UINT64_MAX});
    }
  }
  report->AtLeast("placement: choices, with their lookups, ends and reports, one core",
                  kPlacements / (WallS() - begin_s), "/s", 100'000);
  report->Add("placement: most requests at a worker / mean",
              static_cast<double>(*std::max_element(served.begin(), served.end())) * options.link_workers /
                  kPlacements,
              "");
}

}  // namespace

void BenchIndex(const ScaleOptions& options, BenchReport* report) {
  const ClusterOptions cluster_options = ClusterOf(options);
  const TraceOptions trace = TraceOf(options);
  const double resident = ResidentBytes();
  PlacementIndex index({.max_nodes = 1024, .max_bytes = uint64_t{300} * trace.contexts});
  Cluster cluster(cluster_options, trace, &index);
  const double begin_s = WallS();
  cluster.TellStores();
  const double told_s = WallS() - begin_s;
  cluster.TellLinkWorkers();
  const PlacementIndex::Counts counts = index.counts();
  const double contexts = trace.contexts;
  report->Add("index: contexts, each with a record and an object on two stores", contexts, "");
  report->Add("index: entries", static_cast<double>(counts.entries), "");
  report->AtMost("index: memory per context, link workers' copies included",
                 static_cast<double>(counts.memory_bytes) / contexts, "B", 300);
  report->AtMost("index: the same by the process's resident memory", (ResidentBytes() - resident) / contexts,
                 "B", 300);
  report->AtMost("index: inventories of 100,000 contexts", told_s * 1e5 / contexts, "s", 0.3);
  report->Check("index: nothing was evicted", counts.evicted == 0);
  report->Check("index: 10,000 samples name their stores and no other", AnswersAreRight(cluster, &index));
  TimeLookups(cluster, &index, report);
  TimeEvents(cluster, &index, report);
  TimePlacements(cluster, &index, report);
}

}  // namespace epic::router
