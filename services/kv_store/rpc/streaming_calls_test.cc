// Objects of a store node that are read through its gRPC door while the node still reads them from disk: a
// layer leaves as soon as it is there, and what cannot be read ends in a clear error and no wrong byte.
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/rpc/kv_store/byte_stream.h"
#include "common/rpc/kv_store/layer_part.h"
#include "common/rpc/kv_store/object_client.h"
#include "common/rpc/kv_store/object_convert.h"
#include "common/rpc/kv_store/remote_kv_store.h"
#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/memory_slab_store.h"
#include "services/kv_store/rpc/testing/store_process.h"
#include "services/kv_store/testing/gated_slab_store.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr char kTenant[] = "default";
constexpr PeerId kPeer = 7;
constexpr uint32_t kLayers = 8;
const KvLayout kLayout = LayoutOf(8, kLayers, 4, 8192);  // 8 MiB, a part for each layer

class StreamingCallsTest : public ::testing::Test {
 protected:
  StreamingCallsTest() {
    EXPECT_EQ(kLayout.LayerBytes(), kMaxPartBytes);
    Connect();
  }

  void Connect() {
    channel_ = std::make_shared<StoreChannel>(
        StoreChannelOptions{.address = process_.address(), .reconnect_ms = 3000});
    objects_ = std::make_unique<ObjectClient>(channel_, kPeer);
  }
  SlabStoreMaker MakeSlabs() {
    return [gate = gate_, disk = slabs_](const auto&) -> absl::StatusOr<std::unique_ptr<SlabStore>> {
      return std::make_unique<GatedSlabStore>(std::make_unique<MemorySlabStore>(disk), gate);
    };
  }
  // An object that is on the node's disk alone.
  ObjectKey PutCold(uint64_t seed) {
    const auto created = process_.store()->CreateContext(ContextOf(seed));
    EXPECT_OK(created);
    const ObjectKey key{created->record.id, {}};
    EXPECT_OK(PutObject(process_.store(), kTenant, key, kLayout, seed));
    process_.store()->DrainWrites();
    process_.Stop();
    process_.Start();
    Connect();
    memory_bytes_ = process_.store()->Usage().memory_bytes;
    return key;
  }
  RemoteLease Lease(const ObjectKey& key) {
    const auto acquired = objects_->Acquire(kTenant, {&key, 1}, {&kLayout, 1}, 60'000, /*streaming=*/true);
    EXPECT_OK(acquired);
    EXPECT_TRUE(acquired->front().hit);
    return acquired->front().lease;
  }
  // The status of the stream, and how many layers came before it ended: all right, to `count` at most.
  std::pair<absl::Status, uint32_t> Read(const RemoteLease& lease, uint32_t first, uint32_t count,
                                         uint64_t seed) {
    std::vector<std::string> slabs(count, std::string(kLayout.LayerBytes(), '\0'));
    std::vector<MutableByteSpan> to;
    for (std::string& slab : slabs) to.push_back(std::as_writable_bytes(std::span(slab.data(), slab.size())));
    const auto read = objects_->ReadLayers(lease, kLayout, first, to);
    uint32_t right = 0;
    while (right < count && slabs[right] == SlabOf(kLayout, first + right, seed)) ++right;
    return {read.status(), right};
  }
  absl::Status Reads(const RemoteLease& lease, uint32_t first, uint32_t count, uint64_t seed) {
    const auto [status, right] = Read(lease, first, count, seed);
    EXPECT_TRUE(!status.ok() || right == count);
    return status;
  }
  bool Confirms(const RemoteLease& lease) {
    const auto held = objects_->ConfirmAndRelease({&lease, 1});
    EXPECT_OK(held);
    return held->front();
  }
  static bool Soon(const std::function<bool()>& condition) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > limit) return false;
      std::this_thread::yield();
    }
    return true;
  }
  grpc::ByteBuffer ReadRequest(const RemoteLease& lease, bool keep_lease = false) {
    v1::ReadLayersRequest request;
    request.set_peer(kPeer);
    request.set_incarnation(lease.incarnation);
    request.set_lease(lease.number);
    request.set_keep_lease(keep_lease);
    grpc::ByteBuffer bytes;
    bool own = false;
    EXPECT_TRUE(grpc::SerializationTraits<v1::ReadLayersRequest>::Serialize(request, &bytes, &own).ok());
    return bytes;
  }
  // The layer of the next part, if it has the bytes of `seed`.
  static std::optional<uint32_t> NextLayer(ByteStream* stream, uint64_t seed) {
    grpc::ByteBuffer bytes;
    if (!stream->Read(&bytes)) return std::nullopt;
    const auto part = DecodeLayerPart(bytes);
    EXPECT_OK(part);
    std::string slab(part->data_bytes, '\0');
    EXPECT_TRUE(part->CopyTo(std::as_writable_bytes(std::span(slab.data(), slab.size()))));
    EXPECT_EQ(slab, SlabOf(kLayout, part->head.layer, seed));
    return part->head.layer;
  }

  const std::shared_ptr<SlabGate> gate_ = std::make_shared<SlabGate>();
  const std::shared_ptr<MemorySlabDisk> slabs_ = std::make_shared<MemorySlabDisk>();
  StoreProcess process_{uint64_t{32} << 20, {.sweep_ms = 50}, MakeSlabs()};
  uint64_t memory_bytes_ = 0;  // before anything was read
  std::shared_ptr<StoreChannel> channel_;
  std::unique_ptr<ObjectClient> objects_;
};

TEST_F(StreamingCallsTest, TheFirstLayerLeavesBeforeTheLastOneIsRead) {
  const ObjectKey key = PutCold(5);
  gate_->CloseAt(1);
  const RemoteLease lease = Lease(key);
  ByteStream stream(*channel_, "ReadLayers", 20'000);
  ASSERT_TRUE(stream.Write(ReadRequest(lease)));
  ASSERT_TRUE(stream.WritesDone());
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    ASSERT_EQ(NextLayer(&stream, 5), layer) << stream.Finish();
    EXPECT_EQ(gate_->reads(), layer + 1) << "no more than that was read from disk";
    if (layer + 1 < kLayers) {
      EXPECT_FALSE(process_.store()->Where(kTenant, key).in_memory);
    }
    gate_->CloseAt(layer + 2);
  }
  EXPECT_EQ(NextLayer(&stream, 5), std::nullopt);
  EXPECT_OK(stream.Finish());
  EXPECT_TRUE(Confirms(lease));
  process_.store()->DrainLoads();
  EXPECT_TRUE(process_.store()->Where(kTenant, key).in_memory);
  EXPECT_TRUE(Soon([&] { return process_.store()->Usage().leased_objects == 0; }));  // gRPC lets go
}

TEST_F(StreamingCallsTest, ManyReadersGetTheirLayersOfOneLoad) {
  const ObjectKey key = PutCold(5);
  gate_->CloseAt(3);
  const RemoteLease one = Lease(key), two = Lease(key);
  EXPECT_OK(Reads(one, 0, 3, 5));
  EXPECT_OK(Reads(two, 1, 2, 5));
  std::thread whole([&] { EXPECT_OK(Reads(one, 0, kLayers, 5)); });
  std::thread rest([&] { EXPECT_OK(Reads(two, 3, kLayers - 3, 5)); });
  gate_->Open();
  whole.join();
  rest.join();
  EXPECT_TRUE(Confirms(one));
  EXPECT_TRUE(Confirms(two));
  EXPECT_EQ(gate_->reads(), kLayers);
}

TEST_F(StreamingCallsTest, WhatCannotBeReadEndsInAnErrorAndIsAMissFromThenOn) {
  for (const auto& [fault, cause, seed] : {std::tuple(SlabGate::Fault::kError, MissCause::kIoError, 5),
                                           std::tuple(SlabGate::Fault::kDamage, MissCause::kChecksum, 6)}) {
    const ObjectKey key = PutCold(seed);
    gate_->CloseAt(3);
    gate_->Break(3, fault);
    const RemoteLease lease = Lease(key);
    ByteStream stream(*channel_, "ReadLayers", 20'000);
    ASSERT_TRUE(stream.Write(ReadRequest(lease)));
    ASSERT_TRUE(stream.WritesDone());
    for (uint32_t layer = 0; layer < 3; ++layer) EXPECT_EQ(NextLayer(&stream, seed), layer);
    gate_->Open();
    EXPECT_EQ(NextLayer(&stream, seed), std::nullopt);
    EXPECT_EQ(CodeOf(stream.Finish()), ErrorCode::kLeaseEnded);
    EXPECT_EQ(CodeOf(Reads(lease, 0, 1, seed)), ErrorCode::kLeaseEnded) << "not even what was right";
    EXPECT_FALSE(Confirms(lease)) << "nothing of the transfer counts";
    EXPECT_EQ(process_.node()->lease_counts().held, 0u);
    process_.store()->DrainLoads();
    EXPECT_TRUE(Soon([&] { return process_.store()->Usage().memory_bytes == memory_bytes_; }));
    const auto again = objects_->Acquire(kTenant, {&key, 1}, {&kLayout, 1}, 60'000, /*streaming=*/true);
    ASSERT_OK(again);
    EXPECT_FALSE(again->front().hit);
    EXPECT_EQ(again->front().cause, cause);
    gate_->Break(SlabGate::kNone, SlabGate::Fault::kNone);
  }
}

// A client does all of that by itself.
TEST_F(StreamingCallsTest, AClientGetsTheWholeObjectOrTheCauseOfItsMiss) {
  const ObjectKey right = PutCold(5);
  const auto client = MakeRemoteKvStore({.address = process_.address(), .reconnect_ms = 3000});
  ASSERT_OK(client);
  const auto got = (*client)->Acquire(kTenant, right, kLayout);
  ASSERT_OK(got);
  ASSERT_NE(got->object, nullptr);
  EXPECT_TRUE(Holds(*got->object, 5));
  const ObjectKey damaged = PutCold(6);
  gate_->Break(kLayers - 1, SlabGate::Fault::kDamage);
  const auto missed = (*client)->Acquire(kTenant, damaged, kLayout);
  ASSERT_OK(missed);
  EXPECT_EQ(missed->object, nullptr);
  EXPECT_EQ(missed->cause, MissCause::kChecksum);
  EXPECT_EQ(process_.node()->lease_counts().held, 0u);
}

TEST_F(StreamingCallsTest, AReaderThatGoesAwayDisturbsNoLoad) {
  const ObjectKey key = PutCold(5);
  gate_->CloseAt(2);
  {
    const RemoteLease lease = Lease(key);
    ByteStream stream(*channel_, "ReadLayers", 20'000);
    ASSERT_TRUE(stream.Write(ReadRequest(lease)));
    ASSERT_TRUE(stream.WritesDone());
    EXPECT_EQ(NextLayer(&stream, 5), 0u);
  }  // cancelled
  gate_->WaitForAReader();
  gate_->Open();
  process_.store()->DrainLoads();
  EXPECT_TRUE(process_.store()->Where(kTenant, key).in_memory);
  EXPECT_TRUE(Soon([&] { return process_.node()->lease_counts().held == 0; }));
  EXPECT_TRUE(Soon([&] { return process_.door()->streams() == 0; }));
  EXPECT_TRUE(Soon([&] { return process_.store()->Usage().leased_objects == 0; }));
}

// Also while nothing is sent: the disk may take its time.
TEST_F(StreamingCallsTest, AReaderThatGoesAwayWhileALayerIsReadFreesItsLeaseAtOnce) {
  const ObjectKey key = PutCold(5);
  gate_->CloseAt(1);
  for (const bool keeps : {false, true}) {
    const RemoteLease lease = Lease(key);
    {
      ByteStream stream(*channel_, "ReadLayers", 20'000);
      ASSERT_TRUE(stream.Write(ReadRequest(lease, keeps)));
      ASSERT_TRUE(stream.WritesDone());
      EXPECT_EQ(NextLayer(&stream, 5), 0u);
      gate_->WaitForAReader();
    }  // cancelled
    EXPECT_TRUE(Soon([&] { return process_.door()->streams() == 0; }));
    if (!keeps) {
      EXPECT_TRUE(Soon([&] { return process_.node()->lease_counts().held == 0; }));
    }
    EXPECT_EQ(Confirms(lease), keeps);
  }
  gate_->Open();
  process_.store()->DrainLoads();
  EXPECT_TRUE(Soon([&] { return process_.store()->Usage().leased_objects == 0; }));
}

// Whoever does not ask for it gets whole objects, as transfers by other ways than ReadLayers want.
TEST_F(StreamingCallsTest, ALeaseThatIsNotStreamingIsOfAWholeObject) {
  const ObjectKey key = PutCold(5);
  const auto acquired = objects_->Acquire(kTenant, {&key, 1}, {&kLayout, 1}, 60'000);
  ASSERT_OK(acquired);
  ASSERT_TRUE(acquired->front().hit);
  EXPECT_EQ(gate_->reads(), kLayers);
  EXPECT_TRUE(process_.store()->Where(kTenant, key).in_memory);
  EXPECT_OK(Reads(acquired->front().lease, 0, kLayers, 5));
}

}  // namespace
}  // namespace epic::kv_store
