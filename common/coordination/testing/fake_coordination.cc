#include "common/coordination/testing/fake_coordination.h"

#include <algorithm>
#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic::testing {
namespace {

constexpr int64_t kCallMs = 5'000;  // after which a call has no answer
constexpr int64_t kNsInMs = 1'000'000;

absl::Status Unreachable() {
  return Error(ErrorCode::kCoordinationUnavailable, "the coordination store does not answer: try again");
}
absl::Status Stopped() { return Error(ErrorCode::kClientGone, "the coordinator has stopped"); }
absl::Status TooMany(std::string_view what) {
  return Error(ErrorCode::kQueueFull, "too many " + std::string(what) + " at a time: try again later");
}

void Apply(const KeyChange& change, std::map<std::string, KeyValue>* items) {
  if (change.is_put) {
    (*items)[change.item.key] = change.item;
  } else {
    items->erase(change.item.key);
  }
}

std::vector<KeyValue> Select(const std::map<std::string, KeyValue>& items, const KeyRange& range) {
  std::vector<KeyValue> selected;
  for (auto it = items.lower_bound(range.key); it != items.end() && range.Contains(it->first); ++it) {
    selected.push_back(it->second);
  }
  return selected;
}

}  // namespace

void FakeCoordinationServer::SetDown(bool down) {
  MutexLock lock(&mu_);
  if (down_ == down) return;
  down_ = down;
  if (!down) RenewAll();
  ProbeAll();
}

void FakeCoordinationServer::SetDelayMs(int64_t delay_ms) {
  MutexLock lock(&mu_);
  delay_ms_ = delay_ms;
}

void FakeCoordinationServer::Compact() {
  MutexLock lock(&mu_);
  state_.compacted = state_.revision;
  state_.base = state_.items;
  state_.history.clear();
}

void FakeCoordinationServer::EndLease(LeaseId lease) {
  MutexLock lock(&mu_);
  Remove(lease);
}

void FakeCoordinationServer::LoseAnswers(int count) {
  MutexLock lock(&mu_);
  lose_answers_ = count;
}

FakeCoordinationServer::State FakeCoordinationServer::Backup() const {
  MutexLock lock(&mu_);
  return state_;
}

void FakeCoordinationServer::Restore(const State& backup, bool new_cluster) {
  MutexLock lock(&mu_);
  state_ = backup;
  ++history_;
  if (new_cluster) ++cluster_;
  RenewAll();
  ProbeAll();
}

std::vector<KeyValue> FakeCoordinationServer::Items() const {
  MutexLock lock(&mu_);
  return Select(state_.items, KeyRange::Prefix(""));
}

size_t FakeCoordinationServer::leases() const {
  MutexLock lock(&mu_);
  return state_.leases.size();
}

void FakeCoordinationServer::AddClient(const ClientPtr& client) {
  MutexLock lock(&mu_);
  client->seen_history = history_;
  client->health.endpoint = "fake";
  clients_.push_back(client);
}

void FakeCoordinationServer::StopClient(const ClientPtr& client) {
  std::map<uint64_t, Call> calls;
  std::map<WatchId, WatchEntry> watches;  // destroyed outside the lock, as are leases
  std::map<LeaseId, KeptLease> leases;
  {
    MutexLock lock(&mu_);
    if (client->stopped) return;
    client->stopped = true;
    calls.swap(client->calls);
    watches.swap(client->watches);
    leases.swap(client->leases);
    std::erase(clients_, client);
    while (client->running > 0) told_.Wait(&mu_);
  }
  for (const auto& [id, call] : calls) call.work(Stopped());
}

void FakeCoordinationServer::SetCutOff(const ClientPtr& client, bool cut_off) {
  MutexLock lock(&mu_);
  client->cut_off = cut_off;
  ProbeAll();
}

CoordinationHealth FakeCoordinationServer::HealthOf(const ClientPtr& client) const {
  MutexLock lock(&mu_);
  return client->health;
}

absl::Status FakeCoordinationServer::Start(const ClientPtr& client, std::function<void(absl::Status)> work) {
  MutexLock lock(&mu_);
  if (client->stopped) return Stopped();
  if (client->calls.size() >= CoordinationLimits::kCalls) return TooMany("calls");
  const uint64_t id = next_id_++;
  client->calls[id] = {std::move(work), AfterMs(kCallMs)};
  timers_->At(AfterMs(std::min(delay_ms_, kCallMs)), [this, client, id] { Arrive(client, id); });
  return absl::OkStatus();
}

void FakeCoordinationServer::Arrive(const ClientPtr& client, uint64_t id) {
  Call call;
  absl::Status status;
  {
    MutexLock lock(&mu_);
    const auto found = client->calls.find(id);
    if (found == client->calls.end()) return;
    call = std::move(found->second);
    client->calls.erase(found);
    ++client->running;
    if (!Reaches(client)) {
      status = Unreachable();
    } else if (clock_->SteadyNs() >= call.deadline_ns) {
      status = Error(ErrorCode::kDeadline, "the coordination store did not answer in time");
    }
  }
  call.work(status);
  MutexLock lock(&mu_);
  if (status.ok()) client->health.revision = state_.revision;
  --client->running;
  told_.SignalAll();
}

absl::StatusOr<Listing> FakeCoordinationServer::List(const KeyRange& range, Revision at) {
  MutexLock lock(&mu_);
  if (at > state_.revision) return absl::OutOfRangeError("that revision is not yet there");
  if (at != 0 && at < state_.compacted) return absl::OutOfRangeError("that revision is compacted");
  if (at == 0 || at == state_.revision) return Listing{Select(state_.items, range), state_.revision};
  std::map<std::string, KeyValue> items = state_.base;
  for (const KeyChange& change : state_.history) {
    if (change.item.modified <= at) Apply(change, &items);
  }
  return Listing{Select(items, range), at};
}

absl::StatusOr<TransactionResult> FakeCoordinationServer::Commit(const Transaction& transaction) {
  MutexLock lock(&mu_);
  TransactionResult result{.applied = true, .revision = state_.revision, .found = {}};
  for (const Guard& guard : transaction.guards) {
    const auto found = state_.items.find(guard.key);
    const KeyValue* item = found == state_.items.end() ? nullptr : &found->second;
    result.applied = result.applied && Holds(guard, item);
    result.found.push_back(item == nullptr ? std::nullopt : std::optional(*item));
  }
  if (result.applied) {
    result.found.clear();
    for (const Change& change : transaction.changes) {
      if (change.is_put && change.lease != 0 && !state_.leases.contains(change.lease)) {
        return Error(ErrorCode::kLeaseEnded, "the lease of that put has ended: take another", "lease");
      }
    }
    const Revision next = state_.revision + 1;
    bool changed = false;
    for (const Change& change : transaction.changes) {
      if (change.is_put) Put(change, next);
      changed |=
          change.is_put || Erase([&](const KeyValue& item) { return change.range.Contains(item.key); }, next);
    }
    if (changed) result.revision = state_.revision = next;
    ScheduleAll();
  }
  if (lose_answers_ == 0) return result;
  --lose_answers_;
  return Unreachable();
}

absl::StatusOr<Lease> FakeCoordinationServer::Grant(const ClientPtr& client, int64_t ttl_ms,
                                                    Coordinator::LeaseListener listener) {
  MutexLock lock(&mu_);
  if (client->stopped) return Stopped();
  if (client->leases.size() >= CoordinationLimits::kLeases) return TooMany("leases");
  const auto id = static_cast<LeaseId>(next_id_++);
  state_.leases[id] = {ttl_ms, AfterMs(ttl_ms)};
  client->leases[id] = {ttl_ms, clock_->SteadyNs(), false, std::move(listener)};
  timers_->At(AfterMs(ttl_ms), [this, id] { CheckLease(id); });
  timers_->At(AfterMs(ttl_ms * 3 / 10), [this, client, id] { KeepAlive(client, id); });
  return Lease{id, ttl_ms};
}

absl::StatusOr<WatchId> FakeCoordinationServer::AddWatch(const ClientPtr& client, WatchEntry watch) {
  MutexLock lock(&mu_);
  if (client->stopped) return Stopped();
  if (client->watches.size() >= CoordinationLimits::kWatches) return TooMany("watches");
  const WatchId id = next_id_++;
  Schedule(client, id, &(client->watches[id] = std::move(watch)));
  return id;
}

void FakeCoordinationServer::RemoveWatch(const ClientPtr& client, WatchId id) {
  WatchEntry dropped;  // destroyed outside the lock
  MutexLock lock(&mu_);
  const auto found = client->watches.find(id);
  if (found == client->watches.end()) return;
  dropped = std::move(found->second);
  client->watches.erase(found);
}

void FakeCoordinationServer::ForgetLease(const ClientPtr& client, LeaseId id) {
  KeptLease dropped;  // destroyed outside the lock
  MutexLock lock(&mu_);
  const auto found = client->leases.find(id);
  if (found == client->leases.end()) return;
  dropped = std::move(found->second);
  client->leases.erase(found);
}

void FakeCoordinationServer::Deliver(const ClientPtr& client, WatchId id) {
  WatchUpdate update;
  Coordinator::WatchListener listener;
  {
    MutexLock lock(&mu_);
    if (const auto found = client->watches.find(id); found != client->watches.end()) {
      found->second.scheduled = false;
    }
    if (client->stopped || !Reaches(client)) return;
    const auto found = client->watches.find(id);
    if (found == client->watches.end()) return;
    WatchEntry& watch = found->second;
    listener = watch.listener;
    if (watch.of_lost_history || watch.next <= state_.compacted) {
      update.kind =
          watch.of_lost_history ? WatchUpdate::Kind::kHistoryChanged : WatchUpdate::Kind::kCompacted;
      client->watches.erase(found);
    } else {
      for (const KeyChange& change : state_.history) {
        if (change.item.modified < watch.next || !watch.range.Contains(change.item.key)) continue;
        update.changes.push_back(change);
        update.revision = change.item.modified;
      }
      watch.next = std::max(watch.next, state_.revision + 1);
      client->health.revision = state_.revision;
      if (update.changes.empty()) return;
    }
  }
  Tell(client, [&] { listener(update); });
}

void FakeCoordinationServer::KeepAlive(const ClientPtr& client, LeaseId id) {
  Coordinator::LeaseListener listener;
  std::optional<LeaseState> told;
  {
    MutexLock lock(&mu_);
    const auto kept = client->leases.find(id);
    if (kept == client->leases.end()) return;
    KeptLease& lease = kept->second;
    const int64_t every_ms = lease.ttl_ms * 3 / 10;
    listener = lease.listener;
    if (Reaches(client) && delay_ms_ < every_ms) {
      const auto found = state_.leases.find(id);
      if (found == state_.leases.end()) {
        told = LeaseState::kLost;
        client->leases.erase(kept);
      } else {
        found->second.ends_ns = AfterMs(lease.ttl_ms);
        lease.confirmed_ns = clock_->SteadyNs();
        if (lease.uncertain) told = LeaseState::kHeld;
        lease.uncertain = false;
      }
    } else {
      ++client->health.keepalive_failures;
      const int64_t age_ms = (clock_->SteadyNs() - lease.confirmed_ns) / kNsInMs;
      if (!lease.uncertain && age_ms >= every_ms * 3) {
        told = LeaseState::kUncertain;
        lease.uncertain = true;
      }
    }
    if (told != LeaseState::kLost) {
      timers_->At(AfterMs(every_ms), [this, client, id] { KeepAlive(client, id); });
    }
  }
  if (told.has_value()) Tell(client, [&] { listener(*told); });
}

void FakeCoordinationServer::CheckLease(LeaseId id) {
  MutexLock lock(&mu_);
  const auto found = state_.leases.find(id);
  if (found == state_.leases.end() || down_) return;
  if (clock_->SteadyNs() < found->second.ends_ns) {
    timers_->At(found->second.ends_ns, [this, id] { CheckLease(id); });
  } else {
    Remove(id);
  }
}

void FakeCoordinationServer::Probe(const ClientPtr& client) {
  MutexLock lock(&mu_);
  if (!client->stopped && Reaches(client)) client->health.revision = state_.revision;
}

void FakeCoordinationServer::Tell(const ClientPtr& client, const std::function<void()>& callback) {
  {
    MutexLock lock(&mu_);
    if (client->stopped) return;
    ++client->running;
  }
  callback();
  MutexLock lock(&mu_);
  --client->running;
  told_.SignalAll();
}

bool FakeCoordinationServer::Reaches(const ClientPtr& client) {
  CoordinationHealth& health = client->health;
  health.up = !down_ && !client->cut_off;
  health.fault = health.up ? "" : "the coordination store does not answer";
  if (!health.up) return false;
  health.answered_steady_ns = clock_->SteadyNs();
  health.cluster = cluster_;
  if (client->seen_history == history_) return true;
  client->seen_history = history_;
  health.revision = state_.revision;
  ++health.histories_lost;
  for (auto& [id, watch] : client->watches) {
    watch.of_lost_history = true;
    Schedule(client, id, &watch);
  }
  return true;
}

void FakeCoordinationServer::Schedule(const ClientPtr& client, WatchId id, WatchEntry* watch) {
  if (watch->scheduled) return;
  watch->scheduled = true;
  timers_->At(AfterMs(delay_ms_), [this, client, id] { Deliver(client, id); });
}

void FakeCoordinationServer::ScheduleAll() {
  for (const ClientPtr& client : clients_) {
    for (auto& [id, watch] : client->watches) Schedule(client, id, &watch);
  }
}

void FakeCoordinationServer::ProbeAll() {
  for (const ClientPtr& client : clients_) {
    timers_->At(AfterMs(0), [this, client] { Probe(client); });
  }
  ScheduleAll();
}

void FakeCoordinationServer::Put(const Change& change, Revision revision) {
  KeyValue& item = state_.items[change.range.key];
  if (item.created == 0) item.created = revision;
  item.key = change.range.key;
  item.value = change.value;
  item.modified = revision;
  item.lease = change.lease;
  state_.history.push_back({true, item});
}

bool FakeCoordinationServer::Erase(const std::function<bool(const KeyValue&)>& matches, Revision revision) {
  bool erased = false;
  for (auto it = state_.items.begin(); it != state_.items.end();) {
    if (!matches(it->second)) {
      ++it;
      continue;
    }
    KeyChange change;
    change.item.key = it->first;
    change.item.modified = revision;
    state_.history.push_back(std::move(change));
    it = state_.items.erase(it);
    erased = true;
  }
  return erased;
}

void FakeCoordinationServer::Remove(LeaseId lease) {
  if (state_.leases.erase(lease) == 0) return;
  if (!Erase([&](const KeyValue& item) { return item.lease == lease; }, state_.revision + 1)) return;
  ++state_.revision;
  ScheduleAll();
}

void FakeCoordinationServer::RenewAll() {
  for (auto& [id, lease] : state_.leases) {
    lease.ends_ns = AfterMs(lease.ttl_ms);
    timers_->At(lease.ends_ns, [this, id = id] { CheckLease(id); });
  }
}

FakeCoordinator::FakeCoordinator(FakeCoordinationServer* server)
    : server_(server), client_(std::make_shared<FakeCoordinationServer::Client>()) {
  server_->AddClient(client_);
}

void FakeCoordinator::List(KeyRange range, Revision at, Done<Listing> done) {
  if (absl::Status valid = ValidateRange(range); !valid.ok()) return done(std::move(valid));
  absl::Status started =
      server_->Start(client_, [server = server_, range = std::move(range), at, done](absl::Status status) {
        if (!status.ok()) return done(std::move(status));
        done(server->List(range, at));
      });
  if (!started.ok()) done(std::move(started));
}

void FakeCoordinator::Commit(Transaction transaction, Done<TransactionResult> done) {
  if (absl::Status valid = ValidateTransaction(transaction); !valid.ok()) return done(std::move(valid));
  absl::Status started = server_->Start(
      client_, [server = server_, transaction = std::move(transaction), done](absl::Status status) {
        if (!status.ok()) return done(std::move(status));
        done(server->Commit(transaction));
      });
  if (!started.ok()) done(std::move(started));
}

void FakeCoordinator::GrantLease(int64_t ttl_ms, LeaseListener listener, Done<Lease> done) {
  if (ttl_ms <= 0) return done(Error(ErrorCode::kInvalidRequest, "a lease lasts longer than that", "ttl_ms"));
  absl::Status started = server_->Start(client_, [server = server_, client = client_, ttl_ms,
                                                  listener = std::move(listener), done](absl::Status status) {
    if (!status.ok()) return done(std::move(status));
    done(server->Grant(client, ttl_ms, listener));
  });
  if (!started.ok()) done(std::move(started));
}

void FakeCoordinator::RevokeLease(LeaseId lease, DoneStatus done) {
  server_->ForgetLease(client_, lease);
  absl::Status started = server_->Start(client_, [server = server_, lease, done](absl::Status status) {
    if (status.ok()) server->EndLease(lease);
    done(std::move(status));
  });
  if (!started.ok()) done(std::move(started));
}

void FakeCoordinator::AbandonLease(LeaseId lease) { server_->ForgetLease(client_, lease); }

absl::StatusOr<WatchId> FakeCoordinator::Watch(KeyRange range, Revision from, WatchListener listener) {
  EPIC_RETURN_IF_ERROR(ValidateRange(range));
  if (from <= 0) return Error(ErrorCode::kInvalidRequest, "a watch begins at a revision above 0", "from");
  return server_->AddWatch(client_, {std::move(range), from, std::move(listener)});
}

void FakeCoordinator::Unwatch(WatchId watch) { server_->RemoveWatch(client_, watch); }

CoordinationHealth FakeCoordinator::health() const { return server_->HealthOf(client_); }

}  // namespace epic::testing
