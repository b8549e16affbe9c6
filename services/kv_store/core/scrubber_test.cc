// The scrubber's rate and end; what a pass finds, drops and counts.
#include "services/kv_store/core/scrubber.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/testing/faulty_table_store.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr std::string_view kTenant = "default";

TEST(ScrubberTest, WaitsAsLongAsTheRateAsksFor) {
  EXPECT_EQ(Scrubber::WaitMs(8 << 20, 8 << 20), 1001);
  EXPECT_EQ(Scrubber::WaitMs(0, 8 << 20), 1);
  EXPECT_LE(Scrubber::WaitMs(~uint64_t{0}, 1), 3'600'001);
  EXPECT_EQ(Scrubber::WaitMs(5, 0), 0);
}

TEST(ScrubberTest, StopEndsAPassThatWaits) {
  std::atomic<bool> waits{false};
  bool ended = false;
  Scrubber scrubber({.bytes_per_s = 1, .period_ms = 0}, [&](const ScrubPace& pace) {
    waits = true;
    waits.notify_all();
    ended = !pace(uint64_t{1} << 40);
  });
  waits.wait(false);
  scrubber.Stop();
  EXPECT_TRUE(ended);
}

class StoreScrubTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(store_, StoreCore::Open(std::make_unique<FaultyTableStore>(
                                                     std::make_unique<MemoryTableStore>(disk_), faults_),
                                                 {.clock = &clock_, .writer = {}}));
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      ASSERT_OK(store_->CreateContext(ContextOf(seed)));
      ASSERT_OK(PutObject(store_.get(), kTenant, {IdOf(seed), {}}, layout_, seed));
    }
    store_->DrainWrites();
  }
  static CacheId IdOf(uint64_t seed) { return CacheId::Of(kTenant, {}, TokensOf(seed, 8)); }
  ScrubCounts Scrub() {
    const ScrubCounts before = store_->Scrubbed();
    store_->ScrubPass([](uint64_t) { return true; });
    const ScrubCounts after = store_->Scrubbed();
    return {.passes = after.passes - before.passes,
            .objects = after.objects - before.objects,
            .bytes = after.bytes - before.bytes,
            .damaged = after.damaged - before.damaged,
            .errors = after.errors - before.errors};
  }

  const KvLayout layout_ = LayoutOf(8);
  ManualClock clock_;
  const std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  const std::shared_ptr<Faults> faults_ = std::make_shared<Faults>(1);
  std::unique_ptr<StoreCore> store_;
};

TEST_F(StoreScrubTest, ReadsEveryCopyOnDiskOnceAPass) {
  const ScrubCounts counts = Scrub();
  EXPECT_EQ(counts.passes, 1u);
  EXPECT_EQ(counts.objects, 5u);
  EXPECT_EQ(counts.bytes, 5 * layout_.TotalBytes());
  EXPECT_EQ(counts.damaged + counts.errors, 0u);
}

TEST_F(StoreScrubTest, DropsWhatIsDamagedAndCountsIt) {
  const uint64_t before = store_->Usage().disk_bytes;
  {
    MemoryTableStore tables(disk_);
    WriteBatch batch;  // one slab's bytes change under the store
    batch.Put(Table::kSlabs, SlabRowKey(2, 1, 0), std::string(layout_.LayerBytes(), 'x'));
    ASSERT_OK(tables.Write(batch, Sync::kYes));
  }
  const ScrubCounts counts = Scrub();
  EXPECT_EQ(counts.damaged, 1u);
  EXPECT_EQ(counts.objects, 4u);
  EXPECT_LT(store_->Usage().disk_bytes, before);
  EXPECT_EQ(Scrub().damaged, 0u) << "it is gone";
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    ASSERT_OK_AND_ASSIGN(const AcquireResult hit, store_->Acquire(kTenant, {IdOf(seed), {}}, layout_));
    ASSERT_NE(hit.object, nullptr) << "memory has it still";
    EXPECT_TRUE(Holds(*hit.object, seed));
  }
}

TEST_F(StoreScrubTest, ADiskThatCannotBeReadForAWhileKeepsItsObjects) {
  faults_->Set({.read_error = 100});
  const ScrubCounts counts = Scrub();
  EXPECT_EQ(counts.errors, 5u);
  EXPECT_EQ(counts.damaged, 0u);
  faults_->Set({});
  EXPECT_EQ(Scrub().objects, 5u);
}

TEST_F(StoreScrubTest, EndsBetweenTwoLayersWhenItsPaceSaysSo) {
  int layers = 0;
  store_->ScrubPass([&](uint64_t) { return ++layers < 3; });
  EXPECT_EQ(layers, 3);
  EXPECT_EQ(store_->Scrubbed().passes, 0u);
  EXPECT_EQ(store_->Scrubbed().damaged, 0u);
}

TEST_F(StoreScrubTest, DeletedAndDroppedObjectsAreNotMissed) {
  ASSERT_OK(store_->DeleteContext(kTenant, IdOf(1)));
  ASSERT_OK(store_->DropObject(kTenant, {IdOf(2), {}}));
  const ScrubCounts counts = Scrub();
  EXPECT_EQ(counts.objects, 3u);
  EXPECT_EQ(counts.damaged + counts.errors, 0u);
}

}  // namespace
}  // namespace epic::kv_store
