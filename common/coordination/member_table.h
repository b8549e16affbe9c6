// The members of a cluster as one process sees them: what the coordination store says, and on top of it what
// is known better here. Pure: no clock, no threads, no store; ClusterMembership (membership.h) feeds it and
// guards it with its lock.
//
//   suspected  an RPC layer lost its connection to that life of the node (ReportDown): at once, and only
//   here.
//              Until the node shows up again: writes its record again, or that of a newer life; is reached
//              again (ReportUp); or outlives by a whole lease what was reported, while the store is up
//   kept       gone from the store at a time when the store cannot be trusted with that: within `grace_ms` of
//              its being away for `outage_ms`, or of its turning out to be restored from a backup or to be
//              another one. Live nodes register anew meanwhile; what does not is gone after `grace_ms`. Not
//              kept are nodes that drained, that are suspected, and those that only an older state of the
//              store brought back
#ifndef EPIC_COMMON_COORDINATION_MEMBER_TABLE_H_
#define EPIC_COMMON_COORDINATION_MEMBER_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/coordination/coordinator.h"
#include "common/coordination/member_record.h"

namespace epic {

struct Member {
  NodeInfo node;
  Revision revision = 0;   // of its record
  bool confirmed = true;   // the store has its record now; else it is kept
  bool suspected = false;  // do not begin anything with it
  std::string why;         // it is suspected
  bool operator==(const Member&) const = default;
  bool serves() const { return !suspected && node.state == NodeState::kServing; }
};

// One state of a table; never changes.
struct MemberView {
  uint64_t version = 0;         // grows with each view of this process
  Revision revision = 0;        // of the store: records up to it are in
  std::vector<Member> members;  // by id
  // nullptr: no such member.
  const Member* Find(std::string_view id) const;
  std::vector<const Member*> OfKind(NodeKind kind) const;
};

class MemberTable {
 public:
  struct Options {
    std::string prefix;  // of the keys; what follows is the id
    int64_t grace_ms = 0;
    int64_t outage_ms = 0;          // a shorter one costs no lease
    int64_t suspect_margin_ms = 0;  // beyond a node's lease
  };
  explicit MemberTable(Options options);

  // `now_ms` is the same monotonic time everywhere, and never goes back.

  // Everything under the prefix. `doubtful`: the history of the store changed before.
  void Listed(const Listing& listing, bool doubtful, int64_t now_ms);
  void Changed(const WatchUpdate& update, int64_t now_ms);
  // Whether the store answers.
  void SetUp(bool up, int64_t now_ms);
  void ReportDown(std::string_view id, const Incarnation& incarnation, std::string_view why, int64_t now_ms);
  void ReportUp(std::string_view id, const Incarnation& incarnation);
  // Time has passed.
  void Tick(int64_t now_ms);

  // The present view; the same object as long as nothing changes.
  std::shared_ptr<const MemberView> view();
  // Records that could not be read, over all time.
  uint64_t bad_records() const { return bad_records_; }

 private:
  struct Entry {
    NodeInfo node;
    Revision revision = 0;
    bool from_older_state = false;  // of the store
  };
  struct Kept {
    Entry entry;
    int64_t until_ms = 0;
  };
  struct Suspicion {
    Incarnation incarnation;
    Revision revision = 0;  // of the record then
    int64_t lift_ms = 0;
    int64_t lease_ms = 0;
    std::string why;
  };

  // `doubtful`: the store may be in an older state than before.
  void Put(const KeyValue& item, bool doubtful, int64_t now_ms);
  void Remove(const std::string& id, int64_t now_ms);
  // Whether a record that is gone may be one of a live node.
  bool IsDoubtful(int64_t now_ms) const;
  const Entry* Current(const std::string& id) const;
  std::vector<Member> Members() const;

  const Options options_;
  std::map<std::string, Entry> entries_;  // as the store has them
  std::map<std::string, Kept> kept_;
  std::map<std::string, Suspicion> suspicions_;
  Revision revision_ = 0;
  bool up_ = true;
  int64_t down_since_ms_ = 0;
  int64_t doubtful_until_ms_ = 0;
  uint64_t bad_records_ = 0;
  std::shared_ptr<const MemberView> view_ = std::make_shared<MemberView>();
};

}  // namespace epic

#endif  // EPIC_COMMON_COORDINATION_MEMBER_TABLE_H_
