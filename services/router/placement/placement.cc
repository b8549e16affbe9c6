#include "services/router/placement/placement.h"

#include <algorithm>
#include <limits>

#include "common/base/check.h"

namespace epic::router {
namespace {

constexpr Tiers kStoreTiers = kHostTier | kDiskTier;
constexpr size_t kFirstOfCell = 2;
constexpr double kNever = std::numeric_limits<double>::infinity();

// How many stores have it.
size_t StoresAmong(std::span<const Holder> holders, const std::vector<int32_t>& worker_of_node) {
  return static_cast<size_t>(std::count_if(holders.begin(), holders.end(), [&](const Holder& holder) {
    return (holder.tiers & kStoreTiers) != 0 && worker_of_node[holder.node] < 0;
  }));
}

}  // namespace

Placement::Placement(const PlacementOptions& options, PlacementIndex* index, const Clock* clock)
    : options_(options),
      index_(index),
      clock_(clock),
      link_(options.link),
      compile_(options.compile),
      worker_of_node_(kMaxNodes, -1),
      held_(options.link.max_workers) {}

absl::StatusOr<WorkerSlot> Placement::AddWorker(WorkerKind kind, const WorkerInfo& info) {
  MutexLock lock(&mu_);
  absl::StatusOr<WorkerSlot> slot = FleetOf(kind).Add(info, NowS());
  if (slot.ok() && kind == WorkerKind::kLink && info.node) worker_of_node_[*info.node] = *slot;
  return slot;
}

void Placement::RemoveWorker(WorkerKind kind, WorkerSlot slot) {
  MutexLock lock(&mu_);
  const std::optional<NodeSlot> node = FleetOf(kind).worker(slot).info.node;
  if (kind == WorkerKind::kLink && node) worker_of_node_[*node] = -1;
  FleetOf(kind).Remove(slot);
}

void Placement::SetStanding(WorkerKind kind, WorkerSlot slot, Standing standing) {
  MutexLock lock(&mu_);
  FleetOf(kind).SetStanding(slot, standing);
}

void Placement::Report(WorkerKind kind, WorkerSlot slot, const WorkerReport& report) {
  MutexLock lock(&mu_);
  FleetOf(kind).Report(slot, report, NowS());
}

void Placement::Tick() {
  MutexLock lock(&mu_);
  link_.Tick(NowS());
  compile_.Tick(NowS());
}

void Placement::Look(const LinkRequest& request, Scratch* scratch) {
  scratch->keys.clear();
  for (const NeededObject& object : request.objects) scratch->keys.push_back(object.key);
  index_->Find(scratch->keys, &scratch->answers);
}

Placement::Need Placement::Gather(const LinkRequest& request, const Scratch& scratch) {
  ++round_;
  seen_.clear();
  Need need;
  for (size_t at = 0; at < request.objects.size(); ++at) {
    const NeededObject& object = request.objects[at];
    const auto bytes = static_cast<double>(object.bytes);
    const std::span<const Holder> holders = scratch.answers.HoldersOf(at);
    const bool in_a_store = StoresAmong(holders, worker_of_node_) > 0;
    (in_a_store ? need.bytes : need.missing_bytes) += bytes;
    if (!in_a_store) need.missing_rows += object.rows;
    for (const Holder& holder : holders) {
      const int32_t worker = worker_of_node_[holder.node];
      if (worker < 0 || (holder.tiers & (kDeviceTier | kHostTier)) == 0) continue;
      Held& held = held_[static_cast<size_t>(worker)];
      if (held.round != round_) {
        held = {.round = round_};
        seen_.push_back(static_cast<WorkerSlot>(worker));
      }
      (in_a_store ? held.bytes : held.missing_bytes) += bytes;
      if (!in_a_store) held.missing_rows += object.rows;
      if ((holder.tiers & kDeviceTier) == 0) held.host_bytes += bytes;
      if (at < 64) held.objects |= uint64_t{1} << at;
    }
  }
  return need;
}

double Placement::CompileS(uint16_t model, double rows, double now_s) const {
  const std::optional<WorkerSlot> least = compile_.LeastBusy(model, now_s);
  if (!least) return kNever;
  const WorkerFleet::Worker& worker = compile_.worker(*least);
  return worker.QueueS(now_s) + rows * worker.s_per_row;
}

PlacementCost Placement::CostOf(WorkerSlot slot, const LinkRequest& request, const Need& need,
                                double compile_s, double now_s, bool* elsewhere) const {
  const WorkerFleet::Worker& worker = link_.worker(slot);
  const Held none;
  const Held& held = held_[slot].round == round_ ? held_[slot] : none;
  PlacementCost cost{.queue_s = worker.QueueS(now_s),
                     .fetch_s = (need.bytes - held.bytes) * worker.s_per_byte +
                                held.host_bytes / options_.host_tier_bytes_per_s,
                     .compute_s = request.rows * worker.s_per_row};
  const double missing_rows = need.missing_rows - held.missing_rows;
  *elsewhere = false;
  if (missing_rows <= 0) return cost;
  const double here_s = missing_rows * worker.s_per_row;
  const double bring_s = (need.missing_bytes - held.missing_bytes) * worker.s_per_byte;
  // compile_s is that of all missing rows; no more than what this one waits for.
  if (compile_s + bring_s < here_s) {
    *elsewhere = true;
    cost.compile_s = compile_s;
    cost.fetch_s += bring_s;
  } else {
    cost.compute_s += here_s;
  }
  return cost;
}

double Placement::HeldBytes(WorkerSlot slot) const {
  const Held& held = held_[slot];
  return held.round == round_ ? held.bytes + held.missing_bytes - held.host_bytes : 0;
}

PlacementOutcome Placement::Verdict(const PlacementCost& cost, std::optional<int64_t> deadline_ns,
                                    double now_s) {
  if (deadline_ns && now_s + cost.total() > static_cast<double>(*deadline_ns) * 1e-9) {
    ++counts_.too_late;
    return PlacementOutcome::kTooLate;
  }
  if (cost.queue_s > options_.max_queue_s || tickets_.size() >= options_.max_in_flight) {
    ++counts_.queue_full;
    return PlacementOutcome::kQueueFull;
  }
  ++counts_.chosen;
  return PlacementOutcome::kChosen;
}

void Placement::Send(WorkerKind kind, double fetch_s, double compute_s, double now_s,
                     PlacementChoice* choice) {
  choice->serial = FleetOf(kind).Sent(choice->worker, fetch_s, compute_s, now_s);
  choice->ticket = ++last_ticket_;
  tickets_[choice->ticket] = {kind, choice->worker, choice->serial};
}

PlacementChoice Placement::ChooseLink(const LinkRequest& request, Scratch* scratch) {
  Look(request, scratch);
  MutexLock lock(&mu_);
  const double now_s = NowS();
  const Need need = Gather(request, *scratch);
  const double compile_s = need.missing_rows > 0 ? CompileS(request.model, need.missing_rows, now_s) : kNever;
  link_.AppendFirst(request.model, kFirstOfCell, &seen_);
  PlacementChoice choice;
  double least = kNever, least_held = 0;
  for (const WorkerSlot slot : seen_) {
    if (!link_.worker(slot).candidate || !link_.Serves(slot, request.model)) continue;
    bool elsewhere = false;
    const double cost = CostOf(slot, request, need, compile_s, now_s, &elsewhere).total();
    if (cost >= least) continue;
    least = cost;
    least_held = HeldBytes(slot);
  }
  double longest_s = kNever;
  for (const WorkerSlot slot : seen_) {
    const WorkerFleet::Worker& worker = link_.worker(slot);
    if (!worker.candidate || worker.BusyS() >= longest_s || HeldBytes(slot) < least_held ||
        !link_.Serves(slot, request.model)) {
      continue;
    }
    bool elsewhere = false;
    const PlacementCost cost = CostOf(slot, request, need, compile_s, now_s, &elsewhere);
    if (cost.total() > least * kNearlyEqual) continue;
    longest_s = worker.BusyS();
    choice.worker = slot;
    choice.cost = cost;
    choice.compile_elsewhere = elsewhere;
  }
  if (least == kNever) {
    ++counts_.no_worker;
    return choice;
  }
  const Held& held = held_[choice.worker];
  const double held_bytes = held.round == round_ ? held.bytes : 0;
  choice.fetch_bytes = static_cast<uint64_t>(need.bytes - held_bytes);
  choice.outcome = Verdict(choice.cost, request.deadline_ns, now_s);
  if (choice.outcome != PlacementOutcome::kChosen) return choice;
  CountPulls(request, *scratch, choice.worker);
  // Its link is busy for as long as it takes by itself; what it waits for stores is nobody's queue.
  const double link_s =
      static_cast<double>(choice.fetch_bytes) / link_.worker(choice.worker).info.fetch_bytes_per_s;
  Send(WorkerKind::kLink, std::min(choice.cost.fetch_s, link_s), choice.cost.compute_s, now_s, &choice);
  return choice;
}

void Placement::CountPulls(const LinkRequest& request, const Scratch& scratch, WorkerSlot worker) {
  const uint64_t held = held_[worker].round == round_ ? held_[worker].objects : 0;
  for (size_t at = 0; at < std::min<size_t>(64, request.objects.size()); ++at) {
    if ((held >> at & 1) != 0 || scratch.answers.found[at].count == 0) continue;
    hot_.Count(request.objects[at].key, request.objects[at].bytes, clock_->SteadyNs());
  }
}

PlacementChoice Placement::ChooseCompile(uint16_t model, uint32_t rows, std::optional<int64_t> deadline_ns) {
  MutexLock lock(&mu_);
  const double now_s = NowS();
  PlacementChoice choice;
  const std::optional<WorkerSlot> least = compile_.LeastBusy(model, now_s);
  if (!least) {
    ++counts_.no_worker;
    return choice;
  }
  const WorkerFleet::Worker& worker = compile_.worker(*least);
  choice.worker = *least;
  choice.cost = {.queue_s = worker.QueueS(now_s), .compute_s = rows * worker.s_per_row};
  choice.outcome = Verdict(choice.cost, deadline_ns, now_s);
  if (choice.outcome == PlacementOutcome::kChosen) {
    Send(WorkerKind::kCompile, 0, choice.cost.compute_s, now_s, &choice);
  }
  return choice;
}

void Placement::Done(uint64_t ticket, const WorkerMeasure& measure) {
  MutexLock lock(&mu_);
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return;
  FleetOf(found->second.kind).Ended(found->second.worker, found->second.serial, measure, NowS());
  tickets_.erase(found);
}

std::optional<PlacementCost> Placement::CostAt(const LinkRequest& request, WorkerSlot worker,
                                               Scratch* scratch) {
  Look(request, scratch);
  MutexLock lock(&mu_);
  if (!link_.worker(worker).candidate || !link_.Serves(worker, request.model)) return std::nullopt;
  const double now_s = NowS();
  const Need need = Gather(request, *scratch);
  bool elsewhere = false;
  return CostOf(worker, request, need, CompileS(request.model, need.missing_rows, now_s), now_s, &elsewhere);
}

std::vector<ReplicaWish> Placement::HotReplicas() {
  std::vector<HotObjects::Hot> hot;
  {
    MutexLock lock(&mu_);
    hot = hot_.Above(options_.hot_bytes_per_s, clock_->SteadyNs());
  }
  std::vector<ReplicaWish> wishes;
  PlaceAnswers answers;
  for (const HotObjects::Hot& each : hot) {
    index_->Find({&each.key, 1}, &answers);
    MutexLock lock(&mu_);
    ReplicaWish wish{.key = each.key, .bytes_per_s = each.bytes_per_s};
    wish.stores = StoresAmong(answers.holders, worker_of_node_);
    const double enough = each.bytes_per_s / options_.hot_bytes_per_s;
    wish.wanted = std::min(options_.max_replicas, static_cast<size_t>(enough) + 1);
    if (wish.stores > 0 && wish.wanted > wish.stores) wishes.push_back(wish);
  }
  return wishes;
}

Placement::Counts Placement::counts() const {
  MutexLock lock(&mu_);
  Counts counts = counts_;
  counts.in_flight = tickets_.size();
  return counts;
}

}  // namespace epic::router
