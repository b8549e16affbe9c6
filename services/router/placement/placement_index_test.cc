#include "services/router/placement/placement_index.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/testing/status_matchers.h"

namespace epic::router {
namespace {

PlaceKey KeyOf(uint64_t number) {
  Rng rng(number * 2654435761u + 1);
  return {rng.Next(), rng.Next()};
}

PlaceItem ItemOf(uint64_t number, Tiers tiers) {
  return {.key = KeyOf(number), .tiers = tiers, .facts = {.extent = number * 10, .rows = 100}};
}

IndexOptions SmallOptions() { return {.max_nodes = 16, .max_bytes = 1 << 20, .max_holders = 8, .shards = 4}; }

// An index with stores s0 and s1 that follow incarnation 7 from sequence 1 on.
class PlacementIndexTest : public ::testing::Test {
 protected:
  PlacementIndexTest() : index_(SmallOptions()) {
    for (const char* name : {"s0", "s1"}) {
      slots_.push_back(*index_.AddNode({.name = name}));
      EXPECT_EQ(index_.NodeUp(slots_.back()), NodeAsk{.wanted = Wanted::kInventory});
      Fill(slots_.back(), 7, {});
    }
  }

  // A whole inventory in one page, events to come from 1 on.
  void Fill(NodeSlot slot, uint64_t incarnation, const std::vector<PlaceItem>& items) {
    const NodeAsk ask = index_.ApplyInventory(
        slot,
        {.begins = true, .items = items, .done = true, .tail_incarnation = incarnation, .tail_sequence = 1});
    EXPECT_EQ(ask, (NodeAsk{.wanted = Wanted::kEvents, .incarnation = incarnation, .sequence = 1}));
  }
  NodeAsk Tell(NodeSlot slot, uint64_t sequence, const PlaceItem& item, uint64_t incarnation = 7) {
    const PlaceEvent event{.sequence = sequence, .item = item};
    return index_.ApplyEvents(slot, {.incarnation = incarnation, .events = {&event, 1}});
  }
  std::vector<Holder> HoldersOf(uint64_t number) {
    const PlaceKey key = KeyOf(number);
    index_.Find({&key, 1}, &answers_);
    std::vector<Holder> holders(answers_.holders);
    std::sort(holders.begin(), holders.end());
    return holders;
  }

  PlacementIndex index_;
  std::vector<NodeSlot> slots_;
  PlaceAnswers answers_;
};
using Holders = std::vector<Holder>;

TEST_F(PlacementIndexTest, AddedMovedAndRemovedAreStatesOfOneKeyAtOneNode) {
  EXPECT_EQ(HoldersOf(1), Holders{});
  Tell(slots_[0], 1, ItemOf(1, kHostTier));
  Tell(slots_[1], 1, ItemOf(1, kHostTier | kDiskTier));
  EXPECT_EQ(HoldersOf(1), (Holders{{slots_[0], kHostTier}, {slots_[1], kHostTier | kDiskTier}}));
  EXPECT_EQ(answers_.found[0].facts, ItemOf(1, kHostTier).facts);
  Tell(slots_[0], 2, ItemOf(1, kDiskTier));
  EXPECT_EQ(HoldersOf(1), (Holders{{slots_[0], kDiskTier}, {slots_[1], kHostTier | kDiskTier}}));
  Tell(slots_[0], 3, ItemOf(1, kNowhere));
  Tell(slots_[1], 2, ItemOf(1, kNowhere));
  EXPECT_EQ(HoldersOf(1), Holders{});
  EXPECT_EQ(index_.counts().entries, 0u);
}

TEST_F(PlacementIndexTest, AnEventAgainChangesNothing) {
  Tell(slots_[0], 1, ItemOf(1, kHostTier));
  Tell(slots_[0], 2, ItemOf(1, kNowhere));
  EXPECT_EQ(Tell(slots_[0], 1, ItemOf(1, kHostTier)),
            (NodeAsk{.wanted = Wanted::kEvents, .incarnation = 7, .sequence = 3}));
  EXPECT_EQ(HoldersOf(1), Holders{});
  EXPECT_EQ(index_.counts().duplicates, 1u);
}

TEST_F(PlacementIndexTest, AGapAsksForAnInventoryAndKeepsWhatWasKnown) {
  Tell(slots_[0], 1, ItemOf(1, kHostTier));
  EXPECT_EQ(Tell(slots_[0], 3, ItemOf(2, kHostTier)), NodeAsk{.wanted = Wanted::kInventory});
  EXPECT_EQ(HoldersOf(1), (Holders{{slots_[0], kHostTier}}));
  EXPECT_EQ(HoldersOf(2), Holders{});
  const PlaceItem item = ItemOf(2, kHostTier);
  EXPECT_EQ(index_.ApplyInventory(slots_[0], {.begins = true, .items = {&item, 1}}),
            NodeAsk{.wanted = Wanted::kPage});
  EXPECT_EQ(HoldersOf(1), (Holders{{slots_[0], kHostTier}}));
  EXPECT_EQ(HoldersOf(2), (Holders{{slots_[0], kHostTier}}));
  index_.ApplyInventory(slots_[0], {.done = true, .tail_incarnation = 7, .tail_sequence = 4});
  EXPECT_EQ(HoldersOf(1), Holders{});
  EXPECT_EQ(HoldersOf(2), (Holders{{slots_[0], kHostTier}}));
}

TEST_F(PlacementIndexTest, AnotherIncarnationHidesAllOfTheLastOneAtOnce) {
  Tell(slots_[0], 1, ItemOf(1, kHostTier));
  Tell(slots_[1], 1, ItemOf(1, kHostTier));
  EXPECT_EQ(Tell(slots_[0], 2, ItemOf(2, kHostTier), 8), NodeAsk{.wanted = Wanted::kInventory});
  EXPECT_EQ(HoldersOf(1), (Holders{{slots_[1], kHostTier}}));
  EXPECT_EQ(index_.counts().incarnations, 1u);
}

TEST_F(PlacementIndexTest, ANodeThatIsDownIsInNoAnswerUntilItsInventory) {
  Tell(slots_[0], 1, ItemOf(1, kHostTier));
  index_.NodeDown(slots_[0]);
  EXPECT_EQ(HoldersOf(1), Holders{});
  EXPECT_EQ(Tell(slots_[0], 2, ItemOf(1, kDiskTier)), NodeAsk{});
  EXPECT_EQ(index_.NodeUp(slots_[0]), NodeAsk{.wanted = Wanted::kInventory});
  EXPECT_EQ(HoldersOf(1), Holders{});
  Fill(slots_[0], 7, {ItemOf(1, kDiskTier)});
  EXPECT_EQ(HoldersOf(1), (Holders{{slots_[0], kDiskTier}}));
}

TEST_F(PlacementIndexTest, AnInventoryThatBeginsAgainVoidsTheFirst) {
  const PlaceItem first = ItemOf(1, kHostTier), second = ItemOf(2, kHostTier);
  index_.ApplyInventory(slots_[0], {.begins = true, .items = {&first, 1}});
  index_.ApplyInventory(slots_[0], {.begins = true, .items = {&second, 1}});
  EXPECT_EQ(HoldersOf(1), Holders{});
  EXPECT_EQ(HoldersOf(2), (Holders{{slots_[0], kHostTier}}));
}

TEST_F(PlacementIndexTest, APageThatNobodyAskedForIsDropped) {
  const PlaceItem item = ItemOf(1, kHostTier);
  index_.ApplyInventory(slots_[0], {.items = {&item, 1}, .done = true, .tail_incarnation = 9});
  EXPECT_EQ(HoldersOf(1), Holders{});
  EXPECT_EQ(index_.AskOf(slots_[0]), (NodeAsk{.wanted = Wanted::kEvents, .incarnation = 7, .sequence = 1}));
}

TEST_F(PlacementIndexTest, WhatANodeAnsweredCorrectsTheIndexInItsIncarnationOnly) {
  index_.Correct(slots_[0], 7, ItemOf(1, kHostTier));
  index_.Correct(slots_[1], 6, ItemOf(1, kHostTier));
  EXPECT_EQ(HoldersOf(1), (Holders{{slots_[0], kHostTier}}));
  index_.Correct(slots_[0], 7, ItemOf(1, kNowhere));
  EXPECT_EQ(HoldersOf(1), Holders{});
}

TEST_F(PlacementIndexTest, HoldersBeyondTheBoundAreCountedAndStoresGoFirst) {
  std::vector<NodeSlot> workers;
  for (int at = 0; at < 9; ++at) {
    workers.push_back(*index_.AddNode({.name = "w" + std::to_string(at), .kind = NodeKind::kLinkWorker}));
    index_.NodeUp(workers.back());
    Fill(workers.back(), 7, {ItemOf(1, kDeviceTier)});
  }
  EXPECT_EQ(HoldersOf(1).size(), 8u);
  EXPECT_EQ(index_.counts().holders_not_kept, 1u);
  Tell(slots_[0], 1, ItemOf(1, kHostTier));
  const Holders holders = HoldersOf(1);
  EXPECT_EQ(holders.size(), 8u);
  EXPECT_TRUE(std::count(holders.begin(), holders.end(), Holder{slots_[0], kHostTier}));
  for (const NodeSlot worker : workers) index_.NodeDown(worker);
  EXPECT_EQ(HoldersOf(1), (Holders{{slots_[0], kHostTier}}));
}

TEST_F(PlacementIndexTest, BeyondItsMemoryTheColdestKeysAreForgotten) {
  constexpr uint64_t kHot = 500, kCold = 60'000;
  uint64_t sequence = 1;
  for (uint64_t number = 0; number < kHot; ++number) Tell(slots_[0], sequence++, ItemOf(number, kHostTier));
  for (uint64_t number = 0; number < kCold; ++number) {
    Tell(slots_[0], sequence++, ItemOf(kHot + number, kHostTier));
    HoldersOf(number % kHot);
    HoldersOf((number + kHot / 2) % kHot);
  }
  const PlacementIndex::Counts counts = index_.counts();
  EXPECT_EQ(counts.entries + counts.evicted, kHot + kCold);
  EXPECT_LE(counts.memory_bytes, SmallOptions().max_bytes * 5 / 4);
  EXPECT_GE(counts.entries, 10'000u);
  uint64_t hot = 0;
  for (uint64_t number = 0; number < kHot; ++number) hot += HoldersOf(number).size();
  EXPECT_GE(hot, kHot * 95 / 100);
}

TEST_F(PlacementIndexTest, SweepingTakesOutWhatIsHidden) {
  for (uint64_t number = 0; number < 1000; ++number) Tell(slots_[0], number + 1, ItemOf(number, kHostTier));
  index_.NodeDown(slots_[0]);
  EXPECT_EQ(index_.counts().entries, 1000u);
  for (int round = 0; round < 60; ++round) index_.Sweep(10);
  EXPECT_EQ(index_.counts().entries, 0u);
  EXPECT_EQ(index_.counts().reclaimed, 1000u);
}

TEST_F(PlacementIndexTest, HoldersOfALifeLongAgoDoNotComeBackWhenLivesComeRound) {
  Tell(slots_[0], 1, ItemOf(1, kHostTier));
  for (uint32_t life = 0; life < (2u << kLifeBits); ++life) {
    Fill(slots_[0], life + 8, {});
    ASSERT_EQ(HoldersOf(1), Holders{}) << life;
  }
}

TEST_F(PlacementIndexTest, ThereIsRoomForSoManyNodesEachWithAName) {
  for (int at = 0; at < 14; ++at) EXPECT_OK(index_.AddNode({.name = "n" + std::to_string(at)}).status());
  EXPECT_EQ(index_.AddNode({.name = "s0"}).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(index_.AddNode({.name = "more"}).status().code(), absl::StatusCode::kResourceExhausted);
  Tell(slots_[0], 1, ItemOf(1, kHostTier));
  index_.RemoveNode(slots_[0]);
  const absl::StatusOr<NodeSlot> again = index_.AddNode({.name = "more"});
  ASSERT_OK(again.status());
  EXPECT_EQ(*again, slots_[0]);
  index_.NodeUp(*again);
  Fill(*again, 1, {});
  EXPECT_EQ(HoldersOf(1), Holders{});
}

TEST(PlacementHomesTest, HomesAreTheNodesOfTheStoresGroupThatAreUp) {
  PlacementIndex index(SmallOptions());
  std::vector<PlacedNode> nodes;
  std::vector<NodeSlot> slots;
  for (size_t at = 0; at < 9; ++at) {
    nodes.push_back({"store-" + std::to_string(at), std::string(1, "abc"[at % 3])});
    slots.push_back(*index.AddNode({.name = nodes.back().name, .zone = nodes.back().zone}));
    index.NodeUp(slots.back());
  }
  ASSERT_OK(index.AddNode({.name = "worker", .kind = NodeKind::kLinkWorker}).status());
  for (int key = 0; key < 100; ++key) {
    const std::string text = std::to_string(key);
    const std::vector<size_t> order = RendezvousOrder(nodes, text);
    std::vector<NodeSlot> group = {slots[order[0]], slots[order[1]], slots[order[2]]};
    EXPECT_EQ(index.HomesOf(text, 2), group);
    index.NodeDown(group[0]);
    EXPECT_EQ(index.HomesOf(text, 2), std::vector<NodeSlot>(group.begin() + 1, group.end()));
    index.NodeUp(group[0]);
  }
  // The golden order of rendezvous_test.cc.
  EXPECT_EQ(index.HomesOf("k", 2), (std::vector<NodeSlot>{slots[4], slots[8], slots[3]}));
}

TEST(PlaceKeyTest, KeysDifferInEveryPartOfANameAndAreTheSameEverywhere) {
  const CacheId id = *CacheId::Parse("ctx_mzxw6ytboi5dgnbvgy3tqojqgezdgnbv");
  Digest variant;
  variant.bytes[31] = 1;
  Digest other = variant;
  other.bytes[3] = 9;
  std::vector<PlaceKey> keys = {PlaceKey::OfContext(id), PlaceKey::OfObject(id, other)};
  // Every character counts.
  for (size_t at = 4; at < 36; ++at) {
    std::string text = id.text();
    text[at] = text[at] == 'a' ? 'b' : 'a';
    keys.push_back(PlaceKey::OfContext(*CacheId::Parse(text)));
  }
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::unique(keys.begin(), keys.end()), keys.end());
}

}  // namespace
}  // namespace epic::router
