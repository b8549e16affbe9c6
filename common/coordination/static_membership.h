// The members as a list of the configuration: nobody joins or leaves, and no coordination store is asked. A
// node that is reported down is suspected until it is reported up, or until a while has passed.
#ifndef EPIC_COMMON_COORDINATION_STATIC_MEMBERSHIP_H_
#define EPIC_COMMON_COORDINATION_STATIC_MEMBERSHIP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/timers.h"
#include "common/coordination/election.h"
#include "common/coordination/member_board.h"
#include "common/coordination/membership.h"

namespace epic {

class StaticMembership final : public Membership, public std::enable_shared_from_this<StaticMembership> {
 public:
  struct Options {
    Timers* timers = nullptr;  // they and the clock outlive the membership
    const Clock* clock = nullptr;
    // All of them; those whose state is joining count as serving. The first one leads.
    std::vector<NodeInfo> nodes;
    std::string self;             // id of this process; empty: it is none of them
    int64_t suspect_ms = 10'000;  // until a node that was reported down is tried again
  };

  // Errors: InvalidArgument for a node that is not valid, an id that is there twice, a self that is not.
  static absl::StatusOr<std::shared_ptr<StaticMembership>> Start(Options options);

  MemberViewPtr view() const override { return board_.view(); }
  uint64_t AddListener(Listener listener) override { return board_.AddListener(std::move(listener)); }
  void RemoveListener(uint64_t listener) override { board_.RemoveListener(listener); }
  void ReportDown(std::string_view id, const Incarnation& incarnation, std::string_view why) override;
  void ReportUp(std::string_view id, const Incarnation& incarnation) override;
  // Nobody else hears of these.
  void SetState(NodeState) override {}
  void SetModels(std::vector<ServedModel>) override {}
  MembershipHealth health() const override { return {}; }
  void Leave(std::function<void(absl::Status)> done) override { done(absl::OkStatus()); }
  void Stop() override { board_.Stop(); }

  const Leadership& leadership() const { return leadership_; }

 private:
  explicit StaticMembership(Options options);
  int64_t NowMs() const { return options_.clock->SteadyNs() / 1'000'000; }

  const Options options_;
  const StaticLeadership leadership_;
  MemberBoard board_;
};

}  // namespace epic

#endif  // EPIC_COMMON_COORDINATION_STATIC_MEMBERSHIP_H_
