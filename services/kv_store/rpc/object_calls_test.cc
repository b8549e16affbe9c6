// Objects of a store node through its gRPC door on loopback: what a client may rely on, and what becomes of
// what clients leave behind.
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/rpc/kv_store/attachment.h"
#include "common/rpc/kv_store/byte_stream.h"
#include "common/rpc/kv_store/layer_part.h"
#include "common/rpc/kv_store/object_client.h"
#include "common/rpc/kv_store/object_convert.h"
#include "common/rpc/kv_store/remote_kv_store.h"
#include "common/status/error.h"
#include "common/storage/object_codec.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/rpc/testing/store_process.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr char kTenant[] = "default";
constexpr int64_t kPatienceMs = 10'000;  // of a machine that is busy
// Layers of 2 MiB and a little: parts of three sizes.
const KvLayout kLarge = LayoutOf(8, 2, 9, 8192);
const KvLayout kSmall = LayoutOf(8);

grpc::Slice SliceOf(std::string_view bytes) { return grpc::Slice(bytes.data(), bytes.size()); }

class ObjectCallsTest : public ::testing::Test {
 protected:
  ObjectCallsTest() { Connect(); }

  void Connect() {
    channel_ = std::make_shared<StoreChannel>(
        StoreChannelOptions{.address = process_.address(), .reconnect_ms = 3000});
    objects_ = std::make_unique<ObjectClient>(channel_, 7);
  }
  std::unique_ptr<KvStore> Client() {
    auto client = MakeRemoteKvStore({.address = process_.address(), .reconnect_ms = 3000});
    EXPECT_OK(client);
    return *std::move(client);
  }
  ObjectKey Create(uint64_t seed = 1) {
    const auto created = process_.store()->CreateContext(ContextOf(seed));
    EXPECT_OK(created);
    return {created->record.id, {}};
  }
  // Whether it comes true.
  static bool Soon(const std::function<bool()>& condition) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > limit) return false;
      std::this_thread::yield();
    }
    return true;
  }
  std::string Token(const ObjectKey& key, const KvLayout& layout) {
    const auto reserved = objects_->Reserve(kTenant, key, layout, "test");
    EXPECT_OK(reserved);
    EXPECT_OK(reserved->status);
    return reserved->token;
  }
  static std::vector<uint32_t> CrcsOf(const KvLayout& layout, const std::string& slab) {
    std::vector<uint32_t> crcs(BlocksPerLayer(layout));
    ComputeBlockCrcs(layout, AsBytes(slab), crcs);
    return crcs;
  }
  absl::Status WriteLayer(const std::string& token, const KvLayout& layout, uint32_t layer, uint64_t seed) {
    const std::string slab = SlabOf(layout, layer, seed);
    const auto crcs = CrcsOf(layout, slab);
    const ObjectClient::LayerToSend send{.layer = layer, .slab = AsBytes(slab), .block_crcs = crcs};
    return objects_->WriteLayers(token, {&send, 1});
  }
  ObjectClient::Acquired Lease(const ObjectKey& key, const KvLayout& layout) {
    const auto acquired = objects_->Acquire(kTenant, {&key, 1}, {&layout, 1}, 60'000);
    EXPECT_OK(acquired);
    EXPECT_TRUE(acquired->front().hit);
    return acquired->front();
  }
  // The first part of a layer.
  static grpc::ByteBuffer Part(const std::string& token, const KvLayout& layout, const std::string& slab,
                               uint32_t crc) {
    const std::string_view data = std::string_view(slab).substr(0, kMaxPartBytes);
    LayerPartHead head{.token = token, .layer = 0, .data_crc32c = crc};
    head.block_crcs = CrcsOf(layout, slab);
    return EncodeLayerPart(head, SliceOf(data));
  }

  StoreProcess process_{uint64_t{32} << 20, {.stall_ms = 300, .sweep_ms = 50}};
  std::shared_ptr<StoreChannel> channel_;
  std::unique_ptr<ObjectClient> objects_;
};

TEST_F(ObjectCallsTest, AReserveWhoseAnswerWasDroppedIsRepeatedWithTheSameToken) {
  const ObjectKey key = Create();
  const std::string request = ObjectClient::NewRequestId();
  ASSERT_EQ(request.size(), 16u);
  // A call that reaches the node and whose answer nobody hears: its connection is gone when it comes.
  {
    StoreChannel dropped({.address = process_.address()});
    v1::ReserveObjectsRequest lost;
    lost.set_peer(objects_->peer());
    lost.set_tenant(std::string(kTenant));
    *lost.mutable_keys() = ToProto({&key, 1}, {&kSmall, 1});
    lost.set_requests(request);
    grpc::ClientContext context;
    v1::ReserveObjectsResponse answer;
    std::promise<void> ended;
    dropped.stub()->async()->Reserve(&context, &lost, &answer,
                                     [&](const grpc::Status&) { ended.set_value(); });
    ASSERT_TRUE(Soon([&] { return process_.node()->reservation_counts().reserved == 1; }));
    context.TryCancel();
    ended.get_future().wait();
  }
  const auto other = objects_->Reserve(kTenant, key, kSmall, "test", ObjectClient::NewRequestId());
  ASSERT_OK(other);
  EXPECT_EQ(CodeOf(other->status), ErrorCode::kReservationConflict);
  const auto again = objects_->Reserve(kTenant, key, kSmall, "test", request);
  ASSERT_OK(again);
  ASSERT_OK(again->status);
  EXPECT_EQ(objects_->Reserve(kTenant, key, kSmall, "test", request)->token, again->token);
  EXPECT_EQ(process_.node()->reservation_counts().reserved, 1u);
  for (uint32_t layer = 0; layer < kSmall.layers; ++layer) {
    ASSERT_OK(WriteLayer(again->token, kSmall, layer, 3));
  }
  EXPECT_EQ(*objects_->Heartbeat({&again->token, 1}), std::vector<bool>{true});
  const auto odd = objects_->Reserve(kTenant, key, kSmall, "test", "short");
  EXPECT_EQ(CodeOf(odd.status()), ErrorCode::kInvalidRequest);
}

TEST_F(ObjectCallsTest, APutOfOneClientIsAGetOfAnother) {
  const ObjectKey key = Create();
  const auto writer = Client(), reader = Client();
  for (const KvLayout& layout : {kLarge, LayoutOf(8)}) {
    ASSERT_OK(reader->DropObject(kTenant, key));
    const auto put = PutObject(writer.get(), kTenant, key, layout, 5);
    ASSERT_OK(put);
    EXPECT_TRUE(Holds(**put, 5));
    const auto got = reader->Acquire(kTenant, key, layout);
    ASSERT_OK(got);
    ASSERT_NE(got->object, nullptr);
    EXPECT_TRUE(Holds(*got->object, 5));
    EXPECT_EQ(got->object->build(), (*put)->build());
  }
  EXPECT_EQ(process_.node()->lease_counts().held, 0u);
  EXPECT_EQ(process_.node()->reservation_counts().open, 0u);
}

TEST_F(ObjectCallsTest, AMissSaysItsCause) {
  const ObjectKey key = Create();
  const auto client = Client();
  EXPECT_EQ(client->Acquire(kTenant, key, kLarge)->cause, MissCause::kNeverStored);
  ASSERT_OK(PutObject(client.get(), kTenant, key, kLarge, 5));
  EXPECT_EQ(client->Acquire(kTenant, key, LayoutOf(8))->cause, MissCause::kLayoutMismatch);
  const auto exists = objects_->Exists(kTenant, {&key, 1});
  ASSERT_OK(exists);
  EXPECT_TRUE(exists->front().in_memory);
  ASSERT_OK(client->DeleteContext(kTenant, key.id));
  EXPECT_EQ(client->Acquire(kTenant, key, kLarge)->object, nullptr);
  EXPECT_FALSE(objects_->Exists(kTenant, {&key, 1})->front().in_memory);
}

TEST_F(ObjectCallsTest, ASecondWriterIsToldToWait) {
  const ObjectKey key = Create();
  const auto one = Client(), two = Client();
  const auto writer = one->Reserve(kTenant, key, kLarge);
  ASSERT_OK(writer);
  const auto refused = two->Reserve(kTenant, key, kLarge);
  EXPECT_EQ(CodeOf(refused.status()), ErrorCode::kReservationConflict);
  EXPECT_TRUE(RetryAfterMsOf(refused.status()).has_value());
}

TEST_F(ObjectCallsTest, AnObjectThatIsThereIsNotWrittenAgain) {
  const ObjectKey key = Create();
  const auto client = Client();
  ASSERT_OK(PutObject(client.get(), kTenant, key, kLarge, 5));
  const auto again = PutObject(client.get(), kTenant, key, kLarge, 6);
  ASSERT_OK(again);
  EXPECT_TRUE(Holds(**again, 5));
}

TEST_F(ObjectCallsTest, ADamagedPartIsRefusedAndTheLayerMayBeSentAgain) {
  const ObjectKey key = Create();
  const std::string token = Token(key, kLarge), slab = SlabOf(kLarge, 0, 5);
  {
    ByteStream stream(*channel_, "WriteLayers", 5000);
    ASSERT_TRUE(stream.Write(Part(token, kLarge, slab, /*crc=*/1)));
    ASSERT_TRUE(stream.WritesDone());
    grpc::ByteBuffer bytes;
    ASSERT_TRUE(stream.Read(&bytes));
    v1::WriteLayersResponse answer;
    ASSERT_TRUE(grpc::SerializationTraits<v1::WriteLayersResponse>::Deserialize(&bytes, &answer).ok());
    EXPECT_OK(stream.Finish());
    ASSERT_EQ(answer.items_size(), 1);
    EXPECT_EQ(answer.items(0).error().code(), "layer_damaged");
  }
  ASSERT_OK(WriteLayer(token, kLarge, 0, 5));
  const absl::Status twice = WriteLayer(token, kLarge, 0, 5);
  EXPECT_EQ(CodeOf(twice), ErrorCode::kReservationConflict);
  std::vector<uint32_t> crcs = CrcsOf(kLarge, slab);
  const auto missing = objects_->Commit(token, BuildDigest(crcs));
  ASSERT_OK(missing);
  EXPECT_EQ(CodeOf(missing->status), ErrorCode::kReservationConflict);
  ASSERT_OK(WriteLayer(token, kLarge, 1, 5));
  const auto second = CrcsOf(kLarge, SlabOf(kLarge, 1, 5));
  crcs.insert(crcs.end(), second.begin(), second.end());
  for (int repeat = 0; repeat < 2; ++repeat) {
    const auto committed = objects_->Commit(token, BuildDigest(crcs));
    ASSERT_OK(committed);
    EXPECT_OK(committed->status);
    EXPECT_EQ(committed->build, BuildDigest(crcs));
  }
  EXPECT_TRUE(Holds(*Client()->Acquire(kTenant, key, kLarge)->object, 5));
}

TEST_F(ObjectCallsTest, ACancelledWriteFreesItsReservationAndItsMemory) {
  const ObjectKey key = Create();
  const uint64_t before = process_.store()->Usage().memory_bytes;
  const std::string token = Token(key, kSmall), slab = SlabOf(kSmall, 0, 5);
  {
    ByteStream stream(*channel_, "WriteLayers", 5000);
    ASSERT_TRUE(stream.Write(Part(token, kSmall, slab, Crc32c(0, AsBytes(slab)))));
    // Whoever cancels before the node knows the reservation ends the stream alone.
    EXPECT_TRUE(Soon([&] {
      const auto writing = process_.node()->Explain({kTenant, key}, std::nullopt).writing;
      return writing.has_value() && writing->layers_finished == 1;
    }));
  }  // cancelled
  EXPECT_TRUE(Soon([&] { return process_.node()->reservation_counts().open == 0; }));
  EXPECT_TRUE(Soon([&] { return process_.store()->Usage().memory_bytes == before; }));
  EXPECT_TRUE(Soon([&] { return process_.door()->streams() == 0; }));
}

TEST_F(ObjectCallsTest, AWriterThatStopsAmidALayerIsCutOff) {
  const ObjectKey key = Create();
  const std::string token = Token(key, kLarge), slab = SlabOf(kLarge, 0, 5);
  ByteStream stream(*channel_, "WriteLayers", 5000);
  const std::string_view data = std::string_view(slab).substr(0, kMaxPartBytes);
  ASSERT_TRUE(stream.Write(Part(token, kLarge, slab, Crc32c(0, AsBytes(data)))));
  EXPECT_TRUE(Soon([&] { return process_.node()->reservation_counts().open == 0; }));
}

TEST_F(ObjectCallsTest, AReaderThatStopsIsCutOffAndItsLeaseEnds) {
  const KvLayout huge = LayoutOf(8, 12, 9, 8192);  // more than gRPC and the kernel buffer
  const ObjectKey key = Create();
  ASSERT_OK(PutObject(Client().get(), kTenant, key, huge, 5));
  const auto leased = Lease(key, huge);
  v1::ReadLayersRequest request;
  request.set_peer(7);
  request.set_incarnation(leased.lease.incarnation);
  request.set_lease(leased.lease.number);
  grpc::ByteBuffer bytes;
  bool own = false;
  ASSERT_TRUE(grpc::SerializationTraits<v1::ReadLayersRequest>::Serialize(request, &bytes, &own).ok());
  ByteStream stream(*channel_, "ReadLayers", 5000);
  ASSERT_TRUE(stream.Write(bytes));
  ASSERT_TRUE(stream.WritesDone());
  EXPECT_TRUE(Soon([&] { return process_.node()->lease_counts().held == 0; }));
  EXPECT_TRUE(Soon([&] { return process_.door()->streams() == 0; }));
}

TEST_F(ObjectCallsTest, WhatAClientHoldsEndsWithItsConnection) {
  const ObjectKey key = Create(1), other = Create(2);
  ASSERT_OK(PutObject(Client().get(), kTenant, key, kLarge, 5));
  {
    ObjectClient objects(channel_, 11);
    Attachment attachment(channel_, &objects, 60'000);
    ASSERT_TRUE(Soon([&] { return attachment.node().incarnation == process_.node()->incarnation(); }));
    ASSERT_OK(objects.Acquire(kTenant, {&key, 1}, {&kLarge, 1}, 60'000));
    ASSERT_OK(objects.Reserve(kTenant, other, kLarge, "test"));
    EXPECT_EQ(process_.node()->lease_counts().held, 1u);
    EXPECT_EQ(process_.node()->reservation_counts().open, 1u);
  }
  EXPECT_TRUE(Soon([&] { return process_.node()->lease_counts().held == 0; }));
  EXPECT_TRUE(Soon([&] { return process_.node()->reservation_counts().open == 0; }));
}

TEST_F(ObjectCallsTest, ALeaseOfTheLifeBeforeIsNotValid) {
  const ObjectKey key = Create();
  ASSERT_OK(PutObject(Client().get(), kTenant, key, kLarge, 5));
  process_.store()->DrainWrites();
  const auto leased = Lease(key, kLarge);
  process_.Stop();
  process_.Start();
  std::vector<std::string> slabs(2, std::string(kLarge.LayerBytes(), '\0'));
  std::vector<MutableByteSpan> to;
  for (std::string& slab : slabs) to.push_back(std::as_writable_bytes(std::span(slab.data(), slab.size())));
  EXPECT_EQ(CodeOf(objects_->ReadLayers(leased.lease, kLarge, 0, to).status()), ErrorCode::kLeaseEnded);
  const auto held = objects_->ConfirmAndRelease({&leased.lease, 1});
  ASSERT_OK(held);
  EXPECT_FALSE(held->front());
  EXPECT_TRUE(Holds(*Client()->Acquire(kTenant, key, kLarge)->object, 5));
}

TEST_F(ObjectCallsTest, APutGoesThroughARestartOfTheNode) {
  const ObjectKey key = Create();
  const auto client = Client();
  auto writer = client->Reserve(kTenant, key, kLarge);
  ASSERT_OK(writer);
  ASSERT_OK((*writer)->WriteLayer(0, AsBytes(SlabOf(kLarge, 0, 5))));
  process_.Stop();
  process_.Start();
  ASSERT_OK((*writer)->WriteLayer(1, AsBytes(SlabOf(kLarge, 1, 5))));
  const auto object = (*writer)->Commit();
  ASSERT_OK(object);
  EXPECT_TRUE(Holds(**object, 5));
  EXPECT_TRUE(Holds(*Client()->Acquire(kTenant, key, kLarge)->object, 5));
}

TEST_F(ObjectCallsTest, AnEndedLeaseIsNeitherReadNorConfirmed) {
  const ObjectKey key = Create();
  ASSERT_OK(PutObject(Client().get(), kTenant, key, kLarge, 5));
  const auto leased = Lease(key, kLarge);
  process_.clock()->AdvanceMs(30'000);
  EXPECT_TRUE(objects_->Renew({&leased.lease, 1}, 60'000)->front());
  process_.clock()->AdvanceMs(60'000);
  EXPECT_FALSE(objects_->Renew({&leased.lease, 1}, 60'000)->front());
  EXPECT_FALSE(objects_->ConfirmAndRelease({&leased.lease, 1})->front());
  EXPECT_TRUE(Soon([&] { return process_.node()->lease_counts().held == 0; }));
}

TEST_F(ObjectCallsTest, GarbageInAStreamEndsItAndNothingElse) {
  const ObjectKey key = Create();
  const std::string token = Token(key, kLarge), slab = SlabOf(kLarge, 0, 5);
  const grpc::ByteBuffer good = Part(token, kLarge, slab, 0);
  grpc::Slice whole;
  ASSERT_TRUE(good.DumpToSingleSlice(&whole).ok());
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    std::string bytes(reinterpret_cast<const char*>(whole.begin()), rng.Below(200) + 1);
    for (uint64_t flips = rng.Below(8); flips > 0; --flips) {
      bytes[rng.Below(bytes.size())] = static_cast<char>(rng.Next());
    }
    const grpc::Slice slice = SliceOf(bytes);
    ByteStream stream(*channel_, "WriteLayers", 5000);
    if (stream.Write(grpc::ByteBuffer(&slice, 1))) stream.WritesDone();
    grpc::ByteBuffer answer;
    while (stream.Read(&answer)) {
    }
    const absl::Status status = stream.Finish();
    if (status.ok()) continue;  // a part of a layer that is refused
    EXPECT_TRUE(CodeOf(status) == ErrorCode::kInvalidRequest ||
                CodeOf(status) == ErrorCode::kReservationEnded)
        << "seed " << seed << " " << status;
  }
  EXPECT_TRUE(Soon([&] { return process_.door()->streams() == 0; }));
  ASSERT_OK(PutObject(Client().get(), kTenant, Create(2), kLarge, 5));
}

TEST_F(ObjectCallsTest, BatchesWithBrokenTablesAreRefusedAsAWhole) {
  const ObjectKey key = Create();
  v1::AcquireObjectsRequest request;
  request.set_tenant(kTenant);
  *request.mutable_keys() = ToProto(std::vector<ObjectKey>{key, key}, std::vector<KvLayout>{kLarge, kLarge});
  const auto call = [&] { return channel_->Call(&StoreChannel::Stub::Acquire, request).status(); };
  ASSERT_OK(call());
  request.mutable_keys()->add_layout_of(0);
  EXPECT_EQ(ParamOf(call()), "keys.layout_of");
  request.mutable_keys()->clear_layout_of();
  request.mutable_keys()->add_variant_of(1);
  request.mutable_keys()->add_variant_of(0);
  EXPECT_EQ(ParamOf(call()), "keys.variant_of");
  request.mutable_keys()->clear_variant_of();
  request.mutable_keys()->mutable_ids()->push_back('x');
  EXPECT_EQ(ParamOf(call()), "keys.ids");
  request.mutable_keys()->set_ids(std::string(1025 * kCacheIdBytes, 'x'));
  EXPECT_EQ(ParamOf(call()), "keys.ids");
}

TEST_F(ObjectCallsTest, CacheIdsAndKeysCrossTheWireAndBack) {
  std::vector<ObjectKey> keys;
  std::vector<KvLayout> layouts;
  Rng rng(3);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    keys.push_back({CacheId::Of("t", {}, TokensOf(seed, 3)),
                    {.prefix = static_cast<CompilePrefixKind>(rng.Below(4)),
                     .dtype = static_cast<KvDtype>(rng.Below(2))}});
    layouts.push_back(LayoutOf(static_cast<uint32_t>(1 + rng.Below(3))));
  }
  const v1::ObjectKeys proto = ToProto(keys, layouts);
  EXPECT_LE(proto.layouts_size(), 3);
  EXPECT_EQ(*KeysFromProto(proto), keys);
  EXPECT_EQ(*LayoutsFromProto(proto), layouts);
}

}  // namespace
}  // namespace epic::kv_store
