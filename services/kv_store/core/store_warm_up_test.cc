// Memory is filled again after a start: with what was used most, within its share, and behind everybody else.
#include <thread>

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/testing/faulty_table_store.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr char kTenant[] = "default";
constexpr uint64_t kObjects = 8;

class StoreWarmUpTest : public ::testing::Test {
 protected:
  // Each object is in a store with `objects` places in memory; object i was used i times.
  void SetUp() override {
    Open(100);
    for (uint64_t seed = 0; seed < kObjects; ++seed) {
      const auto created = store_->CreateContext(ContextOf(seed));
      ASSERT_OK(created);
      ids_.push_back(created->record.id);
      ASSERT_OK(PutObject(store_.get(), kTenant, {ids_.back(), {}}, layout_, seed));
      for (uint64_t use = 0; use < seed; ++use) store_->Touch(kTenant, ids_.back());
    }
  }
  void Open(uint64_t objects, WarmUpOptions warm_up = {}) {
    store_.reset();
    auto store = StoreCore::Open(
        std::make_unique<FaultyTableStore>(std::make_unique<MemoryTableStore>(disk_), faults_),
        {.memory_bytes = objects * SlabFootprint(layout_),
         .clock = &clock_,
         .writer = {},
         .warm_up = warm_up});
    ASSERT_OK(store);
    store_ = *std::move(store);
  }
  std::vector<uint64_t> InMemory() {
    std::vector<uint64_t> seeds;
    for (uint64_t seed = 0; seed < kObjects; ++seed) {
      if (store_->Where(kTenant, {ids_[seed], {}}).in_memory) seeds.push_back(seed);
    }
    return seeds;
  }
  static bool Go(uint64_t bytes) { return true; }

  ManualClock clock_;
  const KvLayout layout_ = LayoutOf(8);
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>(1);
  std::unique_ptr<StoreCore> store_;
  std::vector<CacheId> ids_;
};

TEST_F(StoreWarmUpTest, WhatWasUsedComesBackHottestFirstUpToItsShare) {
  Open(10);
  store_->WarmUpPass(Go);
  EXPECT_EQ(InMemory(), (std::vector<uint64_t>{3, 4, 5, 6, 7}));
  EXPECT_EQ(store_->WarmedUp().objects, 5u);
  for (const uint64_t seed : InMemory()) {
    ASSERT_OK_AND_ASSIGN(const AcquireResult got, store_->Acquire(kTenant, {ids_[seed], {}}, layout_));
    EXPECT_TRUE(Holds(*got.object, seed));
  }
}

TEST_F(StoreWarmUpTest, WhatWasNeverUsedStaysOnDisk) {
  Open(100);
  store_->WarmUpPass(Go);
  EXPECT_EQ(InMemory(), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_TRUE(store_->Where(kTenant, {ids_[0], {}}).on_disk);
}

TEST_F(StoreWarmUpTest, AThreadDoesItAfterTheStart) {
  Open(100, {.bytes_per_s = uint64_t{1} << 40, .delay_ms = 0});
  while (!store_->WarmedUp().done) std::this_thread::yield();
  EXPECT_EQ(store_->WarmedUp().objects, 7u);
  Open(100);
  EXPECT_TRUE(store_->WarmedUp().done) << "nothing is asked for";
}

TEST_F(StoreWarmUpTest, ItEndsWhereOthersFillMemoryAndEvictsNothing) {
  Open(4, {.memory_percent = 100});
  std::vector<std::shared_ptr<const KvObject>> held;
  for (const uint64_t seed : {0, 1, 2}) {
    ASSERT_OK_AND_ASSIGN(const AcquireResult got, store_->Acquire(kTenant, {ids_[seed], {}}, layout_));
    held.push_back(got.object);
  }
  held.clear();
  store_->WarmUpPass(Go);
  EXPECT_EQ(InMemory(), (std::vector<uint64_t>{0, 1, 2, 7}));
  EXPECT_TRUE(store_->WarmedUp().done);
}

TEST_F(StoreWarmUpTest, ItWaitsWhileOthersReadFromDisk) {
  Open(100);
  int waits = 0;
  store_->WarmUpPass([&](uint64_t) {
    if (++waits > 3) return true;
    return store_->Acquire(kTenant, {ids_[waits], {}}, layout_).ok();
  });
  EXPECT_EQ(store_->WarmedUp().pauses, 3u);
  EXPECT_EQ(store_->WarmedUp().objects, 4u);
  EXPECT_EQ(InMemory().size(), 7u);
}

TEST_F(StoreWarmUpTest, ItEndsWhenToldTo) {
  Open(100);
  int waits = 0;
  store_->WarmUpPass([&](uint64_t) { return ++waits < 3; });
  EXPECT_EQ(InMemory(), (std::vector<uint64_t>{6, 7}));
}

TEST_F(StoreWarmUpTest, DamageIsDroppedAndADiskInTroubleIsLeftAlone) {
  Open(100);
  faults_->Set({.read_error = 100});
  store_->WarmUpPass(Go);
  EXPECT_EQ(store_->WarmedUp().errors, 1u);
  faults_->Set({.bit_flip = 100});
  store_->WarmUpPass(Go);
  faults_->Set({});
  EXPECT_EQ(store_->WarmedUp().errors, 8u);
  EXPECT_TRUE(InMemory().empty());
  for (uint64_t seed = 0; seed < kObjects; ++seed) {
    ASSERT_OK_AND_ASSIGN(const AcquireResult got, store_->Acquire(kTenant, {ids_[seed], {}}, layout_));
    EXPECT_EQ(got.object != nullptr, seed == 0);
    EXPECT_TRUE(seed == 0 || got.cause == MissCause::kChecksum) << seed;
  }
}

}  // namespace
}  // namespace epic::kv_store
