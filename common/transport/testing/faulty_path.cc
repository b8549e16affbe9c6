#include "common/transport/testing/faulty_path.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/status/ending.h"
#include "common/storage/object_codec.h"
#include "common/transport/progress_thread.h"
#include "common/transport/range_check.h"

namespace epic::transport {
namespace {

// One fetch. Of the progress thread, but for what is constant.
struct Flight {
  FetchId id = 0;
  FetchRequest request;
  std::shared_ptr<FetchListener> listener;

  FetchId inner = 0;        // 0: not begun
  std::vector<bool> back;   // the inner path has ended it
  std::vector<bool> ended;  // we have
  std::vector<std::vector<uint32_t>> crcs;
  std::optional<size_t> held;  // for reordering
  std::optional<absl::Status> inner_done;
  std::optional<absl::Status> instead;  // of what the inner path says from now on
  absl::Status error;
  bool over = false;
  bool dies = false;
  TimerId timer = 0;
};
using FlightPtr = std::shared_ptr<Flight>;

}  // namespace

class FaultyCore : public std::enable_shared_from_this<FaultyCore> {
 public:
  FaultyCore(std::unique_ptr<Path> path, const PathFaults& faults, uint64_t seed, const Clock* clock,
             Timers* timers, PeerDownFn peer_down)
      : path_(std::move(path)),
        faults_(faults),
        clock_(clock),
        timers_(timers),
        peer_down_(std::move(peer_down)),
        rng_(seed) {}

  Path* path() const { return path_.get(); }

  FetchId Fetch(FetchRequest request, std::shared_ptr<FetchListener> listener) ABSL_LOCKS_EXCLUDED(mu_) {
    auto flight = std::make_shared<Flight>();
    flight->request = std::move(request);
    flight->listener = std::move(listener);
    const size_t ranges = flight->request.ranges.size();
    flight->back.resize(ranges);
    flight->ended.resize(ranges);
    flight->crcs.resize(ranges);
    bool posted = false;
    {
      MutexLock lock(&mu_);
      flight->id = ++last_id_;
      posted = !stopping_ && thread_.Post([self = shared_from_this(), flight] { self->Begin(flight); });
      if (posted) flights_[flight->id] = flight;
    }
    if (!posted) EndUnstarted(flight, PathDownStatus("the path was stopped"));
    return flight->id;
  }
  void Cancel(FetchId id) {
    (void)thread_.Post([self = shared_from_this(), id] {
      if (const FlightPtr flight = self->Find(id); flight != nullptr) {
        self->EndEarly(flight, CancelledStatus());
      }
    });
  }
  void Probe(int64_t deadline_steady_ns, std::function<void(const absl::Status&)> done) {
    const bool posted = thread_.Post([self = shared_from_this(), deadline_steady_ns, done] {
      if (self->dead_) return done(PathDownStatus("the peer is dead"));
      self->path_->Probe(deadline_steady_ns, done);
    });
    if (!posted) done(PathDownStatus("the path was stopped"));
  }
  void Stop() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
    }
    // Every Begin comes before this step, so that the inner path is stopped after its last fetch.
    auto begun = std::make_shared<Ending>();
    if (thread_.Post([begun] { begun->Set(absl::OkStatus()); })) begun->Wait().IgnoreError();
    path_->Stop();
    (void)thread_.Post([self = shared_from_this()] {
      for (const FlightPtr& flight : self->All()) self->EndEarly(flight, CancelledStatus());
    });
    thread_.Stop();
  }
  void Kill() {
    (void)thread_.Post([self = shared_from_this()] { self->Die(); });
  }
  void Revive(bool another_life) {
    (void)thread_.Post([self = shared_from_this(), another_life] { self->ComeBack(another_life); });
  }

 private:
  // Hears of the inner fetch, and passes it on to the thread.
  class Inner final : public FetchListener {
   public:
    Inner(std::shared_ptr<FaultyCore> core, FlightPtr flight)
        : core_(std::move(core)), flight_(std::move(flight)) {}
    void OnRange(size_t range, const absl::Status& status, std::span<const uint32_t> crcs) override {
      std::vector<uint32_t> copy(crcs.begin(), crcs.end());
      EPIC_CHECK(core_->thread_.Post([core = core_, flight = flight_, range, status, copy] {
        core->RangeIsBack(flight, range, status, copy);
      }));
    }
    void OnDone(const absl::Status& status) override {
      EPIC_CHECK(core_->thread_.Post([core = core_, flight = flight_, status] {
        flight->inner_done = status;
        core->LetGo(flight);
      }));
    }

   private:
    const std::shared_ptr<FaultyCore> core_;
    const FlightPtr flight_;
  };

  std::vector<FlightPtr> All() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    std::vector<FlightPtr> all;
    for (const auto& [id, flight] : flights_) all.push_back(flight);
    return all;
  }
  FlightPtr Find(FetchId id) const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    const auto found = flights_.find(id);
    return found == flights_.end() ? nullptr : found->second;
  }

  bool Draw(int percent) { return percent > 0 && rng_.Below(100) < static_cast<uint64_t>(percent); }
  void AtSteady(int64_t steady_ns, std::function<void(FaultyCore*)> what, TimerId* timer = nullptr) {
    const TimerId id = timers_->At(steady_ns, [weak = weak_from_this(), what] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      (void)self->thread_.Post([self, what] { what(self.get()); });
    });
    if (timer != nullptr) *timer = id;
  }
  void AfterMs(int64_t ms, std::function<void(FaultyCore*)> what) {
    AtSteady(clock_->SteadyNs() + ms * 1'000'000, std::move(what));
  }

  void Begin(const FlightPtr& flight) {
    if (flight->over) return;
    if (dead_) return EndUnstarted(flight, PathDownStatus("the peer is dead"));
    if (flight->request.region != nullptr) {
      const uint64_t incarnation = flight->request.region->lease.incarnation;
      if (stale_.contains(incarnation)) return EndUnstarted(flight, LeaseEndedStatus());
      seen_.insert(incarnation);
    }
    flight->dies = Draw(faults_.die);
    if (MovesBytes(flight->request)) {
      AtSteady(
          flight->request.deadline_steady_ns,
          [flight](FaultyCore* core) { core->EndEarly(flight, DeadlineStatus()); }, &flight->timer);
    }
    flight->inner = path_->Fetch(flight->request, std::make_shared<Inner>(shared_from_this(), flight));
  }

  void RangeIsBack(const FlightPtr& flight, size_t range, const absl::Status& status,
                   const std::vector<uint32_t>& crcs) {
    flight->back[range] = true;
    flight->crcs[range] = crcs;
    if (flight->dies) {
      flight->dies = false;
      Die();
    }
    if (flight->instead.has_value()) {
      Tell(flight, range, status.ok() ? status : *flight->instead);
    } else if (!status.ok()) {
      Tell(flight, range, status);
    } else {
      TellWithFaults(flight, range);
    }
    FinishIfOver(flight);
  }

  void TellWithFaults(const FlightPtr& flight, size_t range) {
    const FetchRange& asked = flight->request.ranges[range];
    if (!asked.to.empty() && Draw(faults_.drop)) return;
    if (Draw(faults_.delay)) {
      const auto ms = static_cast<int64_t>(rng_.Below(static_cast<uint64_t>(faults_.delay_max_ms) + 1));
      return AfterMs(ms, [flight, range](FaultyCore* core) {
        core->Tell(flight, range, absl::OkStatus());
        core->FinishIfOver(flight);
      });
    }
    if (!asked.to.empty() && Draw(faults_.corrupt)) {
      asked.to[rng_.Below(asked.to.size())] ^= std::byte{1} << rng_.Below(8);
      return Tell(flight, range, CheckAnew(*flight, range));
    }
    if (!asked.to.empty() && Draw(faults_.truncate)) {
      const MutableByteSpan tail = asked.to.subspan(rng_.Below(asked.to.size()));
      for (std::byte& byte : tail) byte = ~byte;
      return Tell(flight, range, CheckAnew(*flight, range));
    }
    if (!flight->held.has_value() && !flight->inner_done.has_value() && Draw(faults_.reorder)) {
      flight->held = range;
      return AfterMs(faults_.delay_max_ms, [flight](FaultyCore* core) { core->LetGo(flight); });
    }
    Tell(flight, range, absl::OkStatus());
    if (flight->held.has_value()) Tell(flight, *std::exchange(flight->held, {}), absl::OkStatus());
  }

  // What was held back.
  void LetGo(const FlightPtr& flight) {
    if (flight->held.has_value()) Tell(flight, *std::exchange(flight->held, {}), absl::OkStatus());
    FinishIfOver(flight);
  }

  static absl::Status CheckAnew(const Flight& flight, size_t range) {
    return CheckRange(*flight.request.region, flight.request.ranges[range], flight.crcs[range]);
  }

  void Tell(const FlightPtr& flight, size_t range, const absl::Status& status) {
    if (flight->ended[range]) return;
    flight->ended[range] = true;
    if (flight->error.ok()) flight->error = status;
    const auto crcs =
        status.ok() ? std::span<const uint32_t>(flight->crcs[range]) : std::span<const uint32_t>();
    flight->listener->OnRange(range, status, crcs);
  }

  // Ranges that the inner path has given back end now, the others when it does.
  void EndEarly(const FlightPtr& flight, const absl::Status& status) {
    if (flight->over) return;
    if (!flight->instead.has_value()) flight->instead = status;
    path_->Cancel(flight->inner);
    for (size_t range = 0; range < flight->back.size(); ++range) {
      if (flight->back[range]) Tell(flight, range, *flight->instead);
    }
    FinishIfOver(flight);
  }

  void EndUnstarted(const FlightPtr& flight, const absl::Status& status) {
    for (size_t range = 0; range < flight->ended.size(); ++range) Tell(flight, range, status);
    flight->inner_done = status;
    FinishIfOver(flight);
  }

  void FinishIfOver(const FlightPtr& flight) {
    if (flight->over || !flight->inner_done.has_value()) return;
    if (!std::all_of(flight->ended.begin(), flight->ended.end(), [](bool ended) { return ended; })) return;
    flight->over = true;
    if (flight->timer != 0) timers_->Cancel(flight->timer);
    {
      MutexLock lock(&mu_);
      flights_.erase(flight->id);
    }
    flight->listener->OnDone(flight->error.ok() ? *flight->inner_done : flight->error);
  }

  void Die() {
    if (dead_) return;
    dead_ = true;
    const absl::Status why = PathDownStatus("the peer is dead");
    for (const FlightPtr& flight : All()) {
      if (flight->inner != 0) EndEarly(flight, why);
    }
    if (peer_down_) peer_down_(why);
    if (faults_.dead_ms > 0) {
      AfterMs(faults_.dead_ms,
              [another = faults_.another_life](FaultyCore* core) { core->ComeBack(another); });
    }
  }
  void ComeBack(bool another_life) {
    dead_ = false;
    if (another_life) stale_.insert(seen_.begin(), seen_.end());
  }

  const std::unique_ptr<Path> path_;
  const PathFaults faults_;
  const Clock* const clock_;
  Timers* const timers_;
  const PeerDownFn peer_down_;

  // Of the thread.
  Rng rng_;
  bool dead_ = false;
  std::set<uint64_t> seen_;   // incarnations of leases
  std::set<uint64_t> stale_;  // of these, those of lives that are over

  mutable Mutex mu_;
  FetchId last_id_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::map<FetchId, FlightPtr> flights_ ABSL_GUARDED_BY(mu_);

  ProgressThread thread_;  // last: uses all of the above
};

FaultyPath::FaultyPath(std::unique_ptr<Path> path, const PathFaults& faults, uint64_t seed,
                       const Clock* clock, Timers* timers, PeerDownFn peer_down)
    : core_(
          std::make_shared<FaultyCore>(std::move(path), faults, seed, clock, timers, std::move(peer_down))) {}

FaultyPath::~FaultyPath() { Stop(); }
Capabilities FaultyPath::capabilities() const { return core_->path()->capabilities(); }
FetchId FaultyPath::Fetch(FetchRequest request, std::shared_ptr<FetchListener> listener) {
  return core_->Fetch(std::move(request), std::move(listener));
}
void FaultyPath::Cancel(FetchId id) { core_->Cancel(id); }
void FaultyPath::Probe(int64_t deadline_steady_ns, std::function<void(const absl::Status&)> done) {
  core_->Probe(deadline_steady_ns, std::move(done));
}
void FaultyPath::Stop() { core_->Stop(); }
void FaultyPath::Kill() { core_->Kill(); }
void FaultyPath::Revive(bool another_life) { core_->Revive(another_life); }

}  // namespace epic::transport
