#include "services/router/placement/worker_fleet.h"

#include <algorithm>
#include <cmath>

#include "common/base/random.h"

namespace epic::router {
namespace {

constexpr uint64_t kLeastMeasuredBytes = 64 * 1024;  // of less, what is measured is the way, not the rate

int64_t NsOf(double s) { return static_cast<int64_t>(s * 1e9); }

int32_t OctaveOf(double value) {
  return static_cast<int32_t>(std::floor(std::log(value) / std::log(WorkerFleet::kCellRatio)));
}

// By what a report says; one that is idle keeps its turn.
double BusyOf(double queue_s, double busy_s, double now_s) {
  return queue_s > 0 ? now_s + queue_s : std::min(busy_s, now_s);
}

}  // namespace

absl::StatusOr<WorkerSlot> WorkerFleet::Add(const WorkerInfo& info, double now_s) {
  if (!(info.fetch_bytes_per_s > 0) || !(info.rows_per_s > 0) || !std::isfinite(info.fetch_bytes_per_s) ||
      !std::isfinite(info.rows_per_s)) {
    return absl::InvalidArgumentError("placement: rates of worker " + info.name + " must be positive");
  }
  size_t free = workers_.size();
  for (size_t at = workers_.size(); at-- > 0;) {
    if (!workers_[at].used) free = at;
    if (workers_[at].used && workers_[at].info.name == info.name) {
      return absl::AlreadyExistsError("placement: there is a worker named " + info.name);
    }
  }
  if (free == workers_.size()) {
    return absl::ResourceExhaustedError("placement: more workers than " + std::to_string(free));
  }
  const auto slot = static_cast<WorkerSlot>(free);
  // Numbers go on, so that the end of a request of the slot's last worker is none of this one's.
  const uint64_t last_serial = workers_[slot].last_serial;
  Worker& worker = workers_[slot] = Worker{};
  worker.info = info;
  worker.used = true;
  worker.fetch = RateEstimate(info.fetch_bytes_per_s);
  worker.compute = RateEstimate(info.rows_per_s);
  worker.fetch_busy_s = worker.compute_busy_s =
      now_s - Rng(options_.seed * 1'000'003 + slot).Uniform() * options_.stale_report_s;
  worker.last_report_s = now_s;
  worker.first_serial = worker.last_serial = last_serial;
  RenewRates(&worker, now_s);
  Place(slot);
  return slot;
}

void WorkerFleet::Remove(WorkerSlot slot) {
  TakeOut(slot);
  const uint64_t last_serial = workers_[slot].last_serial;
  workers_[slot] = Worker{};
  workers_[slot].last_serial = last_serial;
}

void WorkerFleet::SetStanding(WorkerSlot slot, Standing standing) {
  workers_[slot].standing = standing;
  Place(slot);
}

bool WorkerFleet::Serves(WorkerSlot slot, uint16_t model) const {
  const std::vector<uint16_t>& models = workers_[slot].info.models;
  return std::find(models.begin(), models.end(), model) != models.end();
}

void WorkerFleet::AppendFirst(uint16_t model, size_t each, std::vector<WorkerSlot>* out) const {
  const auto cells = cells_.find(model);
  if (cells == cells_.end()) return;
  for (const auto& [id, cell] : cells->second) {
    size_t seen = 0;
    for (auto at = cell.begin(); at != cell.end() && seen < each; ++at, ++seen) out->push_back(at->second);
  }
}

std::optional<WorkerSlot> WorkerFleet::LeastBusy(uint16_t model, double now_s) const {
  const auto cells = cells_.find(model);
  std::optional<WorkerSlot> least;
  if (cells == cells_.end()) return least;
  for (const auto& [id, cell] : cells->second) {
    const WorkerSlot first = cell.begin()->second;
    if (!least || workers_[first].QueueS(now_s) < workers_[*least].QueueS(now_s)) least = first;
  }
  return least;
}

void WorkerFleet::RenewRates(Worker* worker, double now_s) {
  worker->s_per_byte = 1 / worker->fetch.Value(NsOf(now_s));
  worker->s_per_row = 1 / worker->compute.Value(NsOf(now_s));
}

void WorkerFleet::AddWork(Worker* worker, double fetch_s, double compute_s, double now_s) const {
  worker->fetch_busy_s = std::max(worker->fetch_busy_s, now_s) + options_.routers * fetch_s;
  worker->compute_busy_s = std::max(worker->compute_busy_s, now_s) + options_.routers * compute_s;
}

void WorkerFleet::Report(WorkerSlot slot, const WorkerReport& report, double now_s) {
  Worker& worker = workers_[slot];
  while (!worker.unseen.empty() && worker.unseen.front().serial <= report.last_serial)
    worker.unseen.pop_front();
  worker.fetch_busy_s = BusyOf(report.fetch_queue_s, worker.fetch_busy_s, now_s);
  worker.compute_busy_s = BusyOf(report.compute_queue_s, worker.compute_busy_s, now_s);
  for (const Worker::Sent& sent : worker.unseen) AddWork(&worker, sent.fetch_s, sent.compute_s, now_s);
  worker.last_report_s = now_s;
  worker.stale = false;
  Place(slot);
}

uint64_t WorkerFleet::Sent(WorkerSlot slot, double fetch_s, double compute_s, double now_s) {
  Worker& worker = workers_[slot];
  AddWork(&worker, fetch_s, compute_s, now_s);
  worker.unseen.push_back({++worker.last_serial, fetch_s, compute_s});
  ++worker.in_flight;
  Place(slot);
  return worker.last_serial;
}

void WorkerFleet::Ended(WorkerSlot slot, uint64_t serial, const WorkerMeasure& measure, double now_s) {
  Worker& worker = workers_[slot];
  if (!worker.used || serial <= worker.first_serial || worker.in_flight == 0) return;
  --worker.in_flight;
  const auto sent = std::lower_bound(worker.unseen.begin(), worker.unseen.end(), serial,
                                     [](const Worker::Sent& a, uint64_t b) { return a.serial < b; });
  if (sent != worker.unseen.end() && sent->serial == serial) worker.unseen.erase(sent);
  if (measure.fetched_bytes >= kLeastMeasuredBytes) {
    worker.fetch.Add(static_cast<double>(measure.fetched_bytes) / measure.fetch_s, NsOf(now_s));
  }
  if (measure.rows > 0)
    worker.compute.Add(static_cast<double>(measure.rows) / measure.compute_s, NsOf(now_s));
  RenewRates(&worker, now_s);
  Place(slot);
}

void WorkerFleet::Tick(double now_s) {
  double fetch = 0, compute = 0, fetched = 0, computed = 0;
  for (const Worker& worker : workers_) {
    if (!worker.used) continue;
    if (worker.fetch.samples() > 0) fetch += std::log(worker.fetch.Value(NsOf(now_s))), ++fetched;
    if (worker.compute.samples() > 0) compute += std::log(worker.compute.Value(NsOf(now_s))), ++computed;
  }
  for (size_t at = 0; at < workers_.size(); ++at) {
    Worker& worker = workers_[at];
    if (!worker.used) continue;
    if (fetched > 0) worker.fetch.SetPrior(std::exp(fetch / fetched));
    if (computed > 0) worker.compute.SetPrior(std::exp(compute / computed));
    RenewRates(&worker, now_s);
    worker.stale = now_s - worker.last_report_s > options_.stale_report_s;
    Place(static_cast<WorkerSlot>(at));
  }
}

void WorkerFleet::Place(WorkerSlot slot) {
  Worker& worker = workers_[slot];
  const bool is_new = worker.compute.samples() < options_.explore_samples;
  worker.candidate = worker.used && worker.standing == Standing::kUp && !worker.stale &&
                     worker.in_flight < (is_new ? options_.explore_in_flight : options_.max_in_flight);
  std::optional<Worker::Key> key;
  if (worker.candidate) {
    key = Worker::Key{.cell = OctaveOf(worker.s_per_byte) * 4096 + OctaveOf(worker.s_per_row),
                      .order = worker.BusyS()};
  }
  if (key == worker.key) return;
  TakeOut(slot);
  if (!key) return;
  for (const uint16_t model : worker.info.models) cells_[model][key->cell].insert({key->order, slot});
  worker.key = key;
}

void WorkerFleet::TakeOut(WorkerSlot slot) {
  Worker& worker = workers_[slot];
  if (!worker.key) return;
  for (const uint16_t model : worker.info.models) {
    auto& cells = cells_[model];
    const auto cell = cells.find(worker.key->cell);
    cell->second.erase({worker.key->order, slot});
    if (cell->second.empty()) cells.erase(cell);
  }
  worker.key.reset();
}

}  // namespace epic::router
