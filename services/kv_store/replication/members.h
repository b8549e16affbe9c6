// Who the store nodes of a cluster are, and who of them is up, as one node sees it; and which of them hold a
// context. The list of members (names, zones) is the same everywhere and does not change while a node lives;
// their standing changes from epoch to epoch.
//
// What a Membership promises, whatever is behind it (a static list with its first node as arbiter, etcd):
//   epochs     are totally ordered and the same for all; a node's view never goes back
//   fencing    a node is shown down only after its own view has shown that, or it is dead: a lease that ran
//   out
//              on its side first. Clocks of nodes differ by less than that takes (kMaxClockSkewMs)
//   sessions   a node that was shown down comes back under another session
//   leader     at most one node sees itself as the leader at a time; none is allowed
// Types are values; a Membership is thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_MEMBERS_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_MEMBERS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/storage/rendezvous.h"
#include "services/kv_store/core/rows.h"

namespace epic::kv_store {

inline constexpr int64_t kMaxClockSkewMs = 500;

// Joining: takes part in changes, and answers no reader yet.
enum class NodeUp : uint8_t { kDown = 0, kJoining = 1, kServing = 2 };

struct Member {
  PlacedNode node;
  NodeUp up = NodeUp::kDown;
  uint64_t session = 0;
};

struct MemberView {
  uint64_t epoch = 0;
  std::vector<Member> members;  // sorted by name
  std::string leader;           // who counts beats and repairs; empty: nobody

  // nullptr: no such member.
  const Member* Find(std::string_view name) const {
    for (const Member& member : members) {
      if (member.node.name == name) return &member;
    }
    return nullptr;
  }
  size_t Serving() const {
    return static_cast<size_t>(std::count_if(
        members.begin(), members.end(), [](const Member& member) { return member.up == NodeUp::kServing; }));
  }
};

class Membership {
 public:
  virtual ~Membership() = default;
  // The newest that is known here. Cheap; never nullptr.
  virtual std::shared_ptr<const MemberView> View() const = 0;
  // Says how this node stands. The view shows it some time later, if it does: a session that was shown down
  // is over, and what is announced under it is ignored.
  virtual void Announce(NodeUp up, uint64_t session) = 0;
};

// The group of a context: the nodes that hold it, in the order of their turn. It has one node more than there
// are replicas (all nodes, if they are fewer), so that a change finds `replicas` disks while one of it is
// down; every node of it that is up gets every change, and the others of the cluster never hold the context.
struct Placement {
  size_t replicas = 2;  // R, at least 1

  size_t GroupSize(size_t members) const { return std::min(members, replicas + 1); }
  std::vector<const Member*> GroupOf(const MemberView& view, std::string_view key) const {
    std::vector<PlacedNode> nodes;
    for (const Member& member : view.members) nodes.push_back(member.node);
    std::vector<const Member*> group;
    for (const size_t at : RendezvousOrder(nodes, key)) {
      if (group.size() < GroupSize(nodes.size())) group.push_back(&view.members[at]);
    }
    return group;
  }
  std::vector<const Member*> GroupOf(const MemberView& view, const ContextKey& key) const {
    return GroupOf(view, RowKey(key));
  }
  // How many members may be missing while every group has `replicas` nodes.
  size_t Spare(size_t members) const { return GroupSize(members) - std::min(replicas, GroupSize(members)); }
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_MEMBERS_H_
