// Followers of a node: an inventory and the events behind it give the node's tables, at any moment, while
// everything changes; after gaps and restarts too.
#include "services/kv_store/core/node/event_source.h"

#include <atomic>
#include <map>
#include <thread>

#include "services/kv_store/core/node/store_node_fixture.h"

namespace epic::kv_store {
namespace {

using ObjectId = std::tuple<std::string, CacheId, ObjectVariant>;
using ContextId = std::pair<std::string, CacheId>;

// What somebody who is told of a node believes that it holds.
class Follower {
 public:
  explicit Follower(StoreNode* node) : node_(node) {}

  // Until there is no event left. Waits for none.
  void CatchUp(size_t page_size = 7) {
    while (true) {
      const EventPage page = node_->Events(cursor_, page_size);
      if (page.gap) {
        ++gaps_;
        TakeInventory(page_size);
        continue;
      }
      for (const Event& event : page.events) Apply(event);
      cursor_ = page.next;
      if (page.events.empty()) return;
    }
  }
  void Follow(StoreNode* node) { node_ = node; }
  void TakeInventory(size_t page_size) {
    for (InventoryPlace place;;) {
      const InventoryPage page = node_->Inventory(place, page_size);
      if (page.begins) {
        objects_.clear();
        contexts_.clear();
      }
      for (const Event& item : page.items) Apply(item);
      place = page.next;
      cursor_ = page.tail;
      if (page.done) return;
    }
  }
  const std::map<ObjectId, Event>& objects() const { return objects_; }
  const std::map<ContextId, ContextSummary>& contexts() const { return contexts_; }
  uint64_t gaps() const { return gaps_; }

 private:
  void Apply(const Event& event) {
    if (event.kind == EventKind::kContext) {
      const ContextId id{event.tenant, event.id};
      if (event.context.life == ContextLife::kLive) {
        contexts_[id] = event.context;
      } else {
        contexts_.erase(id);
      }
      return;
    }
    const ObjectId id{event.tenant, event.id, event.variant};
    if (event.in_memory || event.on_disk) {
      objects_[id] = event;
      objects_[id].sequence = 0;
    } else {
      objects_.erase(id);
    }
  }

  StoreNode* node_;
  EventCursor cursor_;
  std::map<ObjectId, Event> objects_;
  std::map<ContextId, ContextSummary> contexts_;
  uint64_t gaps_ = 0;
};

class EventSourceTest : public StoreNodeFixture {
 protected:
  static constexpr uint64_t kContexts = 12;

  // One random change of the store.
  void Change(Rng* rng) {
    const uint64_t seed = rng->Below(kContexts);
    const auto created = store_->CreateContext(ContextOf(seed, kTokens));
    if (!created.ok()) return;
    const ObjectKey key{created->record.id, {}};
    switch (rng->Below(10)) {
      case 0:
        store_->DeleteContext(kTenant, key.id).IgnoreError();
        return;
      case 1:
        store_->DropObject(kTenant, key).IgnoreError();
        return;
      case 2:
        store_->SetState(kTenant, key.id, ContextState::kReady, 5, "").IgnoreError();
        return;
      case 3:
        store_->UpdateContext(kTenant, key.id, {.ttl_seconds = int64_t{1000}}).IgnoreError();
        return;
      case 4:
        store_->Housekeep();
        return;
      case 5:
      case 6:
        store_->Acquire(kTenant, key, layout_).IgnoreError();
        return;
      default:
        PutObject(store_.get(), kTenant, key, layout_, seed).IgnoreError();
    }
  }
  void ExpectIsTheNode(Follower* follower) {
    store_->DrainWrites();
    follower->CatchUp();
    uint64_t objects = 0;
    uint64_t contexts = 0;
    for (uint64_t seed = 0; seed < kContexts; ++seed) {
      const CacheId id = CacheId::Of(kTenant, {}, TokensOf(seed, kTokens));
      const ContextSummary summary = store_->SummaryOf({kTenant, id});
      const auto context = follower->contexts().find({kTenant, id});
      ASSERT_EQ(context != follower->contexts().end(), summary.life == ContextLife::kLive);
      if (summary.life == ContextLife::kLive) {
        ++contexts;
        EXPECT_EQ(context->second, summary);
      }
      const ObjectTiers tiers = store_->Where(kTenant, {id, {}});
      const auto object = follower->objects().find({kTenant, id, {}});
      ASSERT_EQ(object != follower->objects().end(), tiers.any());
      if (!tiers.any()) continue;
      ++objects;
      EXPECT_EQ(object->second.in_memory, tiers.in_memory);
      EXPECT_EQ(object->second.on_disk, tiers.on_disk);
      EXPECT_EQ(object->second.generation.counter, tiers.generation);
      EXPECT_EQ(object->second.bytes(), layout_.TotalBytes());
    }
    EXPECT_EQ(follower->objects().size(), objects);
    EXPECT_EQ(follower->contexts().size(), contexts);
  }
};

TEST_F(EventSourceTest, EachChangeOfAnObjectIsTold) {
  Follower follower(node_.get());
  follower.CatchUp();
  const ObjectKey key = Create(1);
  const EventCursor before = node_->Events({}, 1).next;
  PutWhole(key, 7);
  store_->DrainWrites();
  ASSERT_OK(store_->DropObject(kTenant, key));
  const EventPage page = node_->Events(before, 100);
  ASSERT_EQ(page.events.size(), 4u);
  EXPECT_TRUE(page.events[0].in_memory && !page.events[0].on_disk);
  EXPECT_EQ(page.events[0].generation.incarnation, node_->incarnation());
  EXPECT_TRUE(page.events[1].in_memory && page.events[1].on_disk);
  EXPECT_EQ(page.events[1].generation, page.events[0].generation);
  EXPECT_TRUE(page.events[2].in_memory && !page.events[2].on_disk);
  EXPECT_TRUE(!page.events[3].in_memory && !page.events[3].on_disk);
  EXPECT_EQ(page.events[3].bytes(), 0u);
  EXPECT_EQ(page.events[3].id, key.id);
}

TEST_F(EventSourceTest, WhatBecomesOfAContextIsTold) {
  const ObjectKey key = Create(1);
  const EventCursor before = node_->Events({}, 1).next;
  ASSERT_OK(store_->SetState(kTenant, key.id, ContextState::kReady, 5, ""));
  ASSERT_OK(store_->UpdateContext(kTenant, key.id, {.ttl_seconds = int64_t{10}}));
  clock_.AdvanceMs(10'000);
  store_->Housekeep();
  Create(1);
  ASSERT_OK(store_->DeleteContext(kTenant, key.id));
  clock_.AdvanceMs(kTombstoneLifeMs + 1);
  store_->Housekeep();
  const EventPage page = node_->Events(before, 100);
  ASSERT_EQ(page.events.size(), 6u);
  EXPECT_EQ(page.events[0].context.state, ContextState::kReady);
  EXPECT_TRUE(page.events[1].context.expires_at_ms.has_value());
  EXPECT_EQ(page.events[2].context.life, ContextLife::kExpired);
  EXPECT_EQ(page.events[3].context.life, ContextLife::kLive);
  EXPECT_EQ(page.events[3].context.state, ContextState::kCompiling);
  EXPECT_EQ(page.events[4].context.life, ContextLife::kDeleted);
  EXPECT_EQ(page.events[5].context.life, ContextLife::kUnknown);
}

TEST_F(EventSourceTest, FollowersOfRandomChangesKnowWhatTheNodeHolds) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    OpenStore(5 * SlabFootprint(layout_));  // short: objects come and go
    OpenNode({.reservations = {}, .leases = {}, .event_ring = 16});
    Follower follower(node_.get());
    for (int round = 0; round < 20; ++round) {
      for (uint64_t changes = rng.Below(40); changes > 0; --changes) Change(&rng);
      if (rng.Below(2) == 0) follower.CatchUp();
      if (rng.Below(4) == 0) ExpectIsTheNode(&follower);
      ASSERT_FALSE(HasFailure());
    }
    ExpectIsTheNode(&follower);
    EXPECT_GT(follower.gaps(), 1u);
    ASSERT_FALSE(HasFailure());
  }
}

TEST_F(EventSourceTest, ANewLifeOfTheNodeIsNeverMistakenForTheOldOne) {
  Follower follower(node_.get());
  for (uint64_t seed = 0; seed < 5; ++seed) PutWhole(Create(seed), seed);
  ExpectIsTheNode(&follower);
  OpenStore();
  follower.Follow(node_.get());
  const uint64_t gaps = follower.gaps();
  ExpectIsTheNode(&follower);
  EXPECT_EQ(follower.gaps(), gaps + 1);
  for (const auto& [id, object] : follower.objects()) EXPECT_FALSE(object.in_memory);
}

TEST_F(EventSourceTest, AnInventoryThatARestartInterruptsBeginsAgain) {
  for (uint64_t seed = 0; seed < 5; ++seed) Create(seed);
  const InventoryPage first = node_->Inventory({}, 2);
  EXPECT_TRUE(first.begins);
  EXPECT_FALSE(node_->Inventory(first.next, 2).begins);
  OpenStore();
  const InventoryPage again = node_->Inventory(first.next, 2);
  EXPECT_TRUE(again.begins);
  EXPECT_EQ(again.items.size(), 2u);
}

// For ThreadSanitizer too: changes from several threads while followers take inventories and read on.
TEST_F(EventSourceTest, FollowersKeepUpWithChangesFromManyThreads) {
  OpenStore(5 * SlabFootprint(layout_));
  OpenNode({.reservations = {}, .leases = {}, .event_ring = 64});
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (uint64_t writer = 0; writer < 3; ++writer) {
    threads.emplace_back([&, writer] {
      Rng rng(writer);
      for (int change = 0; change < 1500; ++change) Change(&rng);
    });
  }
  std::vector<Follower> followers(2, Follower(node_.get()));
  std::vector<std::thread> readers;
  for (Follower& follower : followers) {
    readers.emplace_back([&] {
      while (!done) follower.CatchUp(5);
    });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  for (std::thread& thread : readers) thread.join();
  for (Follower& follower : followers) ExpectIsTheNode(&follower);
}

}  // namespace
}  // namespace epic::kv_store
