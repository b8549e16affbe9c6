// StoreCore with its slabs in extents, on files in memory: what a full, a gone and a slow disk do to it, what
// a crash leaves, what an erased context leaves, and that no space leaks.
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/extents/extent_slab_store.h"
#include "services/kv_store/testing/faulty_file_system.h"
#include "services/kv_store/testing/faulty_table_store.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr std::string_view kTenant = "default";
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint32_t kTokens = 64;
constexpr FileFaults kGone = {.read_error = 100, .write_error = 100, .sync_error = 100, .disk_full = 0};

class StoreOnExtentsTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(); }
  void Open() {
    store_.reset();
    StoreOptions options{.memory_bytes = memory_bytes_, .disk_bytes_max = disk_bytes_, .clock = &clock_};
    options.make_slabs =
        [this](std::function<absl::Status()> sync) -> absl::StatusOr<std::unique_ptr<SlabStore>> {
      auto slabs = ExtentSlabStore::Open(files_,
                                         {.folder = "/slabs",
                                          .max_bytes = disk_bytes_ / 10 * 9,
                                          .file_bytes = kMiB,
                                          .grow_bytes = 64 << 10,
                                          .piece_bytes = 16 << 10},
                                         std::move(sync));
      if (slabs.ok()) slabs_ = slabs->get();
      return slabs;
    };
    ASSERT_OK_AND_ASSIGN(
        store_, StoreCore::Open(std::make_unique<FaultyTableStore>(std::make_unique<MemoryTableStore>(disk_),
                                                                   table_faults_),
                                options));
  }
  static CacheId IdOf(uint64_t seed) { return CacheId::Of(kTenant, {}, TokensOf(seed, kTokens)); }
  void Put(uint64_t seed, Durability durability = Durability::kReplicas) {
    NewContext context = ContextOf(seed, kTokens);
    context.durability = durability;
    ASSERT_OK(store_->CreateContext(context));
    ASSERT_OK(PutObject(store_.get(), kTenant, {IdOf(seed), {}}, layout_, seed));
  }
  // Whether the object is there; its bytes are compared.
  bool Hits(uint64_t seed) {
    const auto result = store_->Acquire(kTenant, {IdOf(seed), {}}, layout_);
    EXPECT_OK(result);
    if (!result.ok() || result->object == nullptr) return false;
    EXPECT_TRUE(Holds(*result->object, seed)) << "wrong bytes: " << seed;
    return true;
  }
  uint64_t Hits(uint64_t first, uint64_t last) {
    uint64_t hits = 0;
    for (uint64_t seed = first; seed <= last; ++seed) hits += Hits(seed) ? 1 : 0;
    return hits;
  }

  const KvLayout layout_ = LayoutOf(kTokens, 4, 2, 128);  // 4 slabs of 64 KiB
  uint64_t memory_bytes_ = 2 * kMiB;
  uint64_t disk_bytes_ = 16 * kMiB;
  ManualClock clock_;
  const std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  const std::shared_ptr<Faults> table_faults_ = std::make_shared<Faults>(1);
  const std::shared_ptr<FaultyFileSystem> files_ = std::make_shared<FaultyFileSystem>(1);
  std::unique_ptr<StoreCore> store_;
  ExtentSlabStore* slabs_ = nullptr;  // of store_
};

TEST_F(StoreOnExtentsTest, ObjectsSurviveARestartAndComeFromTheExtents) {
  for (uint64_t seed = 1; seed <= 20; ++seed) Put(seed);
  store_->DrainWrites();
  EXPECT_GE(slabs_->PhysicalBytes(), 20 * layout_.TotalBytes());
  Open();
  EXPECT_EQ(Hits(1, 20), 20u);
  EXPECT_EQ(store_->Disk().errors, 0u);
}

TEST_F(StoreOnExtentsTest, TheDiskStaysWithinItsLimitAndEvictsForNewObjects) {
  disk_bytes_ = 4 * kMiB;
  Open();
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Put(seed);
    Hits(seed);
    store_->DrainWrites();
    EXPECT_LE(slabs_->PhysicalBytes(), disk_bytes_);
  }
  EXPECT_GE(Hits(1, 60), 12u);
  Open();
  EXPECT_GE(Hits(1, 60), 8u);
}

TEST_F(StoreOnExtentsTest, ADurableObjectIsThereAfterTheWorstOfCrashes) {
  Put(1, Durability::kObject);
  Put(2, Durability::kObject);
  files_->CutPowerAfter(0);
  table_faults_->Set({.write_error = 100});
  store_.reset();
  table_faults_->Set({});
  Rng rng(1);
  disk_->Crash(&rng);
  files_->Crash(&rng);
  Open();
  EXPECT_EQ(Hits(1, 2), 2u);
}

TEST_F(StoreOnExtentsTest, AFullDiskMakesRoomOnceAndElseTheStoreServesFromMemory) {
  files_->SetCapacity(2 * kMiB);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Put(seed);
    EXPECT_TRUE(Hits(seed));
    store_->DrainWrites();
  }
  EXPECT_FALSE(store_->Disk().full) << "what was evicted made room";
  EXPECT_GT(store_->Disk().errors, 0u);
  EXPECT_GE(Hits(1, 20), 6u);
  files_->SetFaults({.disk_full = 100});
  Put(21);
  store_->DrainWrites();
  EXPECT_TRUE(store_->Disk().full);
  EXPECT_TRUE(Hits(21));
  files_->SetFaults({});
  files_->SetCapacity(64 * kMiB);
  Put(22);
  store_->DrainWrites();
  EXPECT_FALSE(store_->Disk().full);
  Open();
  EXPECT_TRUE(Hits(22));
}

TEST_F(StoreOnExtentsTest, ADiskThatIsGoneForAWhileCostsObjectsAndNothingElse) {
  for (uint64_t seed = 1; seed <= 4; ++seed) Put(seed);
  store_->DrainWrites();
  Open();  // nothing is in memory
  files_->SetFaults(kGone);
  EXPECT_FALSE(Hits(1)) << "a miss";
  EXPECT_GT(store_->Disk().errors, 0u);
  for (uint64_t seed = 11; seed <= 13; ++seed) Put(seed);
  store_->DrainWrites();
  EXPECT_EQ(Hits(11, 13), 3u) << "from memory";
  const uint64_t errors = store_->Disk().errors;
  files_->SetFaults({});
  Put(14);
  store_->DrainWrites();
  EXPECT_EQ(store_->Disk().errors, errors);
  Open();
  EXPECT_TRUE(Hits(14)) << "it is used again by itself";
  EXPECT_EQ(Hits(2, 4), 3u) << "what was not asked for meanwhile is there";
}

TEST_F(StoreOnExtentsTest, AStuckDiskDoesNotHoldUpWhatIsInMemory) {
  Put(1);
  store_->DrainWrites();
  files_->SetGate(false);
  Put(2);
  files_->AwaitHeld(1);
  EXPECT_EQ(Hits(1, 2), 2u);
  ASSERT_OK(store_->CreateContext(ContextOf(3, kTokens)));
  files_->SetGate(true);
  store_->DrainWrites();
  Open();
  EXPECT_EQ(Hits(1, 2), 2u);
}

TEST_F(StoreOnExtentsTest, ADamagedObjectIsAMissIsCountedAndGone) {
  Put(1);
  Put(2);
  store_->DrainWrites();
  store_.reset();
  ASSERT_TRUE(files_->Damage("/slabs/extents-000000.dat", 4096 + 100'000));
  Open();
  EXPECT_EQ(Hits(1, 2), 1u);
  EXPECT_EQ(store_->Disk().errors, 1u);
  const auto miss = store_->Acquire(kTenant, {IdOf(1), {}}, layout_);
  ASSERT_OK(miss);
  EXPECT_EQ(miss->cause, MissCause::kChecksum);
  Put(1);
  EXPECT_TRUE(Hits(1));
}

TEST_F(StoreOnExtentsTest, WhatIsDeletedIsErasedWithinADayAlsoAcrossARestart) {
  for (const bool restart : {false, true}) {
    Put(1);
    Put(2);
    store_->DrainWrites();
    const std::string trace = SlabOf(layout_, 2, 1).substr(5000, 48);
    EXPECT_TRUE(files_->Contains(trace));
    ASSERT_OK(store_->DeleteContext(kTenant, IdOf(1)));
    if (restart) Open();
    clock_.AdvanceMs(int64_t{24} * 3600 * 1000);
    store_->Housekeep();
    EXPECT_FALSE(files_->Contains(trace));
    EXPECT_TRUE(Hits(2));
  }
}

TEST_F(StoreOnExtentsTest, NoSpaceLeaksThroughFaultsAndReplacements) {
  Rng rng(5);
  for (int round = 0; round < 200; ++round) {
    const uint64_t seed = 1 + rng.Below(10);
    const bool bad = rng.Below(3) == 0;
    files_->SetFaults(bad ? FileFaults{.write_error = 20, .sync_error = 20, .disk_full = 10} : FileFaults{});
    table_faults_->Set(bad ? FaultRates{.write_error = 40, .disk_full = 20} : FaultRates{});
    store_->CreateContext(ContextOf(seed, kTokens)).IgnoreError();
    PutObject(store_.get(), kTenant, {IdOf(seed), {}}, layout_, seed).IgnoreError();
    if (rng.Below(4) == 0) store_->DeleteContext(kTenant, IdOf(seed)).IgnoreError();
    if (rng.Below(4) == 0) store_->DropObject(kTenant, {IdOf(seed), {}}).IgnoreError();
    store_->DrainWrites();
  }
  files_->SetFaults({});
  table_faults_->Set({});
  for (uint64_t seed = 1; seed <= 10; ++seed) ASSERT_OK(store_->DeleteContext(kTenant, IdOf(seed)));
  store_->Housekeep();
  clock_.AdvanceMs(int64_t{24} * 3600 * 1000);
  store_->Housekeep();
  EXPECT_LE(slabs_->PhysicalBytes(), 16 * kSlabPageBytes) << "headers of the files only";
}

TEST_F(StoreOnExtentsTest, ObjectsOfRowsAreReadOnAndReplacedByExtents) {
  {
    ASSERT_OK_AND_ASSIGN(
        store_, StoreCore::Open(std::make_unique<MemoryTableStore>(disk_), {.clock = &clock_, .writer = {}}));
    for (uint64_t seed = 1; seed <= 5; ++seed) Put(seed);
  }
  Open();
  EXPECT_EQ(Hits(1, 5), 5u);
  EXPECT_EQ(slabs_->ReusableBytes(), 0u);
  ASSERT_OK(store_->DropObject(kTenant, {IdOf(1), {}}));
  ASSERT_OK(PutObject(store_.get(), kTenant, {IdOf(1), {}}, layout_, 1));
  store_->DrainWrites();
  EXPECT_GT(slabs_->PhysicalBytes(), layout_.TotalBytes());
  Open();
  EXPECT_EQ(Hits(1, 5), 5u);
}

}  // namespace
}  // namespace epic::kv_store
