// Who leads: one of the candidates of a name, as all see it; and a number for each time somebody came to
// lead, by which what a leader of before still does can be refused.
//
// The leader is the candidate whose key is the oldest. A candidate that cannot be sure of its lease steps
// back by itself before the store can have ended it: at most one sees itself leading at a time, as far as
// clocks run alike. Thread-safe.
#ifndef EPIC_COMMON_COORDINATION_ELECTION_H_
#define EPIC_COMMON_COORDINATION_ELECTION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/timers.h"
#include "common/coordination/coordinator.h"
#include "common/coordination/leased_key.h"
#include "common/coordination/prefix_mirror.h"

namespace epic {

struct LeaderView {
  std::string leader;    // its id; empty: nobody, or not known
  Revision fence = 0;    // grows from leader to leader, as long as the store is not restored; 0: no leader
  bool leading = false;  // this process is the leader, and may act as one now
  std::string key;       // of the leader in the store; empty where there is none
  bool operator==(const LeaderView&) const = default;
  // Holds as long as that leader leads: a guard of what only it may do. REQUIRES: !key.empty().
  Guard FenceGuard() const { return Guard::CreatedAt(key, fence); }
};

class Leadership {
 public:
  virtual ~Leadership() = default;
  virtual LeaderView view() const = 0;
};

// The first node of a list that does not change.
class StaticLeadership final : public Leadership {
 public:
  StaticLeadership(std::string leader, bool leading) : view_{std::move(leader), 1, leading, {}} {}
  LeaderView view() const override { return view_; }

 private:
  const LeaderView view_;
};

class Election final : public Leadership, public std::enable_shared_from_this<Election> {
 public:
  struct Options {
    Coordinator* coordinator = nullptr;  // it, the timers and the clock outlive the election
    Timers* timers = nullptr;
    const Clock* clock = nullptr;
    std::string prefix;     // of the keys of the candidates, such as "epic/leaders/repair/"
    std::string candidate;  // id of this process; empty: it only looks on
    int64_t lease_ms = 5'000;
    int64_t retry_ms = 200;
    int64_t relist_ms = 30'000;
    // Hears of every change, one at a time, with no lock held; must not block. May be empty.
    std::function<void(const LeaderView&)> listener;
  };

  static std::shared_ptr<Election> Start(Options options);
  ~Election() override { Stop(); }
  Election(const Election&) = delete;
  Election& operator=(const Election&) = delete;

  LeaderView view() const override ABSL_LOCKS_EXCLUDED(mu_);
  // Leads no more and is no candidate any more; goes on looking on. `done` when the store knows.
  void Resign(std::function<void(absl::Status)> done) ABSL_LOCKS_EXCLUDED(mu_);
  // The lease runs out by itself. The listener hears no more, but a running call goes on. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit Election(Options options) : options_(std::move(options)) {}

  void Begin() ABSL_LOCKS_EXCLUDED(mu_);
  void Listed(const Listing& listing) ABSL_LOCKS_EXCLUDED(mu_);
  void Changed(const WatchUpdate& update) ABSL_LOCKS_EXCLUDED(mu_);
  void OwnChanged(const LeasedKeyState& state) ABSL_LOCKS_EXCLUDED(mu_);
  // What a look at all keys says of our own.
  void CheckOwn(Revision revision) ABSL_LOCKS_EXCLUDED(mu_);
  void Publish() ABSL_LOCKS_EXCLUDED(mu_);
  LeaderView Compute() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;  // constant after construction

  mutable Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool telling_ ABSL_GUARDED_BY(mu_) = false;
  std::map<std::string, KeyValue> candidates_ ABSL_GUARDED_BY(mu_);
  LeasedKeyState own_ ABSL_GUARDED_BY(mu_);
  LeaderView told_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<LeasedKey> key_ ABSL_GUARDED_BY(mu_);  // null: no candidate
  std::shared_ptr<PrefixMirror> mirror_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic

#endif  // EPIC_COMMON_COORDINATION_ELECTION_H_
