#include "services/router/placement/placement_index.h"

#include <algorithm>
#include <limits>

#include "common/base/check.h"

namespace epic::router {
namespace {

constexpr uint32_t kLives = 1u << kLifeBits;
// A life is given out again only after all holders of its last time were swept.
constexpr uint32_t kLivesBetweenSweeps = kLives - 64;

}  // namespace

PlacementIndex::PlacementIndex(const IndexOptions& options)
    : options_(options),
      lives_(options.max_nodes),
      nodes_(options.max_nodes),
      registry_(options.max_nodes),
      stores_(std::make_shared<const Stores>()) {
  EPIC_CHECK(options.max_nodes > 0 && options.max_nodes <= kMaxNodes);
  EPIC_CHECK(options.shards > 0 && options.shards <= 4096 && (options.shards & (options.shards - 1)) == 0);
  for (auto& lives : lives_) lives.store(PackLives(kNoLife, kNoLife));
  const PlaceTable::Options table{.max_bytes = options.max_bytes / options.shards,
                                  .max_holders = options.max_holders};
  for (uint32_t at = 0; at < options.shards; ++at) shards_.push_back(std::make_unique<Shard>(table, lives_));
}

absl::StatusOr<NodeSlot> PlacementIndex::AddNode(const IndexNode& node) {
  MutexLock lock(&registry_mu_);
  size_t free = registry_.size();
  for (size_t at = registry_.size(); at-- > 0;) {
    if (!registry_[at].used) free = at;
    if (registry_[at].used && registry_[at].node.name == node.name) {
      return absl::AlreadyExistsError("placement: there is a node named " + node.name);
    }
  }
  if (free == registry_.size()) {
    return absl::ResourceExhaustedError("placement: more nodes than " + std::to_string(registry_.size()));
  }
  registry_[free] = {.node = node, .used = true, .up = false};
  RenewStores();
  return static_cast<NodeSlot>(free);
}

void PlacementIndex::RemoveNode(NodeSlot slot) {
  Hide(slot, State::kDown);
  MutexLock lock(&registry_mu_);
  registry_[slot] = Registered{};
  RenewStores();
}

NodeAsk PlacementIndex::NodeUp(NodeSlot slot) {
  SetUp(slot, true);
  Node& node = nodes_[slot];
  MutexLock lock(&node.mu);
  if (node.state == State::kDown) {
    node.state = State::kWanting;
    node.incarnation = 0;
  }
  return AskUnder(node);
}

void PlacementIndex::NodeDown(NodeSlot slot) {
  Hide(slot, State::kDown);
  SetUp(slot, false);
}

void PlacementIndex::Hide(NodeSlot slot, State state) {
  Node& node = nodes_[slot];
  MutexLock lock(&node.mu);
  SetLives(slot, &node, kNoLife, kNoLife);
  node.state = state;
  node.incarnation = 0;
}

void PlacementIndex::SetUp(NodeSlot slot, bool up) {
  MutexLock lock(&registry_mu_);
  EPIC_CHECK(slot < registry_.size() && registry_[slot].used);
  if (registry_[slot].up == up) return;
  registry_[slot].up = up;
  RenewStores();
}

void PlacementIndex::RenewStores() {
  auto stores = std::make_shared<Stores>();
  for (size_t at = 0; at < registry_.size(); ++at) {
    const Registered& each = registry_[at];
    if (!each.used || each.node.kind != NodeKind::kStore) continue;
    stores->nodes.push_back({each.node.name, each.node.zone});
    stores->slots.push_back(static_cast<NodeSlot>(at));
    stores->up.push_back(each.up);
  }
  stores_ = std::move(stores);
}

uint16_t PlacementIndex::NewLife(Node* node) {
  if (node->unswept >= kLivesBetweenSweeps) {
    // Only holders of lives that this node gave out before are swept; none of them comes while its lock is
    // held.
    for (const auto& shard : shards_) {
      MutexLock lock(&shard->mu);
      shard->table.Sweep(std::numeric_limits<uint32_t>::max());
      shard->table.Sweep(std::numeric_limits<uint32_t>::max());
    }
    node->unswept = 0;
  }
  ++node->unswept;
  const uint16_t life = node->next_life;
  node->next_life = static_cast<uint16_t>((life + 1) % kLives);
  return life;
}

void PlacementIndex::SetLives(NodeSlot slot, Node* node, uint16_t current, uint16_t gathered) {
  node->current = current;
  node->gathered = gathered;
  lives_[slot].store(PackLives(current, gathered), std::memory_order_release);
}

NodeAsk PlacementIndex::AskUnder(const Node& node) {
  switch (node.state) {
    case State::kDown:
      return {};
    case State::kWanting:
      return {.wanted = Wanted::kInventory};
    case State::kGathering:
      return {.wanted = Wanted::kPage};
    case State::kFollowing:
      break;
  }
  return {.wanted = Wanted::kEvents, .incarnation = node.incarnation, .sequence = node.next};
}

NodeAsk PlacementIndex::AskOf(NodeSlot slot) const {
  const Node& node = nodes_[slot];
  MutexLock lock(&node.mu);
  return AskUnder(node);
}

void PlacementIndex::Put(const PlaceItem& item, NodeSlot slot, uint16_t life) {
  Shard& shard = ShardOf(item.key);
  MutexLock lock(&shard.mu);
  shard.table.Put(item, slot, life);
}

NodeAsk PlacementIndex::ApplyEvents(NodeSlot slot, const EventBatch& batch) {
  Node& node = nodes_[slot];
  MutexLock lock(&node.mu);
  if (node.state == State::kWanting && node.current != kNoLife && batch.incarnation != node.incarnation) {
    // It has a gap already, and now it lives anew: what it held before is nothing to answer with.
    SetLives(slot, &node, kNoLife, kNoLife);
    ++incarnations_;
  }
  if (node.state != State::kFollowing) {
    dropped_ += batch.events.size();
    return AskUnder(node);
  }
  if (batch.incarnation != node.incarnation) {
    SetLives(slot, &node, kNoLife, kNoLife);
    node.state = State::kWanting;
    ++incarnations_;
    return AskUnder(node);
  }
  uint64_t applied = 0, duplicates = 0;
  bool gap = batch.gap;
  for (const PlaceEvent& event : batch.events) {
    if (event.sequence < node.next) {
      ++duplicates;
    } else if (event.sequence == node.next) {
      Put(event.item, slot, node.current);
      ++node.next;
      ++applied;
    } else {
      gap = true;
      break;
    }
  }
  events_ += applied;
  duplicates_ += duplicates;
  if (gap) {
    node.state = State::kWanting;
    ++gaps_;
  }
  return AskUnder(node);
}

NodeAsk PlacementIndex::ApplyInventory(NodeSlot slot, const InventoryBatch& batch) {
  Node& node = nodes_[slot];
  MutexLock lock(&node.mu);
  const bool awaited = batch.begins ? node.state != State::kDown : node.state == State::kGathering;
  if (!awaited) return AskUnder(node);
  if (batch.begins) {
    SetLives(slot, &node, node.current, NewLife(&node));
    node.state = State::kGathering;
  }
  for (const PlaceItem& item : batch.items) Put(item, slot, node.gathered);
  if (batch.done) {
    SetLives(slot, &node, node.gathered, kNoLife);
    node.state = State::kFollowing;
    node.incarnation = batch.tail_incarnation;
    node.next = batch.tail_sequence;
    ++inventories_;
  }
  return AskUnder(node);
}

void PlacementIndex::Correct(NodeSlot slot, uint64_t incarnation, const PlaceItem& item) {
  Node& node = nodes_[slot];
  MutexLock lock(&node.mu);
  if (node.state == State::kFollowing && node.incarnation == incarnation) Put(item, slot, node.current);
}

void PlacementIndex::Find(std::span<const PlaceKey> keys, PlaceAnswers* answers) {
  answers->found.clear();
  answers->holders.clear();
  for (const PlaceKey& key : keys) {
    Shard& shard = ShardOf(key);
    MutexLock lock(&shard.mu);
    shard.table.Find(key, answers);
  }
}

std::vector<NodeSlot> PlacementIndex::HomesOf(std::string_view key, size_t replicas) const {
  std::shared_ptr<const Stores> stores;
  {
    MutexLock lock(&registry_mu_);
    stores = stores_;
  }
  std::vector<NodeSlot> homes;
  const std::vector<size_t> order = RendezvousOrder(stores->nodes, key);
  for (size_t turn = 0; turn < std::min(order.size(), replicas + 1); ++turn) {
    if (stores->up[order[turn]]) homes.push_back(stores->slots[order[turn]]);
  }
  return homes;
}

void PlacementIndex::Sweep(uint32_t entries) {
  for (const auto& shard : shards_) {
    MutexLock lock(&shard->mu);
    shard->table.Sweep(entries);
  }
}

PlacementIndex::Counts PlacementIndex::counts() const {
  Counts counts{.events = events_,
                .duplicates = duplicates_,
                .dropped = dropped_,
                .gaps = gaps_,
                .incarnations = incarnations_,
                .inventories = inventories_};
  for (const auto& shard : shards_) {
    MutexLock lock(&shard->mu);
    const PlaceTable::Counts of = shard->table.counts();
    counts.entries += of.entries;
    counts.memory_bytes += of.memory_bytes;
    counts.evicted += of.evicted;
    counts.reclaimed += of.reclaimed;
    counts.holders_not_kept += of.holders_not_kept;
  }
  return counts;
}

}  // namespace epic::router
