// The rules of objects, one by one: who leaves memory and disk first, what pins and quotas keep, and what the
// table says about it. Each for both policies.
#include "services/kv_store/core/object_table.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kPage = 4096;  // the footprint of every object here

class ObjectTableTest : public ::testing::TestWithParam<EvictionKind> {
 protected:
  static TenantObjectKey Key(uint64_t seed, const std::string& tenant = "default",
                             CompilePrefixKind prefix = CompilePrefixKind::kNone) {
    return {{tenant, CacheId::Of(tenant, {}, TokensOf(seed, 8))}, {.prefix = prefix, .prefix_tokens = {}}};
  }
  ObjectPtr Object(const KvLayout& layout = LayoutOf(8)) {
    ObjectHead head;
    head.layout = layout;
    return std::make_shared<const HostObject>(std::move(head), AllocateSlabs(arena_.get(), layout));
  }
  // Without a holder.
  void Put(const TenantObjectKey& key) { table_.Publish(key, Object()); }
  void PutOnDisk(const TenantObjectKey& key, uint64_t number) {
    table_.SetDisk(key, {.number = number, .bytes = kPage, .layout = LayoutOf(8)}, 0);
  }
  ObjectTable::Found Find(const TenantObjectKey& key) {
    return table_.Find(RefOf(key.context), key.variant, LayoutOf(8));
  }
  bool Contains(const TenantObjectKey& key) const { return table_.Contains(RefOf(key.context), key.variant); }
  MissCause Cause(const TenantObjectKey& key) { return Find(key).cause; }
  bool InMemory(const TenantObjectKey& key) { return table_.Explain(key).memory.has_value(); }
  bool OnDisk(const TenantObjectKey& key) { return table_.Explain(key).disk.has_value(); }

  ManualClock clock_;
  const std::shared_ptr<Arena> arena_ = *Arena::Create({.capacity_bytes = 1 << 20});
  ObjectTable table_{
      &clock_,
      {.eviction = GetParam(), .quotas = {{"small", {.memory_bytes = 2 * kPage, .disk_bytes = 3 * kPage}}}}};
};

TEST_P(ObjectTableTest, WhatIsHeldStaysAndWhatIsNotUsedGoes) {
  for (uint64_t seed = 0; seed < 10; ++seed) Put(Key(seed));
  const ObjectPtr held = Find(Key(0)).object;
  ASSERT_NE(held, nullptr);
  EXPECT_TRUE(table_.Explain(Key(0)).held);
  EXPECT_NE(Find(Key(1)).object, nullptr);
  const auto foreseen = table_.PreviewEviction(3 * kPage);
  ASSERT_EQ(foreseen.size(), 3u);
  EXPECT_EQ(table_.EvictFromMemory(3 * kPage).size(), 3u);
  for (uint64_t seed = 2; seed < 5; ++seed) {
    EXPECT_EQ(foreseen[seed - 2].first, Key(seed));
    EXPECT_FALSE(Contains(Key(seed))) << seed;
    EXPECT_EQ(Cause(Key(seed)), MissCause::kEvicted);
  }
  EXPECT_EQ(table_.EvictFromMemory(100 * kPage).size(), 6u) << "all but the one that is held";
  EXPECT_TRUE(InMemory(Key(0)));
  EXPECT_EQ(table_.Count(0).objects, 1u);
  EXPECT_EQ(table_.Count(0).leased, 1u);
  EXPECT_EQ(table_.Count(1).leased, 0u) << "the writer holds it";
}

TEST_P(ObjectTableTest, PinsKeepAndAHardOneNeedsACopyOnDisk) {
  Put(Key(1));
  Put(Key(2));
  Put(Key(3));
  table_.SetPin(Key(1).context, {.pin = Pin::kHard, .until_ms = clock_.UnixMs() + 10});
  table_.SetPin(Key(2).context, {.pin = Pin::kSoft, .until_ms = {}});
  EXPECT_EQ(table_.EvictFromMemory(1).size(), 1u);
  EXPECT_FALSE(Contains(Key(3)));
  EXPECT_EQ(table_.EvictFromMemory(2 * kPage).size(), 1u) << "nothing else holds the hard-pinned one";
  EXPECT_FALSE(Contains(Key(2)));
  PutOnDisk(Key(1), 1);
  EXPECT_EQ(table_.PickDiskVictim(), std::nullopt);
  EXPECT_EQ(table_.EvictFromMemory(1).size(), 1u);
  EXPECT_TRUE(OnDisk(Key(1)));
  EXPECT_EQ(table_.Explain(Key(1)).disk->pin, Pin::kHard);
  clock_.AdvanceMs(10);
  ASSERT_TRUE(table_.PickDiskVictim().has_value()) << "the pin has lapsed";
  EXPECT_EQ(table_.PickDiskVictim()->first, Key(1));
}

TEST_P(ObjectTableTest, APinStaysWithAnObjectThroughLoadsWritesAndOtherLayouts) {
  const PinState pin{.pin = Pin::kHard, .until_ms = clock_.UnixMs() + 1000};
  PutOnDisk(Key(1), 1);
  table_.SetPin(Key(1).context, pin);
  ASSERT_TRUE(Find(Key(1)).disk.has_value());
  table_.FinishLoad(Key(1), 1, Object());
  EXPECT_EQ(table_.Explain(Key(1)).memory->pin, Pin::kHard) << "loaded";
  PutOnDisk(Key(1), 2);
  EXPECT_EQ(table_.Explain(Key(1)).disk->pin, Pin::kHard) << "written again";
  table_.Publish(Key(1), Object(LayoutOf(8, 2, 4, 4)));
  EXPECT_EQ(table_.Explain(Key(1)).memory->pin, Pin::kHard) << "replaced";
  table_.RemoveContext(Key(1).context);
  Put(Key(1));
  EXPECT_EQ(table_.Explain(Key(1)).memory->pin, Pin::kNone) << "the pin went with the context";
}

TEST_P(ObjectTableTest, ATenantOverItsQuotaLosesItsOwnObjects) {
  Put(Key(100));
  for (uint64_t seed = 0; seed < 3; ++seed) Put(Key(seed, "small"));
  EXPECT_TRUE(table_.Explain(Key(0, "small")).memory->over_quota());
  EXPECT_EQ(table_.EvictOverQuota().size(), 1u);
  EXPECT_FALSE(Contains(Key(0, "small")));
  EXPECT_TRUE(table_.EvictOverQuota().empty());
  EXPECT_EQ(table_.Explain(Key(1, "small")).memory->tenant_bytes, 2 * kPage);

  const ObjectPtr held = Find(Key(1, "small")).object;
  const ObjectPtr new_one = Object();
  table_.Publish(Key(3, "small"), new_one);
  EXPECT_EQ(table_.EvictOverQuota().size(), 1u);
  EXPECT_TRUE(InMemory(Key(1, "small"))) << "it is held";
  EXPECT_TRUE(InMemory(Key(3, "small"))) << "it is held";
  EXPECT_TRUE(InMemory(Key(100)));
}

TEST_P(ObjectTableTest, QuotasHoldOnDiskToo) {
  PutOnDisk(Key(100), 1);
  for (uint64_t seed = 0; seed < 4; ++seed) PutOnDisk(Key(seed, "small"), 2 + seed);
  EXPECT_EQ(table_.disk_bytes(), 5 * kPage);
  ASSERT_TRUE(table_.PickDiskVictimOverQuota().has_value());
  EXPECT_EQ(table_.PickDiskVictimOverQuota()->first, Key(0, "small"));
  EXPECT_EQ(table_.PickDiskVictim()->second.number, 2u);
  table_.DropDisk(Key(0, "small"), MissCause::kEvicted);
  EXPECT_FALSE(table_.PickDiskVictimOverQuota().has_value());
  ASSERT_TRUE(table_.PickDiskVictim().has_value());
  EXPECT_EQ(Cause(Key(0, "small")), MissCause::kEvicted);
}

TEST_P(ObjectTableTest, ForAQuotaOnDiskANewObjectPushesOutAnOldOneAlsoWhereAllOldOnesAreUsed) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    PutOnDisk(Key(seed, "small"), 1 + seed);
    ASSERT_TRUE(Find(Key(seed, "small")).disk.has_value());
    table_.FinishLoad(Key(seed, "small"), 1 + seed, nullptr);
  }
  const ObjectPtr being_written = Object();
  table_.Publish(Key(9, "small"), being_written);
  PutOnDisk(Key(9, "small"), 9);
  const auto victim = table_.PickDiskVictimOverQuota();
  ASSERT_TRUE(victim.has_value());
  EXPECT_EQ(victim->first, Key(0, "small"));
}

TEST_P(ObjectTableTest, TheDiskKeepsWhatIsAskedForMoreOften) {
  PutOnDisk(Key(1), 1);
  for (int i = 0; i < 5; ++i) {
    const auto found = Find(Key(1));
    ASSERT_TRUE(found.disk.has_value());
    table_.FinishLoad(Key(1), 1, nullptr);
  }
  Put(Key(2));
  EXPECT_FALSE(table_.IsWorthDisk(Key(2)));
  table_.SetPin(Key(2).context, {.pin = Pin::kSoft, .until_ms = {}});
  EXPECT_TRUE(table_.IsWorthDisk(Key(2)));
  table_.SetPin(Key(2).context, {});
  for (int i = 0; i < 5; ++i) Find(Key(2));
  EXPECT_TRUE(table_.IsWorthDisk(Key(2)));
  EXPECT_FALSE(table_.IsWorthDisk(Key(3))) << "it is nowhere";
}

TEST_P(ObjectTableTest, ObjectsOfAContextComeAndGoTogetherAndOneByOne) {
  const auto none = Key(1), bos = Key(1, "default", CompilePrefixKind::kBos),
             system = Key(1, "default", CompilePrefixKind::kSystem);
  for (const auto& key : {bos, none, system}) Put(key);
  Put(Key(2));
  ContextRecord record;
  record.tenant = "default";
  record.id = none.context.id;
  table_.Describe(&record);
  EXPECT_EQ(record.variants, (std::vector{none.variant, bos.variant, system.variant}));
  EXPECT_EQ(record.bytes, 3 * LayoutOf(8).TotalBytes());
  table_.Remove(bos, MissCause::kDeleted);
  EXPECT_FALSE(Contains(bos));
  EXPECT_TRUE(Contains(none));
  EXPECT_TRUE(Contains(system));
  Put(bos);
  table_.Remove(none, MissCause::kChecksum);
  EXPECT_EQ(Cause(none), MissCause::kChecksum);
  EXPECT_TRUE(Contains(bos));
  EXPECT_TRUE(Contains(system));
  table_.RemoveContext(none.context);
  for (const auto& key : {bos, system}) EXPECT_EQ(Cause(key), MissCause::kDeleted);
  EXPECT_TRUE(Contains(Key(2)));
  EXPECT_EQ(arena_->numbers().regions, 1u);
}

TEST_P(ObjectTableTest, AnotherLayoutReplacesAndACopyOfAnotherCompileIsNotTaken) {
  PutOnDisk(Key(1), 7);
  const auto found = Find(Key(1));
  ASSERT_TRUE(found.disk.has_value());
  EXPECT_EQ(found.disk->number, 7u);
  PutOnDisk(Key(1), 8);
  EXPECT_EQ(table_.FinishLoad(Key(1), 7, Object()), nullptr);
  const auto published = table_.Publish(Key(1), Object());
  EXPECT_TRUE(published.first);
  EXPECT_FALSE(published.on_disk);
  EXPECT_TRUE(table_.NeedsWrite(Key(1), published.ticket));
  PutOnDisk(Key(1), 9);
  EXPECT_EQ(table_.DiskCopyOf(Key(1))->number, 9u);
  const auto other = table_.Publish(Key(1), Object(LayoutOf(8, 2, 4, 4)));
  EXPECT_TRUE(other.first);
  EXPECT_EQ(Cause(Key(1)), MissCause::kLayoutMismatch);
  EXPECT_EQ(table_.Count(0).objects, 1u);
}

TEST_P(ObjectTableTest, EveryUseCountsBeforeTheNextObjectGoes) {
  for (uint64_t seed = 0; seed < 10; ++seed) Put(Key(seed));
  // Many more than are kept apart from the order of eviction, the last of them just before it is asked.
  for (uint64_t use = 0; use < 1000; ++use) EXPECT_NE(Find(Key(use % 5)).object, nullptr);
  clock_.AdvanceMs(500);
  EXPECT_NE(Find(Key(5)).object, nullptr);
  clock_.AdvanceMs(70);
  EXPECT_EQ(table_.Explain(Key(5)).memory->idle_ms, 70);
  EXPECT_EQ(table_.Explain(Key(4)).memory->idle_ms, 570);
  EXPECT_EQ(table_.EvictFromMemory(4 * kPage).size(), 4u);
  for (uint64_t seed = 0; seed < 10; ++seed) EXPECT_EQ(InMemory(Key(seed)), seed < 6) << seed;
}

TEST_P(ObjectTableTest, LookupsOfManyThreadsAndEvictionSeeOnlyWholeObjects) {
  constexpr uint64_t kObjects = 16;
  std::vector<std::thread> threads;
  std::atomic<bool> stop{false};
  for (uint64_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      Rng rng(thread);
      while (!stop) {
        const uint64_t seed = rng.Below(kObjects);
        const auto found = Find(Key(seed));
        EXPECT_FALSE(found.disk.has_value());
        EXPECT_TRUE(found.object == nullptr || found.object->layout() == LayoutOf(8));
      }
    });
  }
  Rng rng(77);
  for (int step = 0; step < 5000; ++step) {
    Put(Key(rng.Below(kObjects)));
    if (step % 5 == 0) table_.EvictFromMemory(2 * kPage);
    if (step % 50 == 0) table_.RemoveContext(Key(rng.Below(kObjects)).context);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  table_.EvictFromMemory(kObjects * kPage);
  EXPECT_EQ(table_.Count(0).objects, 0u);
  EXPECT_EQ(arena_->numbers().regions, 0u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ObjectTableTest, ::testing::Values(EvictionKind::kLru, EvictionKind::kS3Fifo),
                         [](const auto& param) {
                           return param.param == EvictionKind::kLru ? "Lru" : "S3Fifo";
                         });

}  // namespace
}  // namespace epic::kv_store
