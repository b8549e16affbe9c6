#include "common/coordination/static_membership.h"

#include <set>
#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic {

StaticMembership::StaticMembership(Options options)
    : options_(std::move(options)),
      leadership_(options_.nodes[0].id, options_.nodes[0].id == options_.self),
      board_(MemberTable::Options{}) {
  Listing listing;
  listing.revision = 1;
  for (NodeInfo node : options_.nodes) {
    if (node.state == NodeState::kJoining) node.state = NodeState::kServing;
    node.lease_ms = options_.suspect_ms;
    listing.items.push_back({node.id, EncodeMember(node), 1, 1, 0});
  }
  board_.Update([&](MemberTable* table) { table->Listed(listing, /*doubtful=*/false, NowMs()); });
}

absl::StatusOr<std::shared_ptr<StaticMembership>> StaticMembership::Start(Options options) {
  std::set<std::string> ids;
  for (const NodeInfo& node : options.nodes) {
    EPIC_RETURN_IF_ERROR(ValidateNode(node));
    if (!ids.insert(node.id).second) {
      return Error(ErrorCode::kInvalidRequest, "two nodes have the id " + node.id + ": give each its own");
    }
  }
  if (ids.empty()) return Error(ErrorCode::kInvalidRequest, "a list of members has at least one");
  if (!options.self.empty() && !ids.contains(options.self)) {
    return Error(ErrorCode::kInvalidRequest,
                 "this process, " + options.self + ", is not in the list of members");
  }
  return std::shared_ptr<StaticMembership>(new StaticMembership(std::move(options)));
}

void StaticMembership::ReportDown(std::string_view id, const Incarnation& incarnation, std::string_view why) {
  board_.Update([&](MemberTable* table) { table->ReportDown(id, incarnation, why, NowMs()); });
  options_.timers->At(options_.clock->SteadyNs() + options_.suspect_ms * 1'000'000,
                      [weak = weak_from_this()] {
                        if (const auto self = weak.lock(); self != nullptr) {
                          self->board_.Update([&](MemberTable* table) { table->Tick(self->NowMs()); });
                        }
                      });
}

void StaticMembership::ReportUp(std::string_view id, const Incarnation& incarnation) {
  board_.Update([&](MemberTable* table) { table->ReportUp(id, incarnation); });
}

}  // namespace epic
