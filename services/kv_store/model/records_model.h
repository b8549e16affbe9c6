// One context's record on three store nodes, two of which must hold it: create, change of expiry, deletion,
// expiry, crash, lost disk, return, repair and forgetting, as a machine for explore.h. It is the proof of the
// rules below, which the real nodes follow, and says what each is for: without any one of them a promise of
// the store breaks, within a few steps.
//
// Promises, for what was acknowledged and is not contradicted by a change still in flight:
//   a deleted context is served by nobody; a live one is denied by nobody who knows of it, is found by
//   somebody while two nodes serve, and is on a disk though one disk was lost; an expired one is served by
//   nobody.
//
// Rules. A change carries a stamp (hybrid time), greater than any earlier one's. A record is of the life
// that its creation began: a later life replaces an earlier one, within a life fields merge by maximum stamp.
// A deletion leaves its stamp, an expiry the life and the stamp of the expiry that came true; a record counts
// if it was created after the one and is later than the other. A node that comes back joins: it takes part in
// changes, and serves once it has merged what `enough` other nodes hold. Tombstones live as long as a node
// may be away with its records and a change under way, together; these times are counted in beats, which pass
// only while the cluster can take changes: a cluster that was switched off forgets nothing.
#ifndef EPIC_SERVICES_KV_STORE_MODEL_RECORDS_MODEL_H_
#define EPIC_SERVICES_KV_STORE_MODEL_RECORDS_MODEL_H_

#include <array>
#include <cstdint>
#include <string>

#include "services/kv_store/model/explore.h"

namespace epic::kv_store {

// Each can be broken, to see that the machine notices.
struct RecordRules {
  bool sync_before_ack = true;         // a node answers a change when it is on its disk
  bool ack_needs_all_up = true;        // acknowledged when two disks, and every node up by then, have it
  bool joins_before_serving = true;    // a node that was down merges what others hold before it serves
  bool empty_node_asks_all = true;     // one without its disk asks every other node, not N - R of them,
  bool empty_is_no_source = true;      // and until then nobody learns from it
  bool creation_decides = true;        // deletion against creation stamp, not against a record's last change
  bool expiry_names_its_stamp = true;  // an expiry removes the record whose expiry came true, not later ones
  bool carries_the_record = true;      // a change brings all fields to a node that does not know the context
  bool long_away_is_removed = true;    // a node away for kAwayTicks is empty when it returns
  bool beat_needs_quorum = true;       // such times pass only while two nodes serve
  bool changes_in_time = true;         // a change is given up before tombstones of its time are forgotten
  bool repair_in_time = true;          // a copy under way for longer is thrown away
  // One without its disk that fails again forgets what it merged since. What breaks without it lies more
  // steps away than an exploration gets; the walks of the real nodes (replication/replica_walk_test.cc) found
  // it.
  bool empty_begins_anew = true;
};

struct RecordBounds {
  uint8_t changes = 3;  // creates, changes of expiry and deletions, two of them at a time
  uint8_t crashes = 2;
  uint8_t losses = 1;   // of disks: R - 1
  uint8_t ticks = 2;    // of the clock
  bool expires = true;  // changes may set an expiry one tick ahead
  // A copy goes from any node that counts to any that is up, whatever that has; else only to one that serves
  // and lacks the record. Real changes carry all that their node knows: they are one of these and a copy.
  bool spreads = false;
};

class RecordsModel {
 public:
  static constexpr int kNodes = 3;
  static constexpr int kReplicas = 2;
  static constexpr uint8_t kNever = 255;
  static constexpr uint8_t kChangeTicks = 1;  // until a change or a copy on its way is given up
  static constexpr uint8_t kAwayTicks = 1;    // from which on a node that did not serve is empty
  static constexpr uint8_t kTombstoneTicks = kAwayTicks + kChangeTicks;

  enum class Up : uint8_t { kDown, kJoining, kServing };
  enum class Kind : uint8_t { kNone, kCreate, kExpiry, kDelete };
  enum class Promise : uint8_t { kAny, kLive, kDead };

  // What a node knows of the context. Stamps; 0: none.
  struct Held {
    uint8_t created;
    uint8_t expiry;  // clock at which it ends; kNever
    uint8_t expiry_stamp;
    uint8_t deleted;
    uint8_t expired_life, expired;  // created and expiry_stamp of the expiry that came true
    uint8_t gone_at;                // beat of the last of either
  };
  struct Node {
    Up up;
    uint8_t empty;      // without what it had promised to keep, and not yet made up for it
    uint8_t fetched;    // from whom, since it came back
    uint8_t served_at;  // beat, when it did last
    Held memory, disk;
  };
  struct Change {
    Kind kind;
    uint8_t stamp, expiry, since;
    uint8_t created;  // of the record that a change of its expiry was made for
    uint8_t targets;  // nodes that were up when it began
    uint8_t applied;  // nodes
    uint8_t refused;  // some node has no such context any more
  };
  struct Copy {  // repair: what one node had, on its way to another
    uint8_t on_its_way, to;
    Held held;
  };
  struct State {
    std::array<Node, kNodes> nodes;
    std::array<Change, 2> changes;
    Copy copy;
    uint8_t clock, beat, begun, crashes, losses;
    Promise promise;
    uint8_t until;             // kLive: the expiry promised
    uint8_t exact;             // ... and no other one may be
    uint8_t unsettled;         // the greatest stamp of changes that were given up, or overlapped with another
    uint8_t unsettled_create;  // ... of creates
  };

  RecordsModel(const RecordRules& rules, const RecordBounds& bounds) : rules_(rules), bounds_(bounds) {}

  State First() const;
  void Steps(const State& state, const StepVisitor<State>& visit) const;
  std::string Fault(const State& state) const;
  std::string Describe(const State& state) const;
  // Whether a node that holds this serves the context.
  bool Answers(const Held& held, uint8_t clock) const { return Counts(held) && clock < held.expiry; }

 private:
  bool Counts(const Held& held) const;
  void Merge(const Held& from, Held* to) const;
  void Write(const Held& held, Node* node) const;
  bool IsOverdue(const State& state, const Node& node) const;
  bool IsSource(const State& state, const Node& node) const;
  bool MayServe(const State& state, const Node& node) const;
  bool ApplyTo(Change* change, const State& state, Node* node) const;
  void Begin(Kind kind, uint8_t expiry, int slot, State* state) const;
  bool CanAcknowledge(const State& state, const Change& change) const;
  void Unsettle(const Change& change, State* state) const;
  void Acknowledge(int slot, State* state) const;

  void ChangeSteps(const State& state, const StepVisitor<State>& visit) const;
  void FaultSteps(const State& state, const StepVisitor<State>& visit) const;
  void TickSteps(const State& state, const StepVisitor<State>& visit) const;
  void NodeSteps(const State& state, const StepVisitor<State>& visit) const;
  void RepairSteps(const State& state, const StepVisitor<State>& visit) const;

  const RecordRules rules_;
  const RecordBounds bounds_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_MODEL_RECORDS_MODEL_H_
