#include "services/router/placement/bench/cluster_sim.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"

namespace epic::router {
namespace {

constexpr ContextNumber kRoomForFresh = 4'000'000;
constexpr uint64_t kUncompiledPercent = 1;  // of contexts, when the simulation begins

double Quantile(std::vector<float>* values, double q) {
  if (values->empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(values->size() - 1));
  std::nth_element(values->begin(), values->begin() + at, values->end());
  return (*values)[static_cast<size_t>(at)];
}

}  // namespace

ClusterSim::ClusterSim(const ClusterOptions& options, const TraceOptions& trace, PolicyKind policy)
    : options_(options),
      trace_options_(trace),
      policy_(MakePolicy(policy, options, trace.contexts + kRoomForFresh / 4, &clock_)),
      fresh_(trace.contexts),
      compile_free_s_(options.compile_workers, 0),
      compile_dead_(options.compile_workers, false),
      stored_(trace.contexts + kRoomForFresh, false) {
  const auto speed = [&] { return std::exp(options_.speed_spread * rng_.Gaussian()); };
  for (uint32_t at = 0; at < options.link_workers; ++at) {
    workers_.push_back({.device = SimCache(options.device_contexts)});
    workers_.back().speed = speed();
    workers_.back().link_speed = speed();
    workers_.back().last_serial.assign(options.routers, 0);
  }
  for (uint32_t at = 0; at < options.stores; ++at)
    stores_.push_back({.host = SimCache(options.host_contexts)});
  for (uint32_t at = 0; at < options.compile_workers; ++at) compile_speed_.push_back(speed());
  for (ContextNumber context = 0; context < trace.contexts; ++context) {
    if (SimKey(context).low % 100 < kUncompiledPercent) continue;
    stored_[context] = true;
    for (uint32_t turn = 0; turn < options.replicas; ++turn) {
      policy_->StoreChanged(HomeOf(context, turn), context, kDiskTier);
    }
  }
}

// A stand-in for the rendezvous order of the stores, which costs a digest for each of them.
uint32_t ClusterSim::HomeOf(ContextNumber context, uint32_t turn) const {
  const PlaceKey key = SimKey(context);
  const uint64_t first = key.high % options_.stores;
  if (turn == 0) return static_cast<uint32_t>(first);
  return static_cast<uint32_t>((first + 1 + (key.low >> 8) % (options_.stores - 1) + turn - 1) %
                               options_.stores);
}

bool ClusterSim::IsStored(ContextNumber context) const {
  if (!stored_[context]) return false;
  for (uint32_t turn = 0; turn < options_.replicas; ++turn) {
    if (!stores_[HomeOf(context, turn)].dead) return true;
  }
  return false;
}

uint32_t ClusterSim::NewRequest(const TraceRequest& trace) {
  uint32_t at = static_cast<uint32_t>(requests_.size());
  if (free_requests_.empty()) {
    requests_.emplace_back();
  } else {
    at = free_requests_.back();
    free_requests_.pop_back();
  }
  requests_[at] = Request{.trace = trace, .router = static_cast<uint32_t>(rng_.Below(options_.routers))};
  ++open_;
  return at;
}

SimResult ClusterSim::Run(const SimLoad& load) {
  begin_s_ = clock_.now_s;
  ignored_until_s_ = begin_s_ + load.ignored_s;
  next_report_s_ = std::max(next_report_s_, begin_s_);
  ttfts_.clear();
  windows_.assign(static_cast<size_t>(load.seconds / kWindowS) + 1, {});
  contexts_ = device_hits_ = pulled_ = from_host_ = compiled_ = failed_over_ = 0;
  for (LinkWorker& worker : workers_) worker.served = 0;
  SimTrace trace(trace_options_, load.seed);
  std::optional<TraceRequest> next = trace.Next(load.per_s, &fresh_);
  double kill_s = load.kill_at_s < 0 ? 1e300 : begin_s_ + load.kill_at_s;
  SimResult result;
  while (next || open_ > 0) {
    const double arrival_s = next ? begin_s_ + next->at_s : 1e300;
    const double event_s = events_.empty() ? 1e300 : events_.top().at_s;
    const double other_s = std::min({next_report_s_, kill_s, detect_at_s_.value_or(1e300)});
    clock_.now_s = std::min({arrival_s, event_s, other_s});
    Deliver();
    if (clock_.now_s == arrival_s) {
      next->at_s = arrival_s;
      Push(arrival_s, Kind::kPlace, NewRequest(*next));
      next = trace.Next(load.per_s, &fresh_);
      if (next->at_s >= load.seconds) {
        next.reset();
        Measure(load, &result);
      }
    } else if (clock_.now_s == event_s) {
      const Event event = events_.top();
      events_.pop();
      Handle(event);
    } else if (clock_.now_s == kill_s) {
      Kill();
      kill_s = 1e300;
    } else if (detect_at_s_ && clock_.now_s == *detect_at_s_) {
      Detect();
    } else {
      SendReports();
    }
  }
  result.requests = ttfts_.size();
  for (const float ttft : ttfts_) result.mean_ttft_s += ttft / static_cast<double>(ttfts_.size());
  result.p50_ttft_s = Quantile(&ttfts_, 0.5);
  result.p99_ttft_s = Quantile(&ttfts_, 0.99);
  result.failed_over = failed_over_;
  for (auto& window : windows_) result.window_p95_s.push_back(Quantile(&window, 0.95));
  return result;
}

// At the last arrival: what is left to do then belongs to the load.
void ClusterSim::Measure(const SimLoad& load, SimResult* result) {
  const double requests = std::max(1.0, load.per_s * load.seconds);
  const auto of_contexts = [&](uint64_t count) {
    return static_cast<double>(count) / static_cast<double>(std::max<uint64_t>(1, contexts_));
  };
  result->device_hits = of_contexts(device_hits_);
  result->pulled_per_request = static_cast<double>(pulled_) / requests;
  result->host_share = static_cast<double>(from_host_) / static_cast<double>(std::max<uint64_t>(1, pulled_));
  result->compiled_per_request = static_cast<double>(compiled_) / requests;
  double most = 0, sum = 0, alive = 0;
  for (const LinkWorker& worker : workers_) {
    if (worker.dead) continue;
    most = std::max(most, static_cast<double>(worker.served));
    sum += static_cast<double>(worker.served);
    ++alive;
    result->last_queue_s +=
        std::max({0.0, worker.device_free_s - clock_.now_s, worker.link_free_s - clock_.now_s});
  }
  result->balance = most / std::max(1.0, sum / alive);
  result->last_queue_s /= alive;
}

void ClusterSim::Handle(const Event& event) {
  switch (event.kind) {
    case Kind::kPlace:
      return Place(event.subject);
    case Kind::kAtWorker:
      return AtWorker(event.subject);
    case Kind::kCompiled:
      return Compiled(event.subject);
    case Kind::kFetched:
      return Fetched(event.subject);
    case Kind::kAnswered:
      return Answered(event.subject);
    case Kind::kReported:
      break;
  }
  Report& report = reports_[event.subject];
  for (uint32_t router = 0; router < options_.routers; ++router) {
    report.report.last_serial = report.last_serial[router];
    if (!workers_[report.worker].dead) policy_->Report(router, report.worker, report.report);
  }
  free_reports_.push_back(event.subject);
}

void ClusterSim::Place(uint32_t at) {
  Request& request = requests_[at];
  request.decision = policy_->Choose(request.router, request.trace);
  request.pulling_s = request.compute_s = request.ready_s = 0;
  request.pulled = request.compiling = request.fresh_count = 0;
  request.rows = options_.rows_per_request + request.trace.count * options_.rows_per_context;
  Push(clock_.now_s + options_.hop_s, Kind::kAtWorker, at);
}

bool ClusterSim::FailsOver(uint32_t at) {
  if (!workers_[requests_[at].decision.worker].dead) return false;
  policy_->Done(requests_[at].router, requests_[at].decision, {});
  ++failed_over_;
  Push(std::max(clock_.now_s, detect_at_s_.value_or(0)) + options_.hop_s, Kind::kPlace, at);
  return true;
}

void ClusterSim::AtWorker(uint32_t at) {
  if (FailsOver(at)) return;
  Request& request = requests_[at];
  LinkWorker& worker = workers_[request.decision.worker];
  ++worker.served;
  worker.last_serial[request.router] = std::max(worker.last_serial[request.router], request.decision.serial);
  for (uint32_t context = 0; context < request.trace.count; ++context) {
    Bring(&request, request.trace.contexts[context], at);
  }
  request.compute_s = request.rows / (options_.link_rows_per_s * worker.speed);
  worker.coming_s += request.compute_s + options_.decode_s;
  if (request.compiling == 0) Push(std::max(clock_.now_s, request.ready_s), Kind::kFetched, at);
}

void ClusterSim::Bring(Request* request, ContextNumber context, uint32_t at) {
  LinkWorker& worker = workers_[request->decision.worker];
  ++contexts_;
  if (const double* ready_s = worker.device.Use(context); ready_s != nullptr) {
    ++device_hits_;
    request->ready_s = std::max(request->ready_s, *ready_s);
    return;
  }
  if (const std::optional<uint32_t> store = SourceOf(context); store) {
    Pull(request, context, *store);
  } else if (request->decision.compile_elsewhere) {
    Compile(request, context, at);
  } else {
    ++compiled_;
    request->rows += options_.context_rows;
    PutOnDevice(request->decision.worker, context, clock_.now_s);
    request->fresh[request->fresh_count++] = context;
    StoreCompiled(context);
  }
}

std::optional<uint32_t> ClusterSim::SourceOf(ContextNumber context) const {
  if (!stored_[context]) return std::nullopt;
  std::optional<uint32_t> best;
  double best_s = 0;
  for (uint32_t turn = 0; turn < options_.replicas; ++turn) {
    const uint32_t store = HomeOf(context, turn);
    if (stores_[store].dead) continue;
    double free_s = std::max(clock_.now_s, stores_[store].link_free_s);
    if (!stores_[store].host.Has(context)) {
      free_s = std::max(free_s, std::max(clock_.now_s, stores_[store].disk_free_s) +
                                    options_.context_bytes / options_.disk_bytes_per_s);
    }
    if (!best || free_s < best_s) {
      best = store;
      best_s = free_s;
    }
  }
  return best;
}

void ClusterSim::Pull(Request* request, ContextNumber context, uint32_t from) {
  LinkWorker& worker = workers_[request->decision.worker];
  Store& store = stores_[from];
  double there_s = 0;
  if (store.host.Use(context) != nullptr) {
    ++from_host_;
  } else {
    store.disk_free_s =
        std::max(clock_.now_s, store.disk_free_s) + options_.context_bytes / options_.disk_bytes_per_s;
    there_s = store.disk_free_s;
    PutInHost(from, context);
  }
  store.link_free_s =
      std::max(clock_.now_s, store.link_free_s) + options_.context_bytes / options_.link_bytes_per_s;
  const double own_s = std::max(clock_.now_s, worker.link_free_s);
  worker.link_free_s = own_s + options_.context_bytes / (options_.link_bytes_per_s * worker.link_speed);
  const double ready_s = std::max({there_s, store.link_free_s, worker.link_free_s});
  request->pulling_s += ready_s - own_s;
  request->ready_s = std::max(request->ready_s, ready_s);
  ++request->pulled;
  ++pulled_;
  PutOnDevice(request->decision.worker, context, ready_s);
  request->fresh[request->fresh_count++] = context;
}

// By the shortest queue of the compile workers that are up, for every policy.
void ClusterSim::Compile(Request* request, ContextNumber context, uint32_t at) {
  const auto found = compiling_.find(context);
  ++request->compiling;
  if (found != compiling_.end()) {
    Push(std::max(clock_.now_s, found->second), Kind::kCompiled, at);
    return;
  }
  ++compiled_;
  size_t best = 0;
  for (size_t worker = 0; worker < compile_free_s_.size(); ++worker) {
    const bool better = compile_dead_[best] || compile_free_s_[worker] < compile_free_s_[best];
    if (!compile_dead_[worker] && better) best = worker;
  }
  double& free_s = compile_free_s_[best];
  free_s = std::max(clock_.now_s, free_s) +
           options_.context_rows / (options_.compile_rows_per_s * compile_speed_[best]);
  compiling_[context] = free_s;
  Push(free_s, Kind::kCompiled, at);
}

void ClusterSim::StoreCompiled(ContextNumber context) {
  if (IsStored(context)) return;
  stored_[context] = true;
  for (uint32_t turn = 0; turn < options_.replicas; ++turn) {
    const uint32_t store = HomeOf(context, turn);
    if (!stores_[store].dead) PutInHost(store, context);
  }
}

void ClusterSim::Compiled(uint32_t at) {
  Request& request = requests_[at];
  for (uint32_t place = 0; place < request.trace.count; ++place) {
    const auto found = compiling_.find(request.trace.contexts[place]);
    if (found == compiling_.end() || found->second > clock_.now_s) continue;
    StoreCompiled(found->first);
    compiling_.erase(found);
  }
  if (--request.compiling > 0) return;
  LinkWorker& worker = workers_[request.decision.worker];
  if (worker.dead) {
    Push(clock_.now_s, Kind::kFetched, at);
    return;
  }
  for (uint32_t place = 0; place < request.trace.count; ++place) {
    const ContextNumber context = request.trace.contexts[place];
    if (const double* ready_s = worker.device.Use(context); ready_s != nullptr) {
      request.ready_s = std::max(request.ready_s, *ready_s);
      continue;
    }
    if (const std::optional<uint32_t> store = SourceOf(context); store) Pull(&request, context, *store);
  }
  Push(std::max(clock_.now_s, request.ready_s), Kind::kFetched, at);
}

void ClusterSim::Fetched(uint32_t at) {
  if (FailsOver(at)) return;
  Request& request = requests_[at];
  LinkWorker& worker = workers_[request.decision.worker];
  for (uint32_t fresh = 0; fresh < request.fresh_count; ++fresh) {
    if (worker.device.Has(request.fresh[fresh])) {
      Publish(false, request.decision.worker, request.fresh[fresh], kDeviceTier);
    }
  }
  worker.coming_s -= request.compute_s + options_.decode_s;
  const double first_token_s = std::max(clock_.now_s, worker.device_free_s) + request.compute_s;
  worker.device_free_s = first_token_s + options_.decode_s;
  Push(first_token_s, Kind::kAnswered, at);
}

void ClusterSim::Answered(uint32_t at) {
  if (FailsOver(at)) return;
  const Request& request = requests_[at];
  policy_->Done(request.router, request.decision,
                {.fetched_bytes = static_cast<uint64_t>(request.pulled * options_.context_bytes),
                 .fetch_s = request.pulling_s,
                 .rows = request.rows,
                 .compute_s = request.compute_s});
  if (request.trace.at_s >= ignored_until_s_) {
    const auto ttft = static_cast<float>(clock_.now_s - request.trace.at_s);
    ttfts_.push_back(ttft);
    windows_[static_cast<size_t>((request.trace.at_s - begin_s_) / kWindowS)].push_back(ttft);
  }
  free_requests_.push_back(at);
  --open_;
}

void ClusterSim::PutInHost(uint32_t store, ContextNumber context) {
  if (stores_[store].host.Use(context) != nullptr) return;
  const std::optional<ContextNumber> gone = stores_[store].host.Add(context, clock_.now_s);
  Publish(true, store, context, kHostTier | kDiskTier);
  if (gone) Publish(true, store, *gone, kDiskTier);
}

void ClusterSim::PutOnDevice(uint32_t worker, ContextNumber context, double ready_s) {
  const std::optional<ContextNumber> gone = workers_[worker].device.Add(context, ready_s);
  if (gone) Publish(false, worker, *gone, kNowhere);
}

void ClusterSim::Publish(bool is_store, uint32_t node, ContextNumber context, Tiers tiers) {
  changes_.push_back({clock_.now_s + options_.event_delay_s, node, context, tiers, is_store});
}

void ClusterSim::Deliver() {
  for (; !changes_.empty() && changes_.front().at_s <= clock_.now_s; changes_.pop_front()) {
    const Change& change = changes_.front();
    if (change.is_store && !stores_[change.node].dead) {
      policy_->StoreChanged(change.node, change.context, change.tiers);
    } else if (!change.is_store && !workers_[change.node].dead) {
      policy_->DeviceChanged(change.node, change.context, change.tiers != kNowhere);
    }
  }
}

// Workers report in turn, each once a period.
void ClusterSim::SendReports() {
  const LinkWorker& worker = workers_[next_report_];
  if (!worker.dead) {
    uint32_t at = static_cast<uint32_t>(reports_.size());
    if (free_reports_.empty()) {
      reports_.emplace_back();
    } else {
      at = free_reports_.back();
      free_reports_.pop_back();
    }
    reports_[at].worker = next_report_;
    reports_[at].last_serial = worker.last_serial;
    reports_[at].report = {
        .fetch_queue_s = std::max(0.0, worker.link_free_s - clock_.now_s),
        .compute_queue_s = std::max(0.0, worker.device_free_s - clock_.now_s) + worker.coming_s};
    Push(clock_.now_s + options_.report_delay_s, Kind::kReported, at);
  }
  next_report_ = (next_report_ + 1) % options_.link_workers;
  next_report_s_ += options_.report_period_s / options_.link_workers;
  if (clock_.now_s >= next_tick_s_) {
    policy_->Tick();
    next_tick_s_ = clock_.now_s + 0.25;
  }
}

// Every tenth of each kind.
void ClusterSim::Kill() {
  for (size_t at = 0; at < workers_.size(); at += 10) workers_[at].dead = true;
  for (size_t at = 0; at < stores_.size(); at += 10) stores_[at].dead = true;
  for (size_t at = 0; at < compile_dead_.size(); at += 10) compile_dead_[at] = true;
  detect_at_s_ = clock_.now_s + options_.detect_s;
}

void ClusterSim::Detect() {
  for (uint32_t at = 0; at < workers_.size(); at += 10) policy_->LinkDown(at);
  for (uint32_t at = 0; at < stores_.size(); at += 10) policy_->StoreDown(at);
  detect_at_s_.reset();
}

}  // namespace epic::router
