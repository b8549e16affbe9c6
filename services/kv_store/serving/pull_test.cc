// Objects of a node pulled by a client over each path: the same bytes, one fetch for many, layers as they
// come, and what becomes of it all when leases end, the node is started again, or a path goes away.
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/metrics/metrics.h"
#include "common/rpc/kv_store/remote_kv_store.h"
#include "common/rpc/pull/transfers.h"
#include "common/status/error.h"
#include "common/storage/shm/boot_id.h"
#include "common/storage/shm/server.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "common/transport/ucx/ucx_node.h"
#include "services/kv_store/core/memory_slab_store.h"
#include "services/kv_store/core/store_leases.h"
#include "services/kv_store/rpc/testing/store_process.h"
#include "services/kv_store/serving/node_source.h"
#include "services/kv_store/testing/gated_slab_store.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

using transport::PathKind;

constexpr char kTenant[] = "default";
constexpr uint32_t kLayers = 6;
const KvLayout kLayout = LayoutOf(8, kLayers, 4, 2048);  // layers of 256 KiB

bool HasLayer(const KvObject& object, uint32_t layer, uint64_t seed) {
  const std::string slab = SlabOf(kLayout, layer, seed);
  const ByteSpan bytes = object.Layer(layer);
  return bytes.size() == slab.size() && std::memcmp(bytes.data(), slab.data(), slab.size()) == 0;
}
bool HasAll(const KvObject& object, uint64_t seed) {
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    if (!HasLayer(object, layer, seed)) return false;
  }
  return true;
}

// A node with all its ways, as its process has them.
class PullTest : public ::testing::TestWithParam<PathKind> {
 protected:
  PullTest() {
    OpenWays();
    Connect({GetParam()});
  }
  ~PullTest() override {
    client_.reset();
    transfers_.reset();
    CloseWays();
  }

  StoreDoorOptions Door() {
    StoreDoorOptions options;
    options.sweep_ms = 50;
    options.other_ways = {.boot_id = shm::BootId(),
                          .hand_over_socket = folder_.path() + "/shm",
                          .issue_lane_ticket = [this] { return IssueTicket(); }};
    return options;
  }
  SlabStoreMaker MakeSlabs() {
    return [gate = gate_, disk = slabs_](const auto&) -> absl::StatusOr<std::unique_ptr<SlabStore>> {
      return std::make_unique<GatedSlabStore>(std::make_unique<MemorySlabStore>(disk), gate);
    };
  }
  void OpenWays() {
    source_.emplace(process_.node());
    auto ucx = transport::UcxNode::Start({.source = &*source_});
    ASSERT_OK(ucx);
    {
      MutexLock lock(&mu_);
      ucx_ = *std::move(ucx);
    }
    shm_leases_.emplace(process_.store());
    shm::ServerOptions options;
    options.path = folder_.path() + "/shm";
    options.arena_fd = process_.store()->arena().read_only_fd();
    options.arena_bytes = process_.store()->arena().capacity_bytes();
    options.incarnation = process_.node()->incarnation();
    auto server = shm::Server::Start(options, &*shm_leases_);
    ASSERT_OK(server);
    shm_ = *std::move(server);
  }
  // The door asks while ways come and go.
  absl::StatusOr<std::string> IssueTicket() {
    MutexLock lock(&mu_);
    return ucx_ == nullptr ? absl::StatusOr<std::string>(absl::UnavailableError("no lanes now"))
                           : ucx_->IssueTicket();
  }
  void CloseUcx() {
    std::unique_ptr<transport::UcxNode> closed;  // without the lock
    MutexLock lock(&mu_);
    closed = std::move(ucx_);
  }
  void CloseWays() {
    shm_.reset();
    CloseUcx();
    EXPECT_TRUE(!source_.has_value() || source_->open() == 0);
  }
  void Restart() {
    CloseWays();
    process_.Stop();
    process_.Start();
    OpenWays();
  }
  void Connect(std::vector<PathKind> paths, int64_t lease_ms = 60'000) {
    client_.reset();
    TransferOptions options;
    options.paths = std::move(paths);
    options.lease_ms = lease_ms;
    transfers_.reset();
    metrics_ = std::make_unique<Metrics>();
    auto transfers = Transfers::Start(options, metrics_.get());
    ASSERT_OK(transfers);
    transfers_ = *std::move(transfers);
    auto client = MakeRemoteKvStore(
        {.address = process_.address(), .reconnect_ms = 3000, .make_reader = transfers_->ReaderFor()});
    ASSERT_OK(client);
    client_ = *std::move(client);
  }

  ObjectKey Put(uint64_t seed) {
    const auto created = process_.store()->CreateContext(ContextOf(seed));
    EXPECT_OK(created);
    const ObjectKey key{created->record.id, {}};
    EXPECT_OK(PutObject(process_.store(), kTenant, key, kLayout, seed));
    process_.store()->DrainWrites();
    return key;
  }
  ObjectKey PutCold(uint64_t seed) {
    const ObjectKey key = Put(seed);
    Restart();
    return key;
  }
  std::shared_ptr<const KvObject> Stream(const ObjectKey& key) {
    const auto got = client_->AcquireStreaming(kTenant, key, kLayout);
    EXPECT_OK(got);
    return got.ok() ? got->object : nullptr;
  }
  std::shared_ptr<const KvObject> Whole(const ObjectKey& key) {
    const auto got = client_->Acquire(kTenant, key, kLayout);
    EXPECT_OK(got);
    return got.ok() ? got->object : nullptr;
  }
  uint64_t Brought(PathKind path) {
    return metrics_->GetCounter(MetricId::kTransferBytesTotal, {NameOf(path), "fetch"}).Value();
  }
  bool Streams() const { return GetParam() != PathKind::kShm; }
  static bool Soon(const std::function<bool()>& condition) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > limit) return false;
      std::this_thread::yield();
    }
    return true;
  }
  // Nothing of a transfer is left, on either side.
  void ExpectAtRest() {
    EXPECT_TRUE(Soon([&] { return process_.node()->lease_counts().held == 0; }));
    EXPECT_TRUE(Soon([&] { return process_.store()->Usage().leased_objects == 0; }));
    EXPECT_TRUE(Soon([&] { return source_->open() == 0; }));
    EXPECT_TRUE(Soon([&] { return process_.door()->streams() == 0; }));
    EXPECT_EQ(transfers_->held(), 0u);
  }

  const testing::TempDir folder_;
  const std::shared_ptr<SlabGate> gate_ = std::make_shared<SlabGate>();
  const std::shared_ptr<MemorySlabDisk> slabs_ = std::make_shared<MemorySlabDisk>();
  std::atomic<uint64_t> renews_{0};
  StoreProcess process_{uint64_t{32} << 20, Door(), MakeSlabs(), {.on_call = [this](const RpcEvent& event) {
                          if (event.call == "renew") ++renews_;
                        }}};
  std::optional<NodeSource> source_;
  Mutex mu_;
  std::unique_ptr<transport::UcxNode> ucx_ ABSL_GUARDED_BY(mu_);
  std::optional<StoreLeases> shm_leases_;
  std::unique_ptr<shm::Server> shm_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<Transfers> transfers_;
  std::unique_ptr<KvStore> client_;
};

TEST_P(PullTest, AnObjectComesWholeByTheWayThatTheSettingsName) {
  const ObjectKey key = Put(3);
  const auto object = Whole(key);
  ASSERT_NE(object, nullptr);
  EXPECT_TRUE(HasAll(*object, 3));
  EXPECT_EQ(object->build(), process_.store()->Acquire(kTenant, key, kLayout)->object->build());
  for (const PathKind path : {PathKind::kShm, PathKind::kUcx, PathKind::kGrpc}) {
    EXPECT_EQ(Brought(path), path == GetParam() ? kLayout.TotalBytes() : 0);
  }
  const auto missing =
      client_->Acquire(kTenant, {CacheId::Of(kTenant, {}, std::vector<TokenId>{9}), {}}, kLayout);
  ASSERT_OK(missing);
  EXPECT_EQ(missing->object, nullptr);
}

TEST_P(PullTest, ManyReadersShareOneFetchAndOneCopy) {
  const ObjectKey key = PutCold(3);
  if (Streams()) gate_->CloseAt(2);
  std::vector<std::shared_ptr<const KvObject>> objects(8);
  std::vector<std::thread> readers;
  for (auto& object : objects) readers.emplace_back([&] { object = Stream(key); });
  for (std::thread& reader : readers) reader.join();
  gate_->Open();
  for (const auto& object : objects) {
    ASSERT_NE(object, nullptr);
    EXPECT_OK(object->WaitLayer(kLayers - 1));
    EXPECT_EQ(object, objects.front());
  }
  EXPECT_TRUE(HasAll(*objects.front(), 3));
  EXPECT_EQ(transfers_->held(), 1u);
  EXPECT_EQ(Brought(GetParam()), kLayout.TotalBytes());
  objects.clear();
  ExpectAtRest();
}

TEST_P(PullTest, LayersComeWhileTheNodeReadsLaterOnes) {
  if (!Streams()) GTEST_SKIP() << "the hand-over has whole objects only";
  const ObjectKey key = PutCold(3);
  gate_->CloseAt(1);
  const auto object = Stream(key);
  ASSERT_NE(object, nullptr);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    ASSERT_OK(object->WaitLayer(layer));
    EXPECT_EQ(object->ReadyLayers(), layer + 1);
    EXPECT_TRUE(HasLayer(*object, layer, 3));
    gate_->CloseAt(layer + 2);
  }
}

// Over the hand-over alone it is waited for; beside another path, that one brings it.
TEST_P(PullTest, AnObjectOnItsWayUpFromDiskComesByAPathThatNeedNotWait) {
  const ObjectKey key = PutCold(3);
  Connect({PathKind::kShm, GetParam() == PathKind::kShm ? PathKind::kGrpc : GetParam()});
  const PathKind other = GetParam() == PathKind::kShm ? PathKind::kGrpc : GetParam();
  gate_->CloseAt(1);
  const auto object = Stream(key);
  ASSERT_NE(object, nullptr);
  ASSERT_OK(object->WaitLayer(0));
  gate_->Open();
  ASSERT_OK(object->WaitLayer(kLayers - 1));
  EXPECT_TRUE(HasAll(*object, 3));
  EXPECT_EQ(Brought(other), kLayout.TotalBytes());
  EXPECT_TRUE(HasAll(*Whole(Put(4)), 4));
  EXPECT_EQ(Brought(PathKind::kShm), kLayout.TotalBytes());
}

TEST_P(PullTest, WhoeverLetsGoEarlyLeavesNothingBehind) {
  const ObjectKey key = PutCold(3);
  if (Streams()) gate_->CloseAt(1);
  auto object = Stream(key);
  ASSERT_NE(object, nullptr);
  ASSERT_OK(object->WaitLayer(0));
  object.reset();
  EXPECT_TRUE(Soon([&] { return transfers_->held() == 0 && process_.node()->lease_counts().held == 0; }));
  gate_->Open();
  process_.store()->DrainLoads();
  ExpectAtRest();
  EXPECT_TRUE(HasAll(*Whole(key), 3));
}

TEST_P(PullTest, ALeaseLastsAsLongAsItsTransfer) {
  if (!Streams()) GTEST_SKIP() << "the hand-over has leases of its own";
  const ObjectKey key = PutCold(3);
  Connect({GetParam()}, /*lease_ms=*/1500);
  gate_->CloseAt(2);
  const auto object = Stream(key);
  ASSERT_NE(object, nullptr);
  ASSERT_OK(object->WaitLayer(1));
  // The node's clock stands still but for this: renewed in time, the lease outlives its duration.
  for (int i = 0; i < 3; ++i) {
    const uint64_t before = renews_.load();
    ASSERT_TRUE(Soon([&] { return renews_.load() > before; }));
    process_.clock()->AdvanceMs(1400);
  }
  gate_->Open();
  ASSERT_OK(object->WaitLayer(kLayers - 1));
  EXPECT_TRUE(HasAll(*object, 3));
  EXPECT_TRUE(Soon([&] { return process_.node()->lease_counts().held == 0; }));
}

TEST_P(PullTest, ALeaseThatEndsAmidATransferEndsTheObjectAndTheNextOneIsWhole) {
  if (!Streams()) GTEST_SKIP() << "the hand-over has leases of its own";
  const ObjectKey key = PutCold(3);
  gate_->CloseAt(2);
  const auto object = Stream(key);
  ASSERT_NE(object, nullptr);
  ASSERT_OK(object->WaitLayer(1));
  process_.clock()->AdvanceMs(10 * 60'000);
  gate_->Open();
  EXPECT_EQ(CodeOf(object->WaitLayer(kLayers - 1)), ErrorCode::kLeaseEnded);
  EXPECT_TRUE(HasLayer(*object, 0, 3)) << "what was there stays";
  const auto again = Whole(key);
  ASSERT_NE(again, nullptr);
  EXPECT_TRUE(HasAll(*again, 3));
}

TEST_P(PullTest, WhatTheDiskLosesIsAMissWithItsCause) {
  const ObjectKey key = PutCold(3);
  gate_->Break(3, SlabGate::Fault::kDamage);
  const auto got = client_->Acquire(kTenant, key, kLayout);
  ASSERT_OK(got);
  EXPECT_EQ(got->object, nullptr);
  EXPECT_EQ(got->cause, MissCause::kChecksum);
  ExpectAtRest();
}

TEST_P(PullTest, ANodeThatIsStartedAgainIsFoundAgain) {
  const ObjectKey key = Put(3);
  const auto before = Whole(key);
  ASSERT_NE(before, nullptr);
  Restart();
  EXPECT_TRUE(HasAll(*before, 3)) << "it is ours";
  const auto after = Whole(key);
  ASSERT_NE(after, nullptr);
  EXPECT_TRUE(HasAll(*after, 3));
  EXPECT_EQ(Brought(GetParam()), 2 * kLayout.TotalBytes());
}

TEST_P(PullTest, ANodeThatGoesAwayAmidATransferEndsItInTime) {
  if (!Streams()) GTEST_SKIP() << "whole objects only";
  const ObjectKey key = PutCold(3);
  gate_->CloseAt(2);
  const auto object = Stream(key);
  ASSERT_NE(object, nullptr);
  ASSERT_OK(object->WaitLayer(1));
  shm_.reset();
  CloseUcx();
  std::thread stop([&] { process_.Stop(); });
  gate_->Open();
  stop.join();
  const absl::Status ended = object->WaitLayer(kLayers - 1);
  EXPECT_FALSE(ended.ok() && !HasAll(*object, 3)) << ended;
  process_.Start();
  OpenWays();
  const auto again = Whole(key);
  ASSERT_NE(again, nullptr);
  EXPECT_TRUE(HasAll(*again, 3));
}

TEST_P(PullTest, WithoutAPathTheNextOneBringsItAndTheFirstComesBack) {
  if (GetParam() == PathKind::kGrpc) GTEST_SKIP() << "the last one";
  const ObjectKey key = Put(3);
  Connect({GetParam(), PathKind::kGrpc});
  EXPECT_TRUE(HasAll(*Whole(key), 3));
  EXPECT_EQ(Brought(GetParam()), kLayout.TotalBytes());
  GetParam() == PathKind::kShm ? shm_.reset() : CloseUcx();
  EXPECT_TRUE(HasAll(*Whole(key), 3));
  EXPECT_EQ(Brought(PathKind::kGrpc), kLayout.TotalBytes());
  CloseWays();
  OpenWays();
  EXPECT_TRUE(Soon([&] {
    EXPECT_TRUE(HasAll(*Whole(key), 3));
    return Brought(GetParam()) > kLayout.TotalBytes();
  }));
}

INSTANTIATE_TEST_SUITE_P(Paths, PullTest, ::testing::Values(PathKind::kShm, PathKind::kUcx, PathKind::kGrpc),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

}  // namespace
}  // namespace epic::kv_store
