#include "common/transport/path_chooser.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/status/ending.h"

namespace epic::transport {
namespace {

constexpr size_t kMaxWays = 8;
constexpr uint8_t kTriesPerWay = 2;

// A path, of the thread but for what is constant or atomic.
struct Way {
  explicit Way(const CooldownOptions& cooldown) : health(cooldown) {}
  std::unique_ptr<Path> path;  // constant
  Capabilities capabilities;   // constant
  PathHealth health;
  std::atomic<bool> up{true};  // health.up(), for every thread
  TimerId probe_timer = 0;
};

// One range of a fetch.
struct Want {
  bool ended = false;
  std::array<uint8_t, kMaxWays> tries = {};
  uint32_t damaged_on = 0;  // ways, by bits
  absl::Status why;         // it did not come so far: the first damage, or else the last reason
};

// Ranges of a fetch that travel together on one way.
struct Batch {
  size_t way = 0;
  FetchId inner = 0;
  std::vector<size_t> wants;
  std::vector<bool> ended;
  uint64_t granted_bytes = 0;  // of the budget, that it still has
  uint64_t begun = 0;          // event of the fetch
  uint64_t moved = 0;          // ranges that ended
  uint64_t moved_seen = 0;     // of these, when it was last looked after
  int64_t pause_ms = 0;
  TimerId timer = 0;
  bool given_up = false;
  uint64_t brought = 0;  // event of the fetch: the last range that came; 0: none did
  bool over = false;
  std::vector<std::byte> scratch;  // where it only confirms
};
using BatchPtr = std::shared_ptr<Batch>;

// One fetch. Of the thread, but for what is constant.
struct Call {
  FetchId id = 0;
  FetchRequest request;
  std::shared_ptr<FetchListener> listener;

  std::vector<Want> wants;   // Shape: [ranges]
  std::deque<size_t> queue;  // to be sent out
  std::set<BatchPtr> batches;
  size_t left = 0;  // ranges that have not ended
  uint64_t in_flight_bytes = 0;
  bool asking = false;  // for bytes of the budget
  TrafficBudget::Ticket ticket = 0;
  absl::Status error;                  // the first
  std::optional<absl::Status> ending;  // everything ends with it
  uint32_t not_on = 0;                 // ways that cannot bring this region, by bits
  uint64_t events = 0;
  uint64_t confirmed = 0;    // event: what came before was confirmed
  uint64_t unconfirmed = 0;  // event: what came until then was not, by its own batch; 0: there is none
  absl::Status unconfirmed_why;
  size_t confirms = 0;
  bool over = false;
  TimerId timer = 0;
};
using CallPtr = std::shared_ptr<Call>;

}  // namespace

class ChooserCore : public std::enable_shared_from_this<ChooserCore> {
 public:
  explicit ChooserCore(const ChooserOptions& options) : options_(options), rng_(options.seed) {}
  void Open(const std::vector<PathMaker>& makers);

  Capabilities capabilities() const;
  FetchId Fetch(FetchRequest request, std::shared_ptr<FetchListener> listener) ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel(FetchId id);
  void Probe(size_t way, int64_t deadline_steady_ns, std::function<void(const absl::Status&)> done);
  absl::StatusOr<std::shared_ptr<const HeldRegion>> Hold(const std::shared_ptr<const Region>& region,
                                                         int64_t deadline_steady_ns);
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class BatchListener;

  // Runs on the thread; false when that was stopped.
  bool Post(std::function<void(ChooserCore*)> step) {
    return options_.thread->Post([self = shared_from_this(), step = std::move(step)] { step(self.get()); });
  }
  // Later, on the thread, if the chooser is still there.
  TimerId PostAt(int64_t steady_ns, std::function<void(ChooserCore*)> step);
  int64_t InMs(int64_t ms) const { return options_.clock->SteadyNs() + ms * 1'000'000; }

  // --- ways
  void WayFailed(size_t way);
  void ProbeWay(size_t way);
  void WayAnswered(size_t way, const absl::Status& status);
  void SetUp(size_t way) { ways_[way]->up = ways_[way]->health.up(); }
  std::optional<size_t> Choose(const Call& call, const Want& want) const;
  std::optional<size_t> ChooseToConfirm(const Call& call) const;

  // --- fetches
  void Begin(const CallPtr& call);
  void Issue(const CallPtr& call);
  void Granted(const CallPtr& call, uint64_t bytes);
  uint64_t BytesOfNext(const Call& call) const;
  void SendNext(const CallPtr& call, uint64_t granted);
  void Send(const CallPtr& call, const BatchPtr& batch, std::vector<FetchRange> ranges);
  void SendConfirmation(const CallPtr& call, size_t way);
  void Retry(const CallPtr& call, size_t index, const absl::Status& status);
  void EndRange(const CallPtr& call, size_t want, const absl::Status& status,
                std::span<const uint32_t> crcs = {});
  void EndCall(const CallPtr& call, const absl::Status& status);
  void FinishIfOver(const CallPtr& call) ABSL_LOCKS_EXCLUDED(mu_);

  // --- batches
  void RangeEnded(const CallPtr& call, const BatchPtr& batch, size_t index, const absl::Status& status,
                  const std::vector<uint32_t>& crcs);
  void Brought(const CallPtr& call, const BatchPtr& batch, size_t want, const std::vector<uint32_t>& crcs);
  void NotBrought(const CallPtr& call, const BatchPtr& batch, size_t want, const absl::Status& status);
  void BatchEnded(const CallPtr& call, const BatchPtr& batch, const absl::Status& status);
  void GiveBack(const Call& call, Batch* batch, uint64_t bytes);
  void LookAfter(const CallPtr& call, const BatchPtr& batch);
  void Arm(const CallPtr& call, const BatchPtr& batch);
  void Answered(const CallPtr& call, const BatchPtr& batch, uint64_t moved, const absl::Status& status);

  std::vector<CallPtr> Calls() const ABSL_LOCKS_EXCLUDED(mu_);

  const ChooserOptions options_;
  std::vector<std::unique_ptr<Way>> ways_;  // constant after Open

  Rng rng_;  // of the thread

  mutable Mutex mu_;
  FetchId last_id_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::map<FetchId, CallPtr> calls_ ABSL_GUARDED_BY(mu_);
};

// Hears of a batch, and passes it on to the thread. The core stops its paths before it ends.
class ChooserCore::BatchListener final : public FetchListener {
 public:
  BatchListener(ChooserCore* core, CallPtr call, BatchPtr batch)
      : core_(core), call_(std::move(call)), batch_(std::move(batch)) {}
  void OnRange(size_t range, const absl::Status& status, std::span<const uint32_t> crcs) override {
    std::vector<uint32_t> copy(crcs.begin(), crcs.end());
    EPIC_CHECK(core_->Post([call = call_, batch = batch_, range, status, copy = std::move(copy)](
                               ChooserCore* core) { core->RangeEnded(call, batch, range, status, copy); }));
  }
  void OnDone(const absl::Status& status) override {
    EPIC_CHECK(core_->Post([call = call_, batch = batch_, status](ChooserCore* core) {
      core->BatchEnded(call, batch, status);
    }));
  }

 private:
  ChooserCore* const core_;
  const CallPtr call_;
  const BatchPtr batch_;
};

void ChooserCore::Open(const std::vector<PathMaker>& makers) {
  EPIC_CHECK(!makers.empty() && makers.size() <= kMaxWays);
  EPIC_CHECK(options_.timers != nullptr && options_.thread != nullptr && options_.budget != nullptr);
  for (size_t index = 0; index < makers.size(); ++index) {
    auto way = std::make_unique<Way>(options_.cooldown);
    way->path = makers[index]([weak = weak_from_this(), index](const absl::Status& why) {
      const auto self = weak.lock();
      if (self == nullptr) return;
      (void)self->Post([index, why](ChooserCore* core) {
        core->WayFailed(index);
        if (core->options_.peer_down) core->options_.peer_down(why);
      });
    });
    way->capabilities = way->path->capabilities();
    ways_.push_back(std::move(way));
  }
}

TimerId ChooserCore::PostAt(int64_t steady_ns, std::function<void(ChooserCore*)> step) {
  return options_.timers->At(steady_ns, [weak = weak_from_this(), step = std::move(step)] {
    if (const auto self = weak.lock(); self != nullptr) (void)self->Post(step);
  });
}

Capabilities ChooserCore::capabilities() const {
  Capabilities capabilities = ways_.front()->capabilities;
  for (const auto& way : ways_) {
    if (!way->up) continue;
    capabilities = way->capabilities;
    break;
  }
  for (const auto& way : ways_) {
    capabilities.zero_copy = capabilities.zero_copy || way->capabilities.zero_copy;
    capabilities.cuda = capabilities.cuda || way->capabilities.cuda;
    capabilities.max_piece_bytes = std::max(capabilities.max_piece_bytes, way->capabilities.max_piece_bytes);
  }
  return capabilities;
}

FetchId ChooserCore::Fetch(FetchRequest request, std::shared_ptr<FetchListener> listener) {
  auto call = std::make_shared<Call>();
  call->request = std::move(request);
  call->listener = std::move(listener);
  call->left = call->request.ranges.size();
  call->wants.resize(call->left);
  bool posted = false;
  {
    MutexLock lock(&mu_);
    call->id = ++last_id_;
    if (calls_.size() >= options_.fetches_max) {
      call->error = PathDownStatus("too many fetches at a time; try again");
    }
    posted = !stopping_ && Post([call](ChooserCore* core) { core->Begin(call); });
    if (posted) calls_[call->id] = call;
  }
  if (!posted) EndCall(call, PathDownStatus("the path was stopped"));
  return call->id;
}

void ChooserCore::Cancel(FetchId id) {
  CallPtr call;
  {
    MutexLock lock(&mu_);
    const auto found = calls_.find(id);
    if (found == calls_.end()) return;
    call = found->second;
  }
  (void)Post([call](ChooserCore* core) { core->EndCall(call, CancelledStatus()); });
}

void ChooserCore::Probe(size_t way, int64_t deadline_steady_ns,
                        std::function<void(const absl::Status&)> done) {
  ways_[way]->path->Probe(deadline_steady_ns,
                          [this, way, deadline_steady_ns, done](const absl::Status& status) {
                            if (status.ok() || way + 1 == ways_.size()) return done(status);
                            Probe(way + 1, deadline_steady_ns, done);
                          });
}

absl::StatusOr<std::shared_ptr<const HeldRegion>> ChooserCore::Hold(
    const std::shared_ptr<const Region>& region, int64_t deadline_steady_ns) {
  absl::Status status = NotOnThisPathStatus("no path to this peer gives its memory now; fetch the region");
  for (size_t way = 0; way < ways_.size(); ++way) {
    if (!ways_[way]->capabilities.zero_copy || !ways_[way]->up) continue;
    auto held = ways_[way]->path->Hold(region, deadline_steady_ns);
    if (held.ok()) return held;
    status = held.status();
    if (EndOf(status) == FetchEnd::kPathDown) {
      (void)Post([way](ChooserCore* core) { core->WayFailed(way); });
    }
  }
  return status;
}

void ChooserCore::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  const auto step_and_wait = [this](std::function<void(ChooserCore*)> step) {
    auto ending = std::make_shared<Ending>();
    const bool posted = Post([ending, step = std::move(step)](ChooserCore* core) {
      step(core);
      ending->Set(absl::OkStatus());
    });
    if (posted) (void)ending->Wait();
  };
  step_and_wait([](ChooserCore* core) {
    for (const CallPtr& call : core->Calls()) core->EndCall(call, CancelledStatus());
    for (const auto& way : core->ways_) core->options_.timers->Cancel(std::exchange(way->probe_timer, 0));
  });
  for (const auto& way : ways_) way->path->Stop();
  // What the paths said is posted before this.
  step_and_wait([](ChooserCore* core) { EPIC_CHECK(core->Calls().empty()); });
}

std::vector<CallPtr> ChooserCore::Calls() const {
  MutexLock lock(&mu_);
  std::vector<CallPtr> calls;
  for (const auto& [id, call] : calls_) calls.push_back(call);
  return calls;
}

// --- ways

void ChooserCore::WayFailed(size_t way) {
  const auto probe_at = ways_[way]->health.Failed(options_.clock->SteadyNs(), &rng_);
  SetUp(way);
  if (!probe_at.has_value()) return;
  if (options_.metrics != nullptr) options_.metrics->CooledDown(ways_[way]->capabilities.kind);
  ways_[way]->probe_timer = PostAt(*probe_at, [way](ChooserCore* core) { core->ProbeWay(way); });
}

void ChooserCore::ProbeWay(size_t way) {
  {
    MutexLock lock(&mu_);
    if (stopping_) return;
  }
  if (ways_[way]->health.up()) return;
  ways_[way]->path->Probe(
      InMs(options_.probe_ms), [weak = weak_from_this(), way](const absl::Status& status) {
        if (const auto self = weak.lock(); self != nullptr) {
          (void)self->Post([way, status](ChooserCore* core) { core->WayAnswered(way, status); });
        }
      });
}

void ChooserCore::WayAnswered(size_t way, const absl::Status& status) {
  PathHealth& health = ways_[way]->health;
  if (health.up()) return;
  if (status.ok()) {
    health.ProbeSucceeded();
    return SetUp(way);
  }
  const int64_t again_ns = health.ProbeFailed(options_.clock->SteadyNs(), &rng_);
  ways_[way]->probe_timer = PostAt(again_ns, [way](ChooserCore* core) { core->ProbeWay(way); });
}

// First ways that are up, then those that cool down, then each once more.
std::optional<size_t> ChooserCore::Choose(const Call& call, const Want& want) const {
  for (uint8_t tries = 0; tries < kTriesPerWay; ++tries) {
    for (const bool up : {true, false}) {
      for (size_t way = 0; way < ways_.size(); ++way) {
        const bool may = (call.not_on & (1u << way)) == 0 && want.tries[way] <= tries;
        if (may && ways_[way]->health.up() == up) return way;
      }
    }
  }
  return std::nullopt;
}

std::optional<size_t> ChooserCore::ChooseToConfirm(const Call& call) const {
  std::vector<size_t> order;
  for (const bool up : {true, false}) {
    for (size_t way = 0; way < ways_.size(); ++way) {
      if ((call.not_on & (1u << way)) == 0 && ways_[way]->health.up() == up) order.push_back(way);
    }
  }
  // A way that just failed cools down, so that it comes last.
  if (order.empty() || call.confirms >= kTriesPerWay * ways_.size()) return std::nullopt;
  return order[call.confirms % order.size()];
}

// --- fetches

void ChooserCore::Begin(const CallPtr& call) {
  if (call->over) return;
  if (!call->error.ok()) return EndCall(call, call->error);
  const FetchRequest& request = call->request;
  if (absl::Status status = ValidateRequest(request); !status.ok()) return EndCall(call, status);
  for (size_t way = 0; way < ways_.size(); ++way) {
    if (request.memory == MemoryKind::kCuda && !ways_[way]->capabilities.cuda) call->not_on |= 1u << way;
  }
  for (size_t want = 0; want < call->wants.size(); ++want) {
    if (request.ranges[want].to.empty()) {
      EndRange(call, want, absl::OkStatus());
    } else {
      call->queue.push_back(want);
    }
  }
  if (!call->queue.empty()) {
    if (request.deadline_steady_ns <= options_.clock->SteadyNs()) return EndCall(call, DeadlineStatus());
    call->timer = PostAt(request.deadline_steady_ns, [weak = std::weak_ptr(call)](ChooserCore* core) {
      if (const CallPtr late = weak.lock(); late != nullptr) core->EndCall(late, DeadlineStatus());
    });
    Issue(call);
  }
  FinishIfOver(call);
}

uint64_t ChooserCore::BytesOfNext(const Call& call) const {
  uint64_t bytes = 0;
  for (const size_t want : call.queue) {
    const uint64_t next = call.request.ranges[want].to.size();
    if (bytes != 0 && bytes + next > options_.batch_bytes) break;
    bytes += next;
  }
  return bytes;
}

// Asks for the bytes of the next batch, if there may be one.
void ChooserCore::Issue(const CallPtr& call) {
  if (call->over || call->ending.has_value() || call->asking || call->queue.empty()) return;
  const uint64_t bytes = BytesOfNext(*call);
  if (call->in_flight_bytes != 0 && call->in_flight_bytes + bytes > options_.prefetch_bytes) return;
  call->asking = true;
  call->ticket = options_.budget->Ask(
      call->request.traffic, bytes, [weak = weak_from_this(), call, bytes, budget = options_.budget] {
        const auto self = weak.lock();
        const bool posted =
            self != nullptr && self->Post([call, bytes](ChooserCore* core) { core->Granted(call, bytes); });
        if (!posted) budget->Return(call->request.traffic, bytes);
      });
}

void ChooserCore::Granted(const CallPtr& call, uint64_t bytes) {
  call->asking = false;
  if (call->over || call->ending.has_value()) {
    options_.budget->Return(call->request.traffic, bytes);
    return;
  }
  SendNext(call, bytes);
  Issue(call);
  FinishIfOver(call);
}

void ChooserCore::SendNext(const CallPtr& call, uint64_t granted) {
  auto batch = std::make_shared<Batch>();
  std::vector<FetchRange> ranges;
  while (!call->queue.empty()) {
    const size_t next = call->queue.front();
    Want& want = call->wants[next];
    const FetchRange& range = call->request.ranges[next];
    const std::optional<size_t> way = Choose(*call, want);
    if (!way.has_value()) {
      call->queue.pop_front();
      EndRange(call, next, want.why.ok() ? NotOnThisPathStatus("no path brings this region") : want.why);
      continue;
    }
    if (batch->granted_bytes + range.to.size() > granted) break;
    if (!batch->wants.empty() && *way != batch->way) break;
    call->queue.pop_front();
    ++want.tries[*way];
    batch->way = *way;
    batch->granted_bytes += range.to.size();
    batch->wants.push_back(next);
    ranges.push_back(range);
  }
  if (granted > batch->granted_bytes) {
    options_.budget->Return(call->request.traffic, granted - batch->granted_bytes);
  }
  if (batch->wants.empty()) return;
  call->in_flight_bytes += batch->granted_bytes;
  Send(call, batch, std::move(ranges));
}

void ChooserCore::Send(const CallPtr& call, const BatchPtr& batch, std::vector<FetchRange> ranges) {
  batch->ended.resize(ranges.size());
  batch->begun = ++call->events;
  batch->pause_ms = options_.stall_ms;
  call->batches.insert(batch);
  FetchRequest request = {.region = call->request.region,
                          .ranges = std::move(ranges),
                          .memory = call->request.memory,
                          .traffic = call->request.traffic,
                          .deadline_steady_ns = call->request.deadline_steady_ns};
  auto listener = std::make_shared<BatchListener>(this, call, batch);
  batch->inner = ways_[batch->way]->path->Fetch(std::move(request), std::move(listener));
  Arm(call, batch);
}

// Reads the smallest range again, for what the peer says after it.
void ChooserCore::SendConfirmation(const CallPtr& call, size_t way) {
  const std::vector<FetchRange>& ranges = call->request.ranges;
  const FetchRange* smallest = nullptr;
  for (const FetchRange& range : ranges) {
    if (range.to.empty()) continue;
    if (smallest == nullptr || range.to.size() < smallest->to.size()) smallest = &range;
  }
  EPIC_CHECK(smallest != nullptr);
  ++call->confirms;
  auto batch = std::make_shared<Batch>();
  batch->way = way;
  batch->scratch.resize(smallest->to.size());
  Send(call, batch, {{.layer = smallest->layer, .offset = smallest->offset, .to = batch->scratch}});
}

void ChooserCore::Retry(const CallPtr& call, size_t index, const absl::Status& status) {
  if (call->ending.has_value()) return EndRange(call, index, *call->ending);
  Want& want = call->wants[index];
  if (EndOf(want.why) != FetchEnd::kDamaged) want.why = status;
  if (!Choose(*call, want).has_value()) return EndRange(call, index, want.why);
  call->queue.push_front(index);
}

void ChooserCore::EndRange(const CallPtr& call, size_t want, const absl::Status& status,
                           std::span<const uint32_t> crcs) {
  if (call->wants[want].ended) return;
  call->wants[want].ended = true;
  --call->left;
  if (call->error.ok()) call->error = status;
  call->listener->OnRange(want, status, crcs);
}

// Ranges that are not under way end now, the others when their paths have ended them.
void ChooserCore::EndCall(const CallPtr& call, const absl::Status& status) {
  if (call->over || call->ending.has_value()) return;
  call->ending = status;
  if (call->asking && options_.budget->Withdraw(call->ticket)) call->asking = false;
  call->queue.clear();
  std::vector<bool> under_way(call->wants.size());
  for (const BatchPtr& batch : call->batches) {
    for (size_t index = 0; index < batch->wants.size(); ++index) {
      if (!batch->ended[index]) under_way[batch->wants[index]] = true;
    }
    ways_[batch->way]->path->Cancel(batch->inner);
  }
  for (size_t want = 0; want < call->wants.size(); ++want) {
    if (!under_way[want]) EndRange(call, want, status);
  }
  FinishIfOver(call);
}

void ChooserCore::FinishIfOver(const CallPtr& call) {
  if (call->over || call->left > 0 || !call->batches.empty()) return;
  if (call->ending.has_value()) {
    call->error = *call->ending;
  } else if (call->error.ok() && call->unconfirmed > call->confirmed) {
    if (const auto way = ChooseToConfirm(*call); way.has_value()) return SendConfirmation(call, *way);
    call->error = call->unconfirmed_why;
  }
  call->over = true;
  if (call->timer != 0) options_.timers->Cancel(call->timer);
  {
    MutexLock lock(&mu_);
    calls_.erase(call->id);
  }
  call->listener->OnDone(call->error);
}

// --- batches

void ChooserCore::GiveBack(const Call& call, Batch* batch, uint64_t bytes) {
  bytes = std::min(bytes, batch->granted_bytes);
  batch->granted_bytes -= bytes;
  if (bytes > 0) options_.budget->Return(call.request.traffic, bytes);
}

void ChooserCore::RangeEnded(const CallPtr& call, const BatchPtr& batch, size_t index,
                             const absl::Status& status, const std::vector<uint32_t>& crcs) {
  ++batch->moved;
  batch->ended[index] = true;
  if (batch->wants.empty()) return;  // it only confirms
  const size_t want = batch->wants[index];
  const uint64_t bytes = call->request.ranges[want].to.size();
  call->in_flight_bytes -= bytes;
  GiveBack(*call, batch.get(), bytes);
  if (status.ok()) {
    Brought(call, batch, want, crcs);
  } else {
    NotBrought(call, batch, want, status);
  }
  Issue(call);
}

void ChooserCore::Brought(const CallPtr& call, const BatchPtr& batch, size_t want,
                          const std::vector<uint32_t>& crcs) {
  batch->brought = ++call->events;
  const Way& way = *ways_[batch->way];
  if (options_.metrics != nullptr) {
    options_.metrics->Brought(way.capabilities.kind, call->request.traffic,
                              call->request.ranges[want].to.size());
  }
  // Now it is known whose fault it was.
  for (size_t other = 0; other < ways_.size(); ++other) {
    if ((call->wants[want].damaged_on & (1u << other)) != 0) WayFailed(other);
  }
  EndRange(call, want, absl::OkStatus(), crcs);
}

void ChooserCore::NotBrought(const CallPtr& call, const BatchPtr& batch, size_t want,
                             const absl::Status& status) {
  const FetchEnd end = EndOf(status);
  if (options_.metrics != nullptr && !call->ending.has_value()) {
    options_.metrics->Failed(ways_[batch->way]->capabilities.kind, end);
  }
  switch (end) {
    case FetchEnd::kLeaseEnded:
      EndRange(call, want, call->ending.value_or(status));
      return EndCall(call, status);
    case FetchEnd::kDamaged:
      call->wants[want].damaged_on |= 1u << batch->way;
      return Retry(call, want, status);
    case FetchEnd::kNotOnThisPath:
      call->not_on |= 1u << batch->way;
      return Retry(call, want, status);
    case FetchEnd::kPathDown:
      WayFailed(batch->way);
      return Retry(call, want, status);
    case FetchEnd::kCancelled:  // not by our caller: the batch was given up
      return Retry(call, want, PathDownStatus("the peer does not answer"));
    default:
      return EndRange(call, want, call->ending.value_or(status));
  }
}

void ChooserCore::BatchEnded(const CallPtr& call, const BatchPtr& batch, const absl::Status& status) {
  batch->over = true;
  if (batch->timer != 0) options_.timers->Cancel(batch->timer);
  GiveBack(*call, batch.get(), batch->granted_bytes);
  call->batches.erase(batch);
  if (status.ok()) {
    ways_[batch->way]->health.Succeeded();
    SetUp(batch->way);
    call->confirmed = std::max(call->confirmed, batch->begun);
  } else if (EndOf(status) == FetchEnd::kLeaseEnded) {
    EndCall(call, status);
  } else {
    if (EndOf(status) == FetchEnd::kPathDown) WayFailed(batch->way);
    if (EndOf(status) == FetchEnd::kNotOnThisPath) call->not_on |= 1u << batch->way;
    if (batch->brought > call->unconfirmed) {
      call->unconfirmed = batch->brought;
      call->unconfirmed_why = status;
    }
  }
  Issue(call);
  FinishIfOver(call);
}

void ChooserCore::Arm(const CallPtr& call, const BatchPtr& batch) {
  batch->timer = PostAt(InMs(batch->pause_ms), [weak_call = std::weak_ptr(call),
                                                weak_batch = std::weak_ptr(batch)](ChooserCore* core) {
    const CallPtr late_call = weak_call.lock();
    const BatchPtr late = weak_batch.lock();
    if (late_call != nullptr && late != nullptr) core->LookAfter(late_call, late);
  });
}

void ChooserCore::LookAfter(const CallPtr& call, const BatchPtr& batch) {
  if (batch->over || batch->given_up) return;
  if (batch->moved != batch->moved_seen) {
    batch->moved_seen = batch->moved;
    batch->pause_ms = options_.stall_ms;
    return Arm(call, batch);
  }
  // What stands still takes nothing of the link.
  GiveBack(*call, batch.get(), batch->granted_bytes);
  const auto answer = [weak = weak_from_this(), call, batch,
                       moved = batch->moved](const absl::Status& status) {
    if (const auto self = weak.lock(); self != nullptr) {
      (void)self->Post(
          [call, batch, moved, status](ChooserCore* core) { core->Answered(call, batch, moved, status); });
    }
  };
  ways_[batch->way]->path->Probe(InMs(options_.probe_ms), answer);
}

void ChooserCore::Answered(const CallPtr& call, const BatchPtr& batch, uint64_t moved,
                           const absl::Status& status) {
  if (batch->over) return;
  if (status.ok() || batch->moved != moved) {
    batch->pause_ms = std::min(2 * batch->pause_ms, options_.stall_max_ms);
    return Arm(call, batch);
  }
  WayFailed(batch->way);
  batch->given_up = true;
  ways_[batch->way]->path->Cancel(batch->inner);
}

namespace {

class PathChooser final : public Path {
 public:
  explicit PathChooser(std::shared_ptr<ChooserCore> core) : core_(std::move(core)) {}
  ~PathChooser() override { core_->Stop(); }
  Capabilities capabilities() const override { return core_->capabilities(); }
  FetchId Fetch(FetchRequest request, std::shared_ptr<FetchListener> listener) override {
    return core_->Fetch(std::move(request), std::move(listener));
  }
  void Cancel(FetchId id) override { core_->Cancel(id); }
  void Probe(int64_t deadline_steady_ns, std::function<void(const absl::Status&)> done) override {
    core_->Probe(0, deadline_steady_ns, std::move(done));
  }
  absl::StatusOr<std::shared_ptr<const HeldRegion>> Hold(std::shared_ptr<const Region> region,
                                                         int64_t deadline_steady_ns) override {
    return core_->Hold(region, deadline_steady_ns);
  }
  void Stop() override { core_->Stop(); }

 private:
  const std::shared_ptr<ChooserCore> core_;
};

}  // namespace

std::unique_ptr<Path> MakePathChooser(const std::vector<PathMaker>& makers, const ChooserOptions& options) {
  auto core = std::make_shared<ChooserCore>(options);
  core->Open(makers);
  return std::make_unique<PathChooser>(std::move(core));
}

}  // namespace epic::transport
