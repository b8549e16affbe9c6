// Membership over a Coordinator: this process registers under a lease, and follows the registrations of all.
// Death shows by a connection that was reset first (ReportDown), by the lease second. When the store is away
// the last known state stays; when it comes back emptied or older, live nodes register anew and nobody is
// dropped meanwhile (member_table.h). Thread-safe; needs Timers, owns no thread.
//
// Of two processes with one id the newer life keeps it; the other learns that it is superseded.
#ifndef EPIC_COMMON_COORDINATION_CLUSTER_MEMBERSHIP_H_
#define EPIC_COMMON_COORDINATION_CLUSTER_MEMBERSHIP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/timers.h"
#include "common/coordination/coordination_settings.h"
#include "common/coordination/coordinator.h"
#include "common/coordination/leased_key.h"
#include "common/coordination/member_board.h"
#include "common/coordination/membership.h"
#include "common/coordination/prefix_mirror.h"

namespace epic {

class ClusterMembership final : public Membership, public std::enable_shared_from_this<ClusterMembership> {
 public:
  struct Options {
    Coordinator* coordinator = nullptr;  // it, the timers and the clock outlive the membership
    Timers* timers = nullptr;
    const Clock* clock = nullptr;
    CoordinationSettings settings;
    std::optional<NodeInfo> self;  // its lease_ms is set from the settings; nullopt: it only looks on
    int64_t retry_ms = 200;
    int64_t relist_ms = 30'000;
    int64_t tick_ms = 250;
  };

  // Errors: InvalidArgument for a self that is not valid.
  static absl::StatusOr<std::shared_ptr<ClusterMembership>> Start(Options options);
  ~ClusterMembership() override { Stop(); }

  MemberViewPtr view() const override { return board_.view(); }
  uint64_t AddListener(Listener listener) override { return board_.AddListener(std::move(listener)); }
  void RemoveListener(uint64_t listener) override { board_.RemoveListener(listener); }
  void ReportDown(std::string_view id, const Incarnation& incarnation, std::string_view why) override;
  void ReportUp(std::string_view id, const Incarnation& incarnation) override;
  void SetState(NodeState state) override ABSL_LOCKS_EXCLUDED(mu_);
  void SetModels(std::vector<ServedModel> models) override ABSL_LOCKS_EXCLUDED(mu_);
  MembershipHealth health() const override ABSL_LOCKS_EXCLUDED(mu_);
  void Leave(std::function<void(absl::Status)> done) override ABSL_LOCKS_EXCLUDED(mu_);
  void Stop() override ABSL_LOCKS_EXCLUDED(mu_);

  // How this process's own record stands, for those who must stop by themselves when it is not sure.
  LeasedKeyState registration() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit ClusterMembership(Options options);

  void Begin() ABSL_LOCKS_EXCLUDED(mu_);
  void Register() ABSL_LOCKS_EXCLUDED(mu_);
  void Listed(const Listing& listing, bool history_changed);
  void Changed(const WatchUpdate& update);
  void Tick();
  void TickLater() ABSL_LOCKS_EXCLUDED(mu_);
  void WriteSelf(const std::function<void(NodeInfo*)>& change) ABSL_LOCKS_EXCLUDED(mu_);
  std::shared_ptr<LeasedKey> key() const ABSL_LOCKS_EXCLUDED(mu_);
  std::string OwnKey() const;
  int64_t NowMs() const { return options_.clock->SteadyNs() / 1'000'000; }

  // Constant after construction; synchronises itself.
  const Options options_;
  const std::string prefix_;  // of the keys of members
  const int64_t started_ns_;
  MemberBoard board_;

  mutable Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<NodeInfo> self_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<LeasedKey> key_ ABSL_GUARDED_BY(mu_);  // null: it only looks on
  std::shared_ptr<PrefixMirror> mirror_ ABSL_GUARDED_BY(mu_);
  TimerId timer_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace epic

#endif  // EPIC_COMMON_COORDINATION_CLUSTER_MEMBERSHIP_H_
