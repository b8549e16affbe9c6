#include "common/transport/object_fetcher.h"

#include <gtest/gtest.h>

#include <thread>

#include "common/status/error.h"
#include "common/storage/object_codec.h"
#include "common/testing/status_matchers.h"
#include "common/transport/testing/scripted_path.h"
#include "common/transport/testing/test_source.h"

namespace epic::transport {
namespace {

class ObjectFetcherTest : public ::testing::Test {
 protected:
  std::shared_ptr<const KvObject> Get(const std::shared_ptr<const Region>& region) {
    auto object = fetcher_.Get(&path_, region, TrafficClass::kFetch, 1);
    EXPECT_OK(object);
    return object.ok() ? *object : nullptr;
  }
  void ExpectWhole(const KvObject& object, const Region& region) {
    EXPECT_EQ(object.ReadyLayers(), region.layout.layers);
    for (uint32_t layer = 0; layer < region.layout.layers; ++layer) {
      EXPECT_OK(object.WaitLayer(layer));
      const ByteSpan right = source_.Bytes(region, layer);
      const ByteSpan got = object.Layer(layer);
      EXPECT_TRUE(std::equal(right.begin(), right.end(), got.begin(), got.end()));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(got.data()) % 64, 0u);
    }
  }

  TestSource source_{1};
  ScriptedPath path_{{}};
  ObjectFetcher fetcher_;
};

TEST_F(ObjectFetcherTest, LayersAppearInOrderAndTheLastWhenAllIsConfirmed) {
  const auto region = source_.Put(1, SmallLayout(4, 3));  // slabs of 192 bytes, not all slots full
  const auto object = Get(region);
  EXPECT_EQ(object->ReadyLayers(), 0u);
  path_.Bring(0, 1, source_);
  EXPECT_EQ(object->ReadyLayers(), 0u);
  path_.Bring(0, 0, source_);
  EXPECT_EQ(object->ReadyLayers(), 2u);
  EXPECT_OK(object->WaitLayer(1));
  path_.Bring(0, 2, source_);
  path_.Bring(0, 3, source_);
  EXPECT_EQ(object->ReadyLayers(), 3u);
  path_.Done(0, absl::OkStatus());
  ExpectWhole(*object, *region);
  EXPECT_EQ(object->build(), *region->build);
}

TEST_F(ObjectFetcherTest, OneFetchServesAllWhoWantTheObject) {
  const auto region = source_.Put(2, SmallLayout());
  const auto first = Get(region);
  const auto second = Get(std::make_shared<Region>(*region));
  EXPECT_EQ(first, second);
  EXPECT_EQ(path_.fetches(), 1u);
  path_.BringAll(0, source_);
  const auto third = Get(region);
  ExpectWhole(*third, *region);
  EXPECT_EQ(path_.fetches(), 1u);
  EXPECT_EQ(fetcher_.held(), 1u);
}

TEST_F(ObjectFetcherTest, OtherBytesAreAnotherObject) {
  const auto region = source_.Put(3, SmallLayout());
  auto other = std::make_shared<Region>(*region);
  ++other->generation;
  auto tenant = std::make_shared<Region>(*region);
  tenant->tenant = "another";
  const auto a = Get(region);
  const auto b = Get(other);
  const auto c = Get(tenant);
  EXPECT_EQ(path_.fetches(), 3u);
  EXPECT_EQ(fetcher_.held(), 3u);
}

TEST_F(ObjectFetcherTest, WhenNobodyWantsItAnyMoreItIsCancelled) {
  const auto region = source_.Put(4, SmallLayout());
  auto first = Get(region);
  auto second = Get(region);
  first.reset();
  path_.Bring(0, 0, source_);
  second.reset();
  EXPECT_TRUE(path_.WaitForCancel(0));
  EXPECT_EQ(fetcher_.held(), 0u);
  path_.Bring(0, 1, source_);  // its buffers are there until the path gives them back
  path_.EndAll(0, CancelledStatus());
  const auto again = Get(region);
  EXPECT_EQ(path_.fetches(), 2u);
  path_.BringAll(1, source_);
  ExpectWhole(*again, *region);
}

TEST_F(ObjectFetcherTest, AnErrorEndsTheObjectAndTheNextGetBeginsAnew) {
  const auto region = source_.Put(5, SmallLayout());
  const auto object = Get(region);
  path_.Bring(0, 0, source_);
  path_.EndAll(0, PathDownStatus("gone"));
  EXPECT_OK(object->WaitLayer(0));
  EXPECT_EQ(EndOf(object->WaitLayer(1)), FetchEnd::kPathDown);
  EXPECT_EQ(object->ReadyLayers(), 1u);
  const auto again = Get(region);
  EXPECT_NE(again, object);
  EXPECT_EQ(path_.fetches(), 2u);
  path_.BringAll(1, source_);
  ExpectWhole(*again, *region);
}

TEST_F(ObjectFetcherTest, ALeaseThatIsNotConfirmedLeavesTheObjectUnfinished) {
  const auto region = source_.Put(6, SmallLayout());
  const auto object = Get(region);
  for (size_t range = 0; range < 4; ++range) path_.Bring(0, range, source_);
  path_.Done(0, LeaseEndedStatus());
  EXPECT_EQ(object->ReadyLayers(), 3u);
  EXPECT_EQ(EndOf(object->WaitLayer(3)), FetchEnd::kLeaseEnded);
}

TEST_F(ObjectFetcherTest, AnotherBuildThanWasPromisedIsDamage) {
  auto region = std::make_shared<Region>(*source_.Put(7, SmallLayout()));
  region->build = BuildDigest({});
  const auto object = Get(region);
  path_.BringAll(0, source_);
  EXPECT_EQ(object->ReadyLayers(), 3u);
  EXPECT_EQ(EndOf(object->WaitLayer(3)), FetchEnd::kDamaged);
}

TEST_F(ObjectFetcherTest, ABuildThatWasNotToldIsKnownInTheEnd) {
  const auto region = source_.Put(8, SmallLayout(), /*ready=*/true, /*told=*/false);
  const auto object = Get(region);
  path_.BringAll(0, source_);
  ExpectWhole(*object, *region);
  std::vector<uint32_t> all;
  for (uint32_t layer = 0; layer < 4; ++layer) {
    std::vector<uint32_t> crcs(BlocksPerLayer(region->layout));
    ComputeBlockCrcs(region->layout, source_.Bytes(*region, layer), crcs);
    all.insert(all.end(), crcs.begin(), crcs.end());
  }
  EXPECT_EQ(object->build(), BuildDigest(all));
}

TEST_F(ObjectFetcherTest, CallbacksComeOnceWhenTheirLayerIsThereOrNeverWillBe) {
  const auto region = source_.Put(9, SmallLayout());
  const auto object = Get(region);
  std::vector<int> calls(4);
  for (uint32_t layer = 0; layer < 4; ++layer) object->OnLayer(layer, [&calls, layer] { ++calls[layer]; });
  path_.Bring(0, 0, source_);
  EXPECT_EQ(calls, (std::vector<int>{1, 0, 0, 0}));
  path_.Bring(0, 1, source_);
  EXPECT_EQ(calls, (std::vector<int>{1, 1, 0, 0}));
  path_.EndAll(0, PathDownStatus("gone"));
  EXPECT_EQ(calls, (std::vector<int>{1, 1, 1, 1}));
  object->OnLayer(3, [&calls] { ++calls[3]; });
  EXPECT_EQ(calls[3], 2);
}

TEST_F(ObjectFetcherTest, WhoWaitsIsWoken) {
  const auto region = source_.Put(10, SmallLayout());
  const auto object = Get(region);
  absl::Status last;
  std::thread waiter([&] { last = object->WaitLayer(3); });
  path_.BringAll(0, source_);
  waiter.join();
  EXPECT_OK(last);
}

TEST_F(ObjectFetcherTest, NoMemoryIsSaidAtOnce) {
  ObjectFetcher poor([](uint64_t) { return nullptr; });
  const auto region = source_.Put(11, SmallLayout());
  EXPECT_THAT(poor.Get(&path_, region, TrafficClass::kFetch, 1),
              testing::StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(poor.held(), 0u);
  EXPECT_EQ(path_.fetches(), 0u);
}

}  // namespace
}  // namespace epic::transport
