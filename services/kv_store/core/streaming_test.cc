// Objects that are read up from disk layer by layer: what readers get while the load is under way, who shares
// it, and what becomes of it when it fails, when nobody wants it any more, and when the store ends.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "services/kv_store/core/memory_slab_store.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/testing/gated_slab_store.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr std::string_view kTenant = "default";
constexpr uint32_t kTokens = 64;
constexpr uint32_t kLayers = 4;
const KvLayout kLayout = LayoutOf(kTokens, kLayers, 2, 8);  // layers of 4096 bytes

class StreamingTest : public ::testing::Test {
 protected:
  // In units of the object.
  void Open(uint64_t memory_objects = 4) {
    store_.reset();
    auto store = StoreCore::Open(
        std::make_unique<MemoryTableStore>(tables_),
        {.memory_bytes = memory_objects * kLayout.TotalBytes(),
         .disk_bytes_max = 64 << 20,
         .make_slabs = [this](const auto&) -> absl::StatusOr<std::unique_ptr<SlabStore>> {
           return std::make_unique<GatedSlabStore>(std::make_unique<MemorySlabStore>(slabs_), gate_);
         },
         .small_object_bytes = 0,
         .writer = {}});
    ASSERT_OK(store);
    store_ = *std::move(store);
  }
  // An object that is on disk alone.
  ObjectKey PutCold(uint64_t seed) {
    const ObjectKey key = Put(seed);
    const uint64_t memory = store_->arena().capacity_bytes() / kLayout.TotalBytes();
    store_.reset();
    Open(memory);
    return key;
  }
  ObjectKey Put(uint64_t seed) {
    const auto created = store_->CreateContext(ContextOf(seed, kTokens));
    EXPECT_OK(created);
    const ObjectKey key{created->record.id, {}};
    EXPECT_OK(PutObject(store_.get(), kTenant, key, kLayout, seed));
    store_->DrainWrites();
    return key;
  }
  AcquireResult Acquire(const ObjectKey& key) {
    const auto result = store_->AcquireStreaming(kTenant, key, kLayout);
    EXPECT_OK(result);
    return *result;
  }
  static bool IsLayerOf(const KvObject& object, uint32_t layer, uint64_t seed) {
    return AsText(object.Layer(layer)) == SlabOf(kLayout, layer, seed);
  }
  uint64_t UsedBytes() { return store_->Usage().memory_bytes; }

  const std::shared_ptr<MemoryDisk> tables_ = std::make_shared<MemoryDisk>();
  const std::shared_ptr<MemorySlabDisk> slabs_ = std::make_shared<MemorySlabDisk>();
  const std::shared_ptr<SlabGate> gate_ = std::make_shared<SlabGate>();
  std::unique_ptr<StoreCore> store_;
};

TEST_F(StreamingTest, LayersAreThereWhileLaterOnesAreStillRead) {
  Open();
  const ObjectKey key = PutCold(1);
  gate_->CloseAt(2);
  const AcquireResult got = Acquire(key);
  ASSERT_NE(got.object, nullptr);
  ASSERT_OK(got.object->WaitLayer(0));
  ASSERT_OK(got.object->WaitLayer(1));
  gate_->WaitForAReader();
  EXPECT_EQ(got.object->ReadyLayers(), 2u);
  EXPECT_TRUE(IsLayerOf(*got.object, 0, 1));
  EXPECT_TRUE(IsLayerOf(*got.object, 1, 1));
  EXPECT_FALSE(store_->Where(kTenant, key).in_memory) << "before it is whole";
  std::atomic<int> told{0};
  got.object->OnLayer(1, [&] { ++told; });
  EXPECT_EQ(told, 1);
  got.object->OnLayer(3, [&] { ++told; });
  EXPECT_EQ(told, 1);
  gate_->Open();
  ASSERT_OK(got.object->WaitLayer(3));
  store_->DrainLoads();
  EXPECT_EQ(told, 2);
  EXPECT_EQ(got.object->ReadyLayers(), kLayers);
  EXPECT_TRUE(Holds(*got.object, 1));
  EXPECT_TRUE(store_->Where(kTenant, key).in_memory);
  EXPECT_EQ(store_->Acquire(kTenant, key, kLayout)->object, got.object);
  EXPECT_EQ(gate_->reads(), kLayers);
  EXPECT_EQ(store_->Usage().leased_objects, 1u);
  EXPECT_EQ(store_->Usage().objects_in_memory, 1u);
}

TEST_F(StreamingTest, ReadersOfAnObjectShareItsLoad) {
  Open();
  const ObjectKey key = PutCold(1);
  gate_->CloseAt(1);
  const AcquireResult first = Acquire(key), second = Acquire(key);
  ASSERT_NE(first.object, nullptr);
  EXPECT_EQ(first.object, second.object);
  std::shared_ptr<const KvObject> whole;
  std::thread reader([&] { whole = store_->Acquire(kTenant, key, kLayout)->object; });
  gate_->Open();
  reader.join();
  EXPECT_EQ(whole, first.object) << "one that wants it whole waits for the same load";
  EXPECT_EQ(whole->ReadyLayers(), kLayers);
  EXPECT_TRUE(Holds(*second.object, 1));
  EXPECT_EQ(gate_->reads(), kLayers);
}

TEST_F(StreamingTest, AStreamingReaderJoinsTheLoadOfOneThatWantsItWhole) {
  Open();
  const ObjectKey key = PutCold(1);
  gate_->CloseAt(1);
  std::shared_ptr<const KvObject> whole;
  std::thread reader([&] { whole = store_->Acquire(kTenant, key, kLayout)->object; });
  gate_->WaitForAReader();
  const AcquireResult streaming = Acquire(key);
  ASSERT_NE(streaming.object, nullptr);
  ASSERT_OK(streaming.object->WaitLayer(0));
  EXPECT_TRUE(IsLayerOf(*streaming.object, 0, 1));
  gate_->Open();
  reader.join();
  EXPECT_EQ(whole, streaming.object);
  EXPECT_EQ(gate_->reads(), kLayers);
}

TEST_F(StreamingTest, AnErrorEndsTheLoadForAllItsReadersAndIsAMissFromThenOn) {
  for (const auto& [fault, cause] : {std::pair(SlabGate::Fault::kError, MissCause::kIoError),
                                     std::pair(SlabGate::Fault::kDamage, MissCause::kChecksum)}) {
    Open();
    const uint64_t seed = cause == MissCause::kIoError ? 1 : 2;
    const ObjectKey key = PutCold(seed);
    const uint64_t before = UsedBytes();
    gate_->CloseAt(2);
    gate_->Break(2, fault);
    AcquireResult first = Acquire(key), second = Acquire(key);
    ASSERT_NE(first.object, nullptr);
    ASSERT_OK(second.object->WaitLayer(1));
    std::atomic<int> told{0};
    first.object->OnLayer(3, [&] { ++told; });
    gate_->Open();
    const absl::Status status = first.object->WaitLayer(2);
    EXPECT_EQ(status.code(),
              cause == MissCause::kIoError ? absl::StatusCode::kUnavailable : absl::StatusCode::kDataLoss);
    EXPECT_EQ(second.object->WaitLayer(3), status);
    EXPECT_OK(first.object->WaitLayer(1)) << "what was verified stays right";
    EXPECT_TRUE(IsLayerOf(*first.object, 0, seed));
    EXPECT_TRUE(IsLayerOf(*second.object, 1, seed));
    const AcquireResult again = Acquire(key);
    EXPECT_EQ(again.object, nullptr) << "at once";
    EXPECT_EQ(again.cause, cause);
    EXPECT_FALSE(store_->Where(kTenant, key).any()) << "the copy is dropped";
    store_->DrainLoads();
    EXPECT_EQ(told, 1) << "who waits hears of the end, too";
    EXPECT_EQ(store_->Usage().leased_objects, 1u);
    first.object.reset();
    second.object.reset();
    EXPECT_EQ(UsedBytes(), before);
    EXPECT_EQ(store_->Usage().leased_objects, 0u);
    gate_->Break(SlabGate::kNone, SlabGate::Fault::kNone);
  }
}

TEST_F(StreamingTest, ALoadGoesOnWhenItsReadersLetGo) {
  Open();
  const ObjectKey key = PutCold(1);
  gate_->CloseAt(1);
  AcquireResult staying = Acquire(key), leaving = Acquire(key);
  leaving.object.reset();
  gate_->WaitForAReader();
  staying.object.reset();
  gate_->Open();
  store_->DrainLoads();
  EXPECT_TRUE(store_->Where(kTenant, key).in_memory);
  EXPECT_EQ(store_->Usage().leased_objects, 0u);
  EXPECT_TRUE(Holds(*Acquire(key).object, 1));
  EXPECT_EQ(gate_->reads(), kLayers);
}

TEST_F(StreamingTest, EvictionTakesNoMemoryThatIsReadInto) {
  Open(2);
  const ObjectKey key = PutCold(1);
  gate_->CloseAt(1);
  AcquireResult got = Acquire(key);
  gate_->WaitForAReader();
  std::shared_ptr<const KvObject> reading = std::move(got.object);
  // Each of them pushes the one before it out of the other half.
  for (uint64_t seed = 2; seed < 10; ++seed) {
    Put(seed);
    EXPECT_EQ(reading->ReadyLayers(), 1u);
  }
  reading.reset();  // not even then
  for (uint64_t seed = 10; seed < 14; ++seed) Put(seed);
  gate_->Open();
  store_->DrainLoads();
  const auto whole = store_->Acquire(kTenant, key, kLayout);
  ASSERT_NE(whole->object, nullptr);
  EXPECT_TRUE(Holds(*whole->object, 1));
}

TEST_F(StreamingTest, WhatIsDeletedWhileItIsReadIsReadToItsEndByThoseWhoHaveIt) {
  for (const bool put_again : {false, true}) {
    Open();
    const ObjectKey key = PutCold(1);
    gate_->CloseAt(2);
    AcquireResult got = Acquire(key);
    gate_->WaitForAReader();
    ASSERT_OK(store_->DropObject(kTenant, key));
    EXPECT_EQ(Acquire(key).object, nullptr);
    if (put_again) {
      ASSERT_OK(PutObject(store_.get(), kTenant, key, kLayout, 7));
    }
    gate_->Open();
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      const absl::Status status = got.object->WaitLayer(layer);
      // Where the slabs were gone already, the load ends there.
      if (!status.ok()) {
        EXPECT_TRUE(absl::IsNotFound(status)) << status;
        break;
      }
      EXPECT_TRUE(IsLayerOf(*got.object, layer, 1));
    }
    store_->DrainLoads();
    got.object.reset();
    const AcquireResult now = Acquire(key);
    EXPECT_EQ(now.object != nullptr, put_again);
    if (put_again) {
      EXPECT_TRUE(Holds(*now.object, 7));
    }
    ASSERT_OK(store_->DeleteContext(kTenant, key.id));
  }
}

TEST_F(StreamingTest, TheEndOfTheStoreEndsLoadsAndLosesNothing) {
  Open();
  const ObjectKey one = Put(1), two = Put(2), three = PutCold(3);
  const std::vector<ObjectKey> keys = {one, two, three};
  gate_->CloseAt(1);
  std::vector<AcquireResult> got;
  for (const ObjectKey& key : keys) got.push_back(Acquire(key));  // one more than there are threads
  gate_->WaitForAReader();
  std::thread stopper([&] { store_->Stop(); });
  gate_->Open();
  stopper.join();
  for (uint64_t i = 0; i < keys.size(); ++i) {
    ASSERT_NE(got[i].object, nullptr);
    const absl::Status status = got[i].object->WaitLayer(kLayers - 1);
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
    const AcquireResult again = Acquire(keys[i]);
    ASSERT_NE(again.object, nullptr) << "a store that was stopped still reads";
    EXPECT_EQ(again.object->ReadyLayers(), kLayers);
    EXPECT_TRUE(Holds(*again.object, i + 1));
  }
}

TEST_F(StreamingTest, WhatFindsNoMemoryIsAMissAndStaysOnDisk) {
  Open(2);
  const ObjectKey key = PutCold(1);
  const ObjectKey two = Put(2), three = Put(3);
  const auto held_two = store_->Acquire(kTenant, two, kLayout),
             held_three = store_->Acquire(kTenant, three, kLayout);
  ASSERT_NE(held_two->object, nullptr);
  ASSERT_NE(held_three->object, nullptr);
  const AcquireResult missed = Acquire(key);
  EXPECT_EQ(missed.object, nullptr);
  EXPECT_EQ(missed.cause, MissCause::kNoMemory);
  EXPECT_TRUE(store_->Where(kTenant, key).on_disk);
}

TEST_F(StreamingTest, WhatComesLateIsLostUnlessItIsWholeAllTheSame) {
  const std::shared_ptr<Arena> arena = *Arena::Create({.capacity_bytes = 1 << 20});
  for (const bool whole : {false, true}) {
    ObjectHead head;
    head.layout = kLayout;
    const auto progress = std::make_shared<LoadProgress>();
    const HostObject object(std::move(head), AllocateSlabs(arena.get(), kLayout), progress);
    progress->SetReady(whole ? kLayers - 1 : kLayers - 2);
    EXPECT_FALSE(object.IsLost());
    progress->Fail(absl::UnavailableError("too late"));
    progress->SetReady(kLayers - 1);
    EXPECT_EQ(object.IsLost(), !whole);
    EXPECT_OK(object.WaitLayer(kLayers - 2));
    EXPECT_EQ(object.WaitLayer(kLayers - 1).ok(), whole);
    EXPECT_EQ(object.ReadyLayers(), whole ? kLayers : kLayers - 1);
  }
}

// Each reader looks at each layer when it is there; nobody sees another's bytes, or none.
TEST_F(StreamingTest, ManyReadersOfFewObjectsInLittleMemorySeeWholeLayers) {
  constexpr uint64_t kObjects = 6;
  constexpr int kThreads = 4, kSteps = 400;
  Open(3);
  std::vector<ObjectKey> keys;
  for (uint64_t seed = 0; seed < kObjects; ++seed) keys.push_back(Put(seed));
  std::atomic<uint64_t> layers{0}, missed{0};
  const auto read = [&](uint64_t thread) {
    Rng rng(thread);
    for (int step = 0; step < kSteps; ++step) {
      const uint64_t seed = rng.Below(kObjects);
      if (rng.Below(50) == 0) {
        EXPECT_OK(store_->DropObject(kTenant, keys[seed]));
        PutObject(store_.get(), kTenant, keys[seed], kLayout, seed).status().IgnoreError();
      }
      const auto got = rng.Below(3) == 0 ? store_->Acquire(kTenant, keys[seed], kLayout)
                                         : store_->AcquireStreaming(kTenant, keys[seed], kLayout);
      if (got->object == nullptr) {
        ++missed;
        continue;
      }
      const uint64_t until = 1 + rng.Below(kLayers);
      for (uint32_t layer = 0; layer < until && got->object->WaitLayer(layer).ok(); ++layer) {
        EXPECT_TRUE(IsLayerOf(*got->object, layer, seed));
        ++layers;
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread) threads.emplace_back(read, thread);
  for (std::thread& thread : threads) thread.join();
  store_->DrainWrites();
  store_->DrainLoads();
  EXPECT_GT(layers.load(), 1000u);
  EXPECT_EQ(store_->Usage().leased_objects, 0u);
  EXPECT_LE(UsedBytes(), 3 * kLayout.TotalBytes());
}

}  // namespace
}  // namespace epic::kv_store
