// Where every context and object lives: at which nodes (stores and link workers), and in which tiers there.
// Soft state of a router, fed by what nodes publish; it does no I/O, but says what to ask for next. Owned by
// the router; thread-safe: a lock per node, which orders what one node says, then one per shard of the keys.
//
// What a node says comes as events {incarnation, sequence} in order, each the state that a key is in from
// then on, and as inventories: pages, then the events from the last page's tail on. For each node the index
// is
//   down       nothing of the node is in any answer
//   wanting    an inventory is to be begun. After a gap the answers stay what they were, which may be wrong
//   here
//              and there; after another incarnation, or when the node was down, they hold nothing of it
//   gathering  pages come in; each counts at once. With the last page, what no page named counts no more
//   following  events are applied in order; one that was applied before is passed over, a later one than the
//              next is a gap
// Events that come while the index wants or gathers an inventory are dropped: they come again behind its
// tail. All answers are hints. A node that is asked for what it does not have says so, and Correct() tells
// the index.
//
// Memory is bounded (max_bytes): beyond it the coldest keys are forgotten, and counted. Asked for one of
// those, the home nodes know better.
//
// A node going down, or living anew, hides all that it held by one store to memory: holders carry the life of
// the node that they are of, 14 bits. Sweep() takes the hidden ones out bit by bit; it must go round once in
// 16,000 lives of a node, and is made to.
#ifndef EPIC_SERVICES_ROUTER_PLACEMENT_PLACEMENT_INDEX_H_
#define EPIC_SERVICES_ROUTER_PLACEMENT_PLACEMENT_INDEX_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/storage/rendezvous.h"
#include "services/router/placement/place_table.h"
#include "services/router/placement/place_types.h"

namespace epic::router {

enum class NodeKind : uint8_t { kStore, kLinkWorker };

struct IndexNode {
  std::string name;  // unique
  std::string zone;  // empty: not said
  NodeKind kind = NodeKind::kStore;
};

// What the caller should do about a node next.
enum class Wanted : uint8_t {
  kNothing,
  kInventory,  // begin one
  kPage,       // go on with the inventory
  kEvents,     // subscribe from the cursor
};
struct NodeAsk {
  Wanted wanted = Wanted::kNothing;
  uint64_t incarnation = 0;  // kEvents
  uint64_t sequence = 0;     // kEvents: the next event to read
  bool operator==(const NodeAsk&) const = default;
};

struct EventBatch {
  uint64_t incarnation = 0;  // of the node that sends it
  bool gap = false;          // the node says that events are missing
  std::span<const PlaceEvent> events;
};

struct InventoryBatch {
  bool begins = false;  // what was gathered of another one is void
  std::span<const PlaceItem> items;
  bool done = false;              // the last page
  uint64_t tail_incarnation = 0;  // done: go on with events from here
  uint64_t tail_sequence = 0;
};

struct IndexOptions {
  uint32_t max_nodes = 4096;  // at most kMaxNodes
  uint64_t max_bytes = uint64_t{4} << 30;
  uint32_t max_holders = 64;  // of one key; stores go before link workers
  uint32_t shards = 64;       // a power of two, at most 4096
};

class PlacementIndex {
 public:
  explicit PlacementIndex(const IndexOptions& options);
  PlacementIndex(const PlacementIndex&) = delete;
  PlacementIndex& operator=(const PlacementIndex&) = delete;

  // A node that is down at first. Errors: AlreadyExists; ResourceExhausted for more than max_nodes.
  absl::StatusOr<NodeSlot> AddNode(const IndexNode& node) ABSL_LOCKS_EXCLUDED(registry_mu_);
  // Its slot may be another node's from then on. REQUIRES for all slots below: of a node that was added.
  void RemoveNode(NodeSlot slot) ABSL_LOCKS_EXCLUDED(registry_mu_);
  // Says what to ask the node for.
  NodeAsk NodeUp(NodeSlot slot) ABSL_LOCKS_EXCLUDED(registry_mu_);
  // From its return on no answer names the node.
  void NodeDown(NodeSlot slot) ABSL_LOCKS_EXCLUDED(registry_mu_);

  NodeAsk ApplyEvents(NodeSlot slot, const EventBatch& batch);
  NodeAsk ApplyInventory(NodeSlot slot, const InventoryBatch& batch);
  // What was learnt by asking the node itself: tiers, or kNowhere. Of another incarnation than the one that
  // is followed: ignored.
  void Correct(NodeSlot slot, uint64_t incarnation, const PlaceItem& item);
  NodeAsk AskOf(NodeSlot slot) const;

  // Answers in the order of the keys; what was in `answers` goes. Counts as a use of each.
  void Find(std::span<const PlaceKey> keys, PlaceAnswers* answers);

  // The group of a context that is up, in the order of their turn: of the first replicas + 1 of its
  // rendezvous order over all stores, which is what the stores go by. The first is its home. `key` is the
  // stores' row key of the context.
  std::vector<NodeSlot> HomesOf(std::string_view key, size_t replicas) const
      ABSL_LOCKS_EXCLUDED(registry_mu_);

  // Takes hidden holders out of up to `entries` entries of each shard. Call now and then.
  void Sweep(uint32_t entries);

  struct Counts {
    uint64_t entries = 0;
    uint64_t memory_bytes = 0;
    uint64_t evicted = 0;
    uint64_t reclaimed = 0;
    uint64_t holders_not_kept = 0;
    // Since the start:
    uint64_t events = 0;  // applied
    uint64_t duplicates = 0;
    uint64_t dropped = 0;       // came while an inventory was due
    uint64_t gaps = 0;          // told or seen
    uint64_t incarnations = 0;  // that took the place of another one unannounced
    uint64_t inventories = 0;   // complete
  };
  Counts counts() const;

 private:
  enum class State : uint8_t { kDown, kWanting, kGathering, kFollowing };
  struct Node {
    mutable Mutex mu;
    State state ABSL_GUARDED_BY(mu) = State::kDown;
    uint64_t incarnation ABSL_GUARDED_BY(mu) = 0;
    uint64_t next ABSL_GUARDED_BY(mu) = 0;  // sequence of the next event
    uint16_t current ABSL_GUARDED_BY(mu) = kNoLife;
    uint16_t gathered ABSL_GUARDED_BY(mu) = kNoLife;
    uint16_t next_life ABSL_GUARDED_BY(mu) = 0;
    uint32_t unswept ABSL_GUARDED_BY(mu) = 0;  // lives given out since all were swept
  };
  struct Shard {
    Shard(const PlaceTable::Options& options, NodeLives lives) : table(options, lives) {}
    mutable Mutex mu;
    PlaceTable table ABSL_GUARDED_BY(mu);
  };
  // Who the stores are: replaced as a whole, so that readers hash without the lock.
  struct Stores {
    std::vector<PlacedNode> nodes;
    std::vector<NodeSlot> slots;
    std::vector<bool> up;
  };
  struct Registered {
    IndexNode node;
    bool used = false;
    bool up = false;
  };

  Shard& ShardOf(const PlaceKey& key) const { return *shards_[key.high & (shards_.size() - 1)]; }
  void Put(const PlaceItem& item, NodeSlot slot, uint16_t life);
  uint16_t NewLife(Node* node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node->mu);
  void SetLives(NodeSlot slot, Node* node, uint16_t current, uint16_t gathered)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(node->mu);
  static NodeAsk AskUnder(const Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.mu);
  void Hide(NodeSlot slot, State state);
  void SetUp(NodeSlot slot, bool up) ABSL_LOCKS_EXCLUDED(registry_mu_);
  void RenewStores() ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_mu_);

  const IndexOptions options_;
  std::vector<std::atomic<uint32_t>> lives_;  // per slot, as PackLives says
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<Shard>> shards_;

  mutable Mutex registry_mu_;
  std::vector<Registered> registry_ ABSL_GUARDED_BY(registry_mu_);
  std::shared_ptr<const Stores> stores_ ABSL_GUARDED_BY(registry_mu_);

  std::atomic<uint64_t> events_{0};
  std::atomic<uint64_t> duplicates_{0};
  std::atomic<uint64_t> dropped_{0};
  std::atomic<uint64_t> gaps_{0};
  std::atomic<uint64_t> incarnations_{0};
  std::atomic<uint64_t> inventories_{0};
};

}  // namespace epic::router

#endif  // EPIC_SERVICES_ROUTER_PLACEMENT_PLACEMENT_INDEX_H_
