#include "common/transport/traffic_budget.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/check.h"
#include "common/base/mutex.h"

namespace epic::transport {
namespace {

constexpr double kNsPerS = 1e9;

// Fills with time up to its burst; may be overdrawn by one piece, which is then waited for.
class Bucket {
 public:
  Bucket(uint64_t bytes_per_s, uint64_t burst_bytes)
      : rate_(static_cast<double>(bytes_per_s) / kNsPerS),
        burst_(static_cast<double>(burst_bytes)),
        level_(burst_) {}

  bool limited() const { return rate_ > 0; }
  bool Has(uint64_t reserve) const { return !limited() || level_ > static_cast<double>(reserve); }
  void Take(uint64_t bytes) {
    if (limited()) level_ -= static_cast<double>(bytes);
  }
  void Fill(int64_t now_ns) {
    if (limited() && last_ns_ != 0) {
      level_ = std::min(burst_, level_ + rate_ * static_cast<double>(now_ns - last_ns_));
    }
    last_ns_ = now_ns;
  }
  // When it will have more than `reserve`, if nobody takes. REQUIRES: it has not.
  int64_t TimeOf(uint64_t reserve) const {
    return last_ns_ + 1 + static_cast<int64_t>((static_cast<double>(reserve) + 1 - level_) / rate_);
  }

 private:
  const double rate_;  // bytes per ns
  const double burst_;
  double level_;
  int64_t last_ns_ = 0;
};

}  // namespace

struct TrafficBudget::State : std::enable_shared_from_this<State> {
  State(const TrafficLimits& limits, const Clock* clock, Timers* timers)
      : limits(limits), clock(clock), timers(timers), link(limits.bytes_per_s, limits.burst_bytes) {
    for (const ClassLimits& of_class : limits.classes) {
      EPIC_CHECK(limits.bytes_per_s == 0 || of_class.reserve_bytes < limits.burst_bytes);
      own.emplace_back(of_class.bytes_per_s, limits.burst_bytes);
    }
  }

  struct Asked {
    Ticket ticket = 0;
    uint64_t bytes = 0;
    std::function<void()> granted;
  };

  // Grants what may be granted, and calls them without the lock.
  void Pump() ABSL_LOCKS_EXCLUDED(mu) {
    std::vector<std::function<void()>> granted;
    {
      MutexLock lock(&mu);
      const int64_t now_ns = clock->SteadyNs();
      link.Fill(now_ns);
      for (Bucket& bucket : own) bucket.Fill(now_ns);
      int64_t again_ns = 0;
      for (size_t traffic = 0; traffic < kTrafficClasses; ++traffic) {
        if (!GrantClass(traffic, &granted, &again_ns)) break;
      }
      Wake(again_ns);
    }
    for (const auto& callback : granted) callback();
  }

  // False when those below must wait, too.
  bool GrantClass(size_t traffic, std::vector<std::function<void()>>* granted, int64_t* again_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const ClassLimits& of_class = limits.classes[traffic];
    std::deque<Asked>& queue = asked[traffic];
    const auto note = [again_ns](int64_t at) { *again_ns = *again_ns == 0 ? at : std::min(*again_ns, at); };
    while (!queue.empty()) {
      const uint64_t bytes = queue.front().bytes;
      if (total != 0 && total + bytes > limits.in_flight_bytes) return false;
      if (in_flight[traffic] != 0 && in_flight[traffic] + bytes > of_class.in_flight_bytes) return true;
      if (!own[traffic].Has(0)) {
        note(own[traffic].TimeOf(0));
        return true;
      }
      if (!link.Has(of_class.reserve_bytes)) {
        note(link.TimeOf(of_class.reserve_bytes));
        return false;
      }
      in_flight[traffic] += bytes;
      total += bytes;
      own[traffic].Take(bytes);
      link.Take(bytes);
      granted->push_back(std::move(queue.front().granted));
      queue.pop_front();
    }
    return true;
  }

  void Wake(int64_t again_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (again_ns == 0 || (timer != 0 && timer_ns <= again_ns)) return;
    if (timer != 0) timers->Cancel(timer);
    timer_ns = again_ns;
    timer = timers->At(again_ns, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      {
        MutexLock lock(&self->mu);
        self->timer = 0;
      }
      self->Pump();
    });
  }

  const TrafficLimits limits;
  const Clock* const clock;
  Timers* const timers;

  mutable Mutex mu;
  Bucket link ABSL_GUARDED_BY(mu);
  std::vector<Bucket> own ABSL_GUARDED_BY(mu);  // Shape: [kTrafficClasses]
  std::array<std::deque<Asked>, kTrafficClasses> asked ABSL_GUARDED_BY(mu);
  std::array<uint64_t, kTrafficClasses> in_flight ABSL_GUARDED_BY(mu) = {};
  uint64_t total ABSL_GUARDED_BY(mu) = 0;
  Ticket last_ticket ABSL_GUARDED_BY(mu) = 0;
  TimerId timer ABSL_GUARDED_BY(mu) = 0;
  int64_t timer_ns ABSL_GUARDED_BY(mu) = 0;
};

TrafficBudget::TrafficBudget(const TrafficLimits& limits, const Clock* clock, Timers* timers)
    : state_(std::make_shared<State>(limits, clock, timers)) {}

TrafficBudget::~TrafficBudget() {
  MutexLock lock(&state_->mu);
  if (state_->timer != 0) state_->timers->Cancel(state_->timer);
}

TrafficBudget::Ticket TrafficBudget::Ask(TrafficClass traffic, uint64_t bytes,
                                         std::function<void()> granted) {
  Ticket ticket = 0;
  {
    MutexLock lock(&state_->mu);
    ticket = ++state_->last_ticket;
    state_->asked[static_cast<size_t>(traffic)].push_back(
        {.ticket = ticket, .bytes = bytes, .granted = std::move(granted)});
  }
  state_->Pump();
  return ticket;
}

bool TrafficBudget::Withdraw(Ticket ticket) {
  std::function<void()> dropped;  // destroyed without the lock
  bool found = false;
  {
    MutexLock lock(&state_->mu);
    for (auto& queue : state_->asked) {
      const auto at = std::find_if(queue.begin(), queue.end(),
                                   [&](const State::Asked& asked) { return asked.ticket == ticket; });
      if (at == queue.end()) continue;
      dropped = std::move(at->granted);
      queue.erase(at);
      found = true;
      break;
    }
  }
  if (found) state_->Pump();  // those behind it may be smaller
  return found;
}

void TrafficBudget::Return(TrafficClass traffic, uint64_t bytes) {
  {
    MutexLock lock(&state_->mu);
    uint64_t& in_flight = state_->in_flight[static_cast<size_t>(traffic)];
    EPIC_CHECK(bytes <= in_flight);
    in_flight -= bytes;
    state_->total -= bytes;
  }
  state_->Pump();
}

TrafficBudget::Usage TrafficBudget::usage() const {
  MutexLock lock(&state_->mu);
  Usage usage{.in_flight_bytes = state_->in_flight};
  for (size_t traffic = 0; traffic < kTrafficClasses; ++traffic) {
    usage.waiting[traffic] = state_->asked[traffic].size();
  }
  return usage;
}

}  // namespace epic::transport
