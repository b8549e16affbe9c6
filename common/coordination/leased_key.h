// One key that this process keeps in the coordination store under a lease of its own: takes the lease, writes
// the key, keeps it what it should be, takes another lease when one is lost. What a registration and a
// candidature have in common; owned by them.
//
// Thread-safe. The listener is called one at a time, in order, with no lock held; it must not block.
#ifndef EPIC_COMMON_COORDINATION_LEASED_KEY_H_
#define EPIC_COMMON_COORDINATION_LEASED_KEY_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/timers.h"
#include "common/coordination/coordinator.h"

namespace epic {

struct LeasedKeyState {
  enum class Phase : uint8_t {
    kWriting,    // not there yet, or not any more
    kHeld,       // the key is there, its lease is ours
    kUncertain,  // the lease may have ended
    kGaveUp,     // the key is somebody else's, for good
    kLeft,       // taken away by Leave
  };
  Phase phase = Phase::kWriting;
  std::string key;
  Revision created = 0;  // of the key, where it is held
  Revision modified = 0;
  LeaseId lease = 0;  // 0: none
  std::string fault;  // of the last attempt, where it is not held
  bool operator==(const LeasedKeyState&) const = default;
};

class LeasedKey : public std::enable_shared_from_this<LeasedKey> {
 public:
  struct Options {
    Coordinator* coordinator = nullptr;  // it, the timers and the clock outlive the key
    Timers* timers = nullptr;
    const Clock* clock = nullptr;
    int64_t lease_ms = 5'000;
    int64_t retry_ms = 200;
    std::function<std::string(LeaseId)> key_of;
    // The key is there, and not ours: whether to take it over. A value of ours is taken over without asking.
    std::function<bool(const KeyValue&)> may_take_over;
    // Whether a value was written by this process.
    std::function<bool(const std::string& value)> is_ours;
    std::function<void(const LeasedKeyState&)> listener;
  };

  static std::shared_ptr<LeasedKey> Start(Options options, std::string value);
  ~LeasedKey() { Stop(); }
  LeasedKey(const LeasedKey&) = delete;
  LeasedKey& operator=(const LeasedKey&) = delete;

  // What the key should be from now on.
  void SetValue(std::string value) ABSL_LOCKS_EXCLUDED(mu_);
  // What a watcher of the key has seen of it at `revision`; nullopt: absent. Mends it where it is wrong.
  void Seen(const std::optional<KeyValue>& item, Revision revision) ABSL_LOCKS_EXCLUDED(mu_);
  LeasedKeyState state() const ABSL_LOCKS_EXCLUDED(mu_);
  // Takes the key away, with its lease; `done` when the store has done it or will not for now. Once.
  void Leave(std::function<void(absl::Status)> done) ABSL_LOCKS_EXCLUDED(mu_);
  // Lets go of it all: the lease runs out by itself. No listener is called afterwards, but a running one goes
  // on. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit LeasedKey(Options options, std::string value);

  // Begins what is to be done next, if nothing is under way.
  void Step() ABSL_LOCKS_EXCLUDED(mu_);
  void TakeLease() ABSL_LOCKS_EXCLUDED(mu_);
  void Granted(const absl::StatusOr<Lease>& lease) ABSL_LOCKS_EXCLUDED(mu_);
  void LeaseChanged(LeaseState state, uint64_t round) ABSL_LOCKS_EXCLUDED(mu_);
  void Write() ABSL_LOCKS_EXCLUDED(mu_);
  void Written(LeaseId lease, uint64_t version, const absl::StatusOr<TransactionResult>& result)
      ABSL_LOCKS_EXCLUDED(mu_);
  // False: it is somebody else's.
  bool Learn(const TransactionResult& result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LoseLease() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Ended() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopped_ || state_.phase == LeasedKeyState::Phase::kGaveUp ||
           state_.phase == LeasedKeyState::Phase::kLeft;
  }
  void RetryLater() ABSL_LOCKS_EXCLUDED(mu_);
  // Tells the listener every state since it was told last.
  void Publish() ABSL_LOCKS_EXCLUDED(mu_);
  void Note() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;  // constant after construction

  mutable Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool busy_ ABSL_GUARDED_BY(mu_) = false;  // a call is under way
  LeasedKeyState state_ ABSL_GUARDED_BY(mu_);
  uint64_t lease_round_ ABSL_GUARDED_BY(mu_) = 0;
  std::string value_ ABSL_GUARDED_BY(mu_);
  uint64_t version_ ABSL_GUARDED_BY(mu_) = 1;  // of value_
  uint64_t written_version_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<KeyValue> expected_ ABSL_GUARDED_BY(mu_);    // what the key is thought to be; nullopt: absent
  bool uncertain_ ABSL_GUARDED_BY(mu_) = false;              // the lease
  std::deque<LeasedKeyState> to_tell_ ABSL_GUARDED_BY(mu_);  // bounded, the newest
  bool telling_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace epic

#endif  // EPIC_COMMON_COORDINATION_LEASED_KEY_H_
