// The index against plain maps. First: after any messages at all, in any order, it answers as a map would
// that goes by the rules of placement_index.h. Second: where messages are late, doubled, lost and nodes
// restart, but the caller does what the index asks for, it ends up knowing what the nodes hold. A seed names
// all draws; it is the test's parameter, so --gtest_filter=*/17 replays one.
#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/base/random.h"
#include "services/router/placement/placement_index.h"

namespace epic::router {
namespace {

constexpr uint64_t kKeys = 60;
constexpr size_t kNodes = 5;

// Half of the keys share the bits that choose shard and slot: chains are long and move when one goes.
PlaceKey KeyOf(uint64_t number) {
  Rng rng(number + 1);
  const uint64_t high = rng.Next(), low = rng.Next();
  return number % 2 == 0 ? PlaceKey{high, low} : PlaceKey{high & ~uint64_t{0xFFFF}, low & ~uint64_t{0xFFF}};
}

using Answer = std::map<NodeSlot, Tiers>;

std::map<uint64_t, std::pair<Answer, PlaceFacts>> AnswersOf(PlacementIndex* index) {
  std::vector<PlaceKey> keys;
  for (uint64_t number = 0; number < kKeys; ++number) keys.push_back(KeyOf(number));
  PlaceAnswers answers;
  index->Find(keys, &answers);
  std::map<uint64_t, std::pair<Answer, PlaceFacts>> all;
  for (uint64_t number = 0; number < kKeys; ++number) {
    auto& [holders, facts] = all[number];
    for (const Holder& holder : answers.HoldersOf(number)) {
      EXPECT_TRUE(holders.emplace(holder.node, holder.tiers).second) << "a node twice";
    }
    facts = answers.found[number].facts;
  }
  return all;
}

// The rules of the header, with maps and with lives that never come round.
class NaiveIndex {
 public:
  void Up(size_t node) {
    if (nodes_[node].state == State::kDown) nodes_[node] = {.state = State::kWanting};
  }
  void Down(size_t node) { nodes_[node] = {}; }
  void Events(size_t at, uint64_t incarnation, bool gap, const std::vector<PlaceEvent>& events) {
    Node& node = nodes_[at];
    if (node.state == State::kWanting && incarnation != node.incarnation) node.current = 0;
    if (node.state != State::kFollowing) return;
    if (incarnation != node.incarnation) {
      node.state = State::kWanting;
      node.current = 0;
      return;
    }
    for (const PlaceEvent& event : events) {
      if (event.sequence > node.next) {
        gap = true;
        break;
      }
      if (event.sequence < node.next) continue;
      Put(at, node.current, event.item);
      ++node.next;
    }
    if (gap) node.state = State::kWanting;
  }
  void Inventory(size_t at, const InventoryBatch& batch) {
    Node& node = nodes_[at];
    if (batch.begins ? node.state == State::kDown : node.state != State::kGathering) return;
    if (batch.begins) {
      node.gathered = ++lives_;
      node.state = State::kGathering;
    }
    for (const PlaceItem& item : batch.items) Put(at, node.gathered, item);
    if (!batch.done) return;
    node = {.state = State::kFollowing,
            .incarnation = batch.tail_incarnation,
            .next = batch.tail_sequence,
            .current = node.gathered};
  }
  std::map<uint64_t, std::pair<Answer, PlaceFacts>> Answers() {
    std::map<uint64_t, std::pair<Answer, PlaceFacts>> all;
    for (uint64_t number = 0; number < kKeys; ++number) {
      auto& [holders, facts] = all[number];
      for (const auto& [node, held] : held_[KeyOf(number)]) {
        const Node& of = nodes_[node];
        if (held.second == of.current || held.second == of.gathered) {
          holders[static_cast<NodeSlot>(node)] = held.first;
        }
      }
      if (!holders.empty()) facts = facts_[KeyOf(number)];
    }
    return all;
  }

 private:
  enum class State { kDown, kWanting, kGathering, kFollowing };
  struct Node {
    State state = State::kDown;
    uint64_t incarnation = 0;
    uint64_t next = 0;
    uint64_t current = 0;  // 0: none
    uint64_t gathered = 0;
  };
  void Put(size_t node, uint64_t life, const PlaceItem& item) {
    if (item.tiers == kNowhere) {
      held_[item.key].erase(node);
    } else {
      held_[item.key][node] = {item.tiers, life};
      facts_[item.key] = item.facts;
    }
  }

  uint64_t lives_ = 0;
  std::map<size_t, Node> nodes_;
  std::map<PlaceKey, std::map<size_t, std::pair<Tiers, uint64_t>>> held_;
  std::map<PlaceKey, PlaceFacts> facts_;
};

PlaceItem DrawItem(Rng* rng, uint64_t number) {
  return {.key = KeyOf(number),
          .tiers = static_cast<Tiers>(rng->Below(3) == 0 ? kNowhere : rng->Below(kAllTiers + 1)),
          .facts = {.extent = rng->Next(), .rows = static_cast<uint32_t>(rng->Below(1000)), .model = 3}};
}

class PlacementIndexModelTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(PlacementIndexModelTest, AnyMessagesInAnyOrderLeaveWhatAMapWouldHold) {
  Rng rng(GetParam());
  PlacementIndex index({.max_nodes = 8, .max_bytes = 1 << 20, .max_holders = 64, .shards = 2});
  NaiveIndex naive;
  for (size_t node = 0; node < kNodes; ++node)
    ASSERT_EQ(*index.AddNode({.name = std::to_string(node)}), node);
  for (int move = 0; move < 600; ++move) {
    const auto node = static_cast<NodeSlot>(rng.Below(kNodes));
    const NodeAsk ask = index.AskOf(node);
    const uint64_t incarnation = rng.Below(12) == 0 ? rng.Below(4) : ask.incarnation;
    const uint64_t what = rng.Below(100);
    if (what < 4) {
      index.NodeDown(node);
      naive.Down(node);
    } else if (what < 14) {
      index.NodeUp(node);
      naive.Up(node);
    } else if (what < 64) {
      // From a little before the next event on; now and then one is left out, or two change places.
      std::vector<PlaceEvent> events;
      uint64_t sequence = ask.sequence - std::min(ask.sequence, rng.Below(3));
      for (uint64_t count = rng.Below(12); count > 0; --count) {
        if (rng.Below(60) == 0) ++sequence;
        events.push_back({sequence++, DrawItem(&rng, rng.Below(kKeys))});
      }
      if (events.size() > 1 && rng.Below(20) == 0) std::swap(events.front(), events.back());
      const bool gap = rng.Below(40) == 0;
      index.ApplyEvents(node, {.incarnation = incarnation, .gap = gap, .events = events});
      naive.Events(node, incarnation, gap, events);
    } else if (what < 98) {
      std::vector<PlaceItem> items;
      for (uint64_t count = rng.Below(20); count > 0; --count) {
        items.push_back(DrawItem(&rng, rng.Below(kKeys)));
        items.back().tiers |= kHostTier;
      }
      const InventoryBatch batch{.begins = ask.wanted == Wanted::kInventory || rng.Below(20) == 0,
                                 .items = items,
                                 .done = rng.Below(3) == 0,
                                 .tail_incarnation = rng.Below(4),
                                 .tail_sequence = 1 + rng.Below(50)};
      index.ApplyInventory(node, batch);
      naive.Inventory(node, batch);
    } else {
      index.Sweep(static_cast<uint32_t>(rng.Below(100)));
    }
    ASSERT_EQ(AnswersOf(&index), naive.Answers()) << "seed " << GetParam() << ", move " << move;
  }
}

// A node that holds keys, with the events and inventories of event_source.h.
class TrueNode {
 public:
  void Change(Rng* rng) {
    const uint64_t number = rng->Below(kKeys);
    PlaceItem item = DrawItem(rng, number);
    item.facts = {.extent = number};
    held[number] = item.tiers;
    ring_.push_back({end_++, item});
    if (ring_.size() > 20) ring_.pop_front();
  }
  void Restart(Rng* rng) {
    incarnation = rng->Next();
    ring_.clear();
    end_ = 1;
    for (auto& [number, tiers] : held) tiers &= static_cast<Tiers>(~kHostTier);
  }
  std::pair<bool, std::vector<PlaceEvent>> Read(uint64_t of_incarnation, uint64_t sequence) const {
    const uint64_t first = ring_.empty() ? end_ : ring_.front().sequence;
    if (of_incarnation != incarnation || sequence < first || sequence > end_) return {true, {}};
    return {false, {ring_.begin() + static_cast<std::ptrdiff_t>(sequence - first), ring_.end()}};
  }
  uint64_t end() const { return end_; }

  uint64_t incarnation = 1;
  std::map<uint64_t, Tiers> held;

 private:
  std::deque<PlaceEvent> ring_;
  uint64_t end_ = 1;
};

// Does what the index asks for, one message at a time, with all that can go wrong on the way.
class Follower {
 public:
  Follower(PlacementIndex* index, NodeSlot slot, TrueNode* node, Rng* rng)
      : index_(index), slot_(slot), node_(node), rng_(rng) {}

  void Step(bool faults) {
    const NodeAsk ask = index_->AskOf(slot_);
    if (ask.wanted == Wanted::kEvents) {
      auto [gap, events] = node_->Read(ask.incarnation, ask.sequence);
      if (faults && !events.empty() && rng_->Below(10) == 0) events.erase(events.begin());
      if (faults && rng_->Below(5) == 0 && last_incarnation_ == node_->incarnation)
        events.insert(events.begin(), last_.begin(), last_.end());
      const bool restarted = ask.incarnation != node_->incarnation;
      index_->ApplyEvents(slot_,
                          {.incarnation = restarted && rng_->Below(2) ? ask.incarnation : node_->incarnation,
                           .gap = gap,
                           .events = events});
      last_ = events;
      last_incarnation_ = node_->incarnation;
    } else if (ask.wanted != Wanted::kNothing) {
      Page(ask.wanted == Wanted::kInventory || place_incarnation_ != node_->incarnation);
    } else {
      index_->NodeUp(slot_);
    }
  }

 private:
  void Page(bool begins) {
    if (begins) {
      place_ = 0;
      place_incarnation_ = node_->incarnation;
      tail_ = node_->end();
    }
    std::vector<PlaceItem> items;
    for (; place_ < kKeys && items.size() < 15; ++place_) {
      const Tiers tiers = node_->held[place_];
      if (tiers != kNowhere) items.push_back({KeyOf(place_), tiers, {.extent = place_}});
    }
    index_->ApplyInventory(slot_, {.begins = begins,
                                   .items = items,
                                   .done = place_ == kKeys,
                                   .tail_incarnation = place_incarnation_,
                                   .tail_sequence = tail_});
  }

  PlacementIndex* const index_;
  const NodeSlot slot_;
  TrueNode* const node_;
  Rng* const rng_;
  std::vector<PlaceEvent> last_;
  uint64_t last_incarnation_ = 0;
  uint64_t place_ = 0;
  uint64_t place_incarnation_ = 0;
  uint64_t tail_ = 0;
};

TEST_P(PlacementIndexModelTest, WhoDoesWhatTheIndexAsksForEndsWithWhatTheNodesHold) {
  Rng rng(GetParam() + 1'000'000);
  PlacementIndex index({.max_nodes = 8, .max_bytes = 1 << 20, .max_holders = 64, .shards = 2});
  std::vector<TrueNode> nodes(kNodes);
  std::vector<Follower> followers;
  for (size_t node = 0; node < kNodes; ++node) {
    ASSERT_EQ(*index.AddNode({.name = std::to_string(node)}), node);
    followers.emplace_back(&index, static_cast<NodeSlot>(node), &nodes[node], &rng);
  }
  for (int move = 0; move < 3000; ++move) {
    const size_t node = rng.Below(kNodes);
    const uint64_t what = rng.Below(200);
    if (what < 100) {
      nodes[node].Change(&rng);
    } else if (what < 102) {
      nodes[node].Restart(&rng);
    } else if (what < 104) {
      index.NodeDown(static_cast<NodeSlot>(node));
    } else {
      followers[node].Step(true);
    }
  }
  for (int step = 0; step < 20; ++step) {
    for (Follower& follower : followers) follower.Step(false);
  }
  const auto answers = AnswersOf(&index);
  for (uint64_t number = 0; number < kKeys; ++number) {
    Answer truth;
    for (size_t node = 0; node < kNodes; ++node) {
      if (nodes[node].held[number] != kNowhere) truth[static_cast<NodeSlot>(node)] = nodes[node].held[number];
    }
    EXPECT_EQ(answers.at(number).first, truth) << "seed " << GetParam() << ", key " << number;
  }
  EXPECT_GT(index.counts().gaps, 0u);
  EXPECT_GT(index.counts().duplicates, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PlacementIndexModelTest, ::testing::Range<uint64_t>(1, 101));

}  // namespace
}  // namespace epic::router
