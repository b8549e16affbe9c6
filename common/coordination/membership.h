// Who the members of the cluster are, for every part of it; and this process as one of them.
//
// Two kinds: ClusterMembership over a Coordinator (cluster_membership.h), and a list that does not change
// (static_membership.h). Thread-safe; no call blocks. Listeners are called one at a time, the newest view
// last, on any thread and with no lock held; they must not block. How views come about: member_table.h.
#ifndef EPIC_COMMON_COORDINATION_MEMBERSHIP_H_
#define EPIC_COMMON_COORDINATION_MEMBERSHIP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/coordination/member_record.h"
#include "common/coordination/member_table.h"

namespace epic {

using MemberViewPtr = std::shared_ptr<const MemberView>;  // never null

struct MembershipHealth {
  bool up = true;                   // the coordination store answers; a list that does not change needs none
  int64_t away_ms = 0;              // for how long it has not, where it does not
  bool stale = false;               // for longer than its settings allow: degraded, serving goes on
  bool registered = true;           // the store has our record under a lease that we are sure of
  bool superseded = false;          // another process with our id is newer: this one should end
  std::vector<std::string> causes;  // what health should say; empty: nothing
};

class Membership {
 public:
  using Listener = std::function<void(const MemberViewPtr&)>;

  virtual ~Membership() = default;

  virtual MemberViewPtr view() const = 0;
  // Hears of views that come later; some may be passed over, never the newest. The number is for
  // RemoveListener, after which no call begins but one that has begun goes on.
  virtual uint64_t AddListener(Listener listener) = 0;
  virtual void RemoveListener(uint64_t listener) = 0;

  // A connection to that life of a node was reset or refused: it is suspected at once. Reports of lives that
  // are over, and of nodes that are no members, are passed over.
  virtual void ReportDown(std::string_view id, const Incarnation& incarnation, std::string_view why) = 0;
  // It answered: suspected no more.
  virtual void ReportUp(std::string_view id, const Incarnation& incarnation) = 0;

  // What others shall see of this process. REQUIRES: what ValidateNode asks of models.
  virtual void SetState(NodeState state) = 0;
  virtual void SetModels(std::vector<ServedModel> models) = 0;

  virtual MembershipHealth health() const = 0;

  // Takes this process out of the cluster; `done` when others can know. Say SetState(kDraining) before it.
  virtual void Leave(std::function<void(absl::Status)> done) = 0;
  // No listener is called afterwards, but a running one goes on. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace epic

#endif  // EPIC_COMMON_COORDINATION_MEMBERSHIP_H_
