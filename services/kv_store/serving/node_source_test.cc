// What a store node serves to readers: by itself, and by each path that fetches by leases, over its real
// door.
#include "services/kv_store/serving/node_source.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/timers.h"
#include "common/rpc/kv_store/object_client.h"
#include "common/rpc/pull/lane_tickets.h"
#include "common/status/ending.h"
#include "common/status/error.h"
#include "common/storage/object_codec.h"
#include "common/testing/status_matchers.h"
#include "common/transport/grpc/grpc_path.h"
#include "common/transport/inproc/inproc_path.h"
#include "common/transport/object_fetcher.h"
#include "common/transport/testing/fetch_log.h"
#include "common/transport/ucx/ucx_node.h"
#include "services/kv_store/core/memory_slab_store.h"
#include "services/kv_store/rpc/testing/store_process.h"
#include "services/kv_store/testing/gated_slab_store.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

using transport::EndOf;
using transport::FetchEnd;
using transport::LeaseName;
using transport::PathKind;
using transport::Region;

constexpr char kTenant[] = "default";
constexpr PeerId kPeer = 7;
constexpr uint32_t kLayers = 6;
constexpr int64_t kLeaseMs = 60'000;
constexpr int64_t kPlentyNs = 20'000'000'000;
const KvLayout kLayout = LayoutOf(8, kLayers, 4, 2048);  // layers of 256 KiB

bool HasLayer(ByteSpan bytes, uint32_t layer, uint64_t seed) {
  const std::string slab = SlabOf(kLayout, layer, seed);
  return bytes.size() == slab.size() && std::memcmp(bytes.data(), slab.data(), slab.size()) == 0;
}

class NodeSourceTest : public ::testing::Test {
 protected:
  NodeSourceTest() { Connect(); }
  ~NodeSourceTest() override { Disconnect(); }

  static StoreDoorOptions Door(NodeSourceTest* test) {
    StoreDoorOptions options;
    options.sweep_ms = 50;
    options.other_ways.issue_lane_ticket = [test] { return test->ucx_->IssueTicket(); };
    return options;
  }
  SlabStoreMaker MakeSlabs() {
    return [gate = gate_, disk = slabs_](const auto&) -> absl::StatusOr<std::unique_ptr<SlabStore>> {
      return std::make_unique<GatedSlabStore>(std::make_unique<MemorySlabStore>(disk), gate);
    };
  }
  void Connect() {
    source_.emplace(process_.node(), /*open_max=*/8);
    auto ucx = transport::UcxNode::Start({.source = &*source_});
    ASSERT_OK(ucx);
    ucx_ = *std::move(ucx);
    channel_ = std::make_shared<StoreChannel>(
        StoreChannelOptions{.address = process_.address(), .reconnect_ms = 3000});
    objects_ = std::make_unique<ObjectClient>(channel_, kPeer);
  }
  void Disconnect() {
    ucx_.reset();
    EXPECT_EQ(source_->open(), 0u);
  }

  ObjectKey Put(uint64_t seed) {
    const auto created = process_.store()->CreateContext(ContextOf(seed));
    EXPECT_OK(created);
    const ObjectKey key{created->record.id, {}};
    EXPECT_OK(PutObject(process_.store(), kTenant, key, kLayout, seed));
    return key;
  }
  // An object that is on the node's disk alone.
  ObjectKey PutCold(uint64_t seed) {
    const ObjectKey key = Put(seed);
    process_.store()->DrainWrites();
    Disconnect();
    process_.Stop();
    process_.Start();
    Connect();
    return key;
  }
  // A lease, with all that a reader knows of it.
  std::shared_ptr<const Region> Lease(const ObjectKey& key) {
    const auto acquired = objects_->Acquire(kTenant, {&key, 1}, {&kLayout, 1}, kLeaseMs, /*streaming=*/true,
                                            /*with_checksums=*/true);
    EXPECT_OK(acquired);
    const ObjectClient::Acquired& item = acquired->front();
    EXPECT_TRUE(item.hit);
    return std::make_shared<const Region>(
        Region{.tenant = kTenant,
               .key = key,
               .layout = kLayout,
               .lease = {.incarnation = item.lease.incarnation, .holder = kPeer, .number = item.lease.number},
               .generation = item.generation,
               .build = item.build,
               .block_crcs = item.block_crcs});
  }
  void Release(const Region& region) {
    const RemoteLease lease{region.lease.incarnation, region.lease.number};
    EXPECT_OK(objects_->ConfirmAndRelease({&lease, 1}));
  }
  FetchEnd OpenEnd(const LeaseName& lease) { return EndOf(source_->Open(lease).status()); }
  static bool Soon(const std::function<bool()>& condition) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > limit) return false;
      std::this_thread::yield();
    }
    return true;
  }

  const std::shared_ptr<SlabGate> gate_ = std::make_shared<SlabGate>();
  const std::shared_ptr<MemorySlabDisk> slabs_ = std::make_shared<MemorySlabDisk>();
  StoreProcess process_{uint64_t{32} << 20, Door(this), MakeSlabs()};
  std::optional<NodeSource> source_;
  std::unique_ptr<transport::UcxNode> ucx_;
  std::shared_ptr<StoreChannel> channel_;
  std::unique_ptr<ObjectClient> objects_;
};

TEST_F(NodeSourceTest, OpensWhatIsLeasedAndNothingElse) {
  const auto region = Lease(Put(1));
  EXPECT_EQ(region->build, BuildDigest(region->block_crcs));
  const auto opened = source_->Open(region->lease);
  ASSERT_OK(opened);
  EXPECT_EQ((*opened)->layout(), kLayout);
  std::vector<uint32_t> crcs;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    absl::Status told = absl::UnknownError("not called");
    (*opened)->WhenLayer(layer, [&](const absl::Status& status) { told = status; });
    EXPECT_OK(told);
    EXPECT_TRUE(HasLayer((*opened)->Layer(layer), layer, 1));
    const auto own = (*opened)->LayerCrcs(layer);
    crcs.insert(crcs.end(), own.begin(), own.end());
  }
  EXPECT_EQ(crcs, region->block_crcs);
  EXPECT_TRUE((*opened)->StillLeased());

  LeaseName other = region->lease;
  ++other.incarnation;
  EXPECT_EQ(OpenEnd(other), FetchEnd::kLeaseEnded);
  other = region->lease;
  ++other.holder;
  EXPECT_EQ(OpenEnd(other), FetchEnd::kLeaseEnded);
  other = region->lease;
  ++other.number;
  EXPECT_EQ(OpenEnd(other), FetchEnd::kLeaseEnded);
}

TEST_F(NodeSourceTest, WhatIsOpenStaysWhateverBecomesOfItsLease) {
  const ObjectKey key = Put(1);
  const auto released = Lease(key);
  const auto late = Lease(key);
  const auto first = source_->Open(released->lease);
  const auto second = source_->Open(late->lease);
  ASSERT_OK(first);
  ASSERT_OK(second);
  Release(*released);
  EXPECT_FALSE((*first)->StillLeased());
  EXPECT_TRUE((*second)->StillLeased());
  process_.clock()->AdvanceMs(kLeaseMs);
  EXPECT_FALSE((*second)->StillLeased());
  EXPECT_OK(process_.store()->DeleteContext(kTenant, key.id));
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_TRUE(HasLayer((*first)->Layer(layer), layer, 1));
    EXPECT_TRUE(HasLayer((*second)->Layer(layer), layer, 1));
  }
  EXPECT_EQ(OpenEnd(late->lease), FetchEnd::kLeaseEnded);
}

TEST_F(NodeSourceTest, NoMoreThanSoManyAreOpenAtATime) {
  const auto region = Lease(Put(1));
  std::vector<std::shared_ptr<transport::SourceObject>> open;
  while (open.size() < 8) {
    const auto opened = source_->Open(region->lease);
    ASSERT_OK(opened);
    open.push_back(*opened);
  }
  EXPECT_EQ(OpenEnd(region->lease), FetchEnd::kPathDown);
  open.pop_back();
  EXPECT_OK(source_->Open(region->lease));
}

TEST_F(NodeSourceTest, TellsOfEachLayerWhenItIsThereOrNeverWillBe) {
  const ObjectKey key = PutCold(1);
  gate_->CloseAt(1);
  gate_->Break(3, SlabGate::Fault::kDamage);
  const auto region = Lease(key);
  const auto opened = source_->Open(region->lease);
  ASSERT_OK(opened);
  auto dropped = *source_->Open(region->lease);
  Mutex mu;
  std::vector<FetchEnd> ends(kLayers, FetchEnd::kCancelled);
  std::vector<bool> told(kLayers);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    (*opened)->WhenLayer(layer, [&, layer](const absl::Status& status) {
      MutexLock lock(&mu);
      ends[layer] = EndOf(status);
      told[layer] = true;
    });
    dropped->WhenLayer(layer, [layer](const absl::Status&) { EXPECT_EQ(layer, 0u) << "it was let go"; });
  }
  const auto is_told = [&](uint32_t layer) {
    MutexLock lock(&mu);
    return bool{told[layer]};
  };
  EXPECT_TRUE(Soon([&] { return is_told(0); }));
  gate_->WaitForAReader();
  EXPECT_FALSE(is_told(1));
  EXPECT_TRUE(HasLayer((*opened)->Layer(0), 0, 1));
  dropped.reset();
  gate_->Open();
  EXPECT_TRUE(Soon([&] { return is_told(kLayers - 1); }));
  const std::vector<FetchEnd> want = {FetchEnd::kOk,         FetchEnd::kOk,         FetchEnd::kOk,
                                      FetchEnd::kLeaseEnded, FetchEnd::kLeaseEnded, FetchEnd::kLeaseEnded};
  EXPECT_EQ(ends, want);
  EXPECT_FALSE((*opened)->StillLeased()) << "nothing of it counts";
}

TEST(StoreDoorWaysTest, ADoorTellsWhatElseThereIs) {
  StoreDoorOptions options;
  options.other_ways = {.boot_id = "boot", .hand_over_socket = "/a/socket", .issue_lane_ticket = {}};
  StoreProcess process(uint64_t{8} << 20, options);
  const auto channel = std::make_shared<StoreChannel>(StoreChannelOptions{.address = process.address()});
  LaneTickets tickets(channel, 3000);
  Ending ending;
  tickets.Ask([&](const absl::StatusOr<std::string>& ticket) { ending.Set(ticket.status()); });
  const absl::Status none = ending.Wait();
  EXPECT_EQ(EndOf(none), FetchEnd::kPathDown) << none;
  EXPECT_NE(MessageOf(none).find("serves nothing over UCX"), std::string::npos) << none;

  grpc::ClientContext context;
  v1::AttachRequest request;
  request.set_peer(kPeer);
  v1::AttachResponse answer;
  const auto stream = channel->stub()->Attach(&context, request);
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_EQ(answer.incarnation(), process.node()->incarnation());
  EXPECT_EQ(answer.hand_over().boot_id(), "boot");
  EXPECT_EQ(answer.hand_over().socket(), "/a/socket");
  context.TryCancel();
  EXPECT_FALSE(stream->Finish().ok());
}

// By each path to the node that knows leases.
class PathsToNodeTest : public NodeSourceTest, public ::testing::WithParamInterface<PathKind> {
 protected:
  ~PathsToNodeTest() override {
    path_.reset();
    reader_.reset();
    if (endpoint_ != nullptr) endpoint_->Detach();
    timers_.Stop();
  }

  void OpenPath() {
    switch (GetParam()) {
      case PathKind::kInproc:
        endpoint_ = std::make_shared<transport::InprocEndpoint>();
        endpoint_->Attach(&*source_);
        path_ = transport::MakeInprocPath(endpoint_, {.timers = &timers_, .peer_down = {}});
        return;
      case PathKind::kGrpc:
        path_ = transport::MakeGrpcPath({.channel = channel_, .peer_down = {}});
        return;
      default:
        auto reader = transport::UcxNode::Start({});
        ASSERT_OK(reader);
        reader_ = *std::move(reader);
        path_ = reader_->MakePath(std::make_shared<LaneTickets>(channel_, 3000), {});
    }
  }
  absl::StatusOr<std::shared_ptr<const KvObject>> Get(std::shared_ptr<const Region> region) {
    return transport::ObjectFetcher().Get(path_.get(), std::move(region), transport::TrafficClass::kFetch,
                                          SystemClock::Get()->SteadyNs() + kPlentyNs);
  }
  struct Fetch {
    std::vector<std::vector<std::byte>> slabs;
    std::shared_ptr<transport::FetchLog> log;
    transport::FetchId id = 0;
  };
  std::unique_ptr<Fetch> Start(std::shared_ptr<const Region> region) {
    auto fetch = std::make_unique<Fetch>();
    fetch->log = std::make_shared<transport::FetchLog>(kLayers);
    transport::FetchRequest request = {.region = std::move(region), .ranges = {}};
    request.deadline_steady_ns = SystemClock::Get()->SteadyNs() + kPlentyNs;
    fetch->slabs.resize(kLayers);
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      fetch->slabs[layer].resize(kLayout.LayerBytes());
      request.ranges.push_back({.layer = layer, .offset = 0, .to = fetch->slabs[layer]});
    }
    fetch->id = path_->Fetch(std::move(request), fetch->log);
    return fetch;
  }

  TimerThread timers_{SystemClock::Get()};
  std::shared_ptr<transport::InprocEndpoint> endpoint_;
  std::unique_ptr<transport::UcxNode> reader_;
  std::unique_ptr<transport::Path> path_;
};

TEST_P(PathsToNodeTest, LayersComeWhileTheNodeReadsLaterOnesFromDisk) {
  const ObjectKey key = PutCold(5);
  OpenPath();
  gate_->CloseAt(1);
  const auto object = Get(Lease(key));
  ASSERT_OK(object);
  for (uint32_t layer = 0; layer + 1 < kLayers; ++layer) {
    ASSERT_OK((*object)->WaitLayer(layer));
    EXPECT_EQ((*object)->ReadyLayers(), layer + 1);
    EXPECT_TRUE(HasLayer((*object)->Layer(layer), layer, 5));
    gate_->CloseAt(layer + 2);
  }
  ASSERT_OK((*object)->WaitLayer(kLayers - 1));
  EXPECT_TRUE(HasLayer((*object)->Layer(kLayers - 1), kLayers - 1, 5));
}

TEST_P(PathsToNodeTest, ACancelledFetchLeavesTheLeaseToTheOthers) {
  const ObjectKey key = PutCold(5);
  OpenPath();
  gate_->CloseAt(2);
  const auto region = Lease(key);
  const auto cancelled = Start(region);
  const auto other = Start(region);
  EXPECT_OK(cancelled->log->WaitRange(0));
  EXPECT_OK(other->log->WaitRange(1));
  path_->Cancel(cancelled->id);
  EXPECT_EQ(EndOf(cancelled->log->WaitDone()), FetchEnd::kCancelled);
  // Whatever the node makes of the cancelled one is made by the time that nothing of it is left.
  EXPECT_TRUE(Soon([&] { return process_.door()->streams() + source_->open() <= 1; }));
  gate_->Open();
  EXPECT_OK(other->log->WaitDone());
  for (uint32_t layer = 0; layer < kLayers; ++layer) EXPECT_TRUE(HasLayer(other->slabs[layer], layer, 5));
  EXPECT_OK(Start(region)->log->WaitDone());
  Release(*region);
  EXPECT_TRUE(Soon([&] { return process_.store()->Usage().leased_objects == 0; }));
}

TEST_P(PathsToNodeTest, WhatALeaseThatEndedAmidATransferBroughtDoesNotCount) {
  const ObjectKey key = PutCold(5);
  OpenPath();
  gate_->CloseAt(kLayers - 1);
  const auto region = Lease(key);
  const auto object = Get(region);
  ASSERT_OK(object);
  ASSERT_OK((*object)->WaitLayer(kLayers - 2));
  Release(*region);
  gate_->Open();
  EXPECT_EQ(EndOf((*object)->WaitLayer(kLayers - 1)), FetchEnd::kLeaseEnded);
  EXPECT_EQ((*object)->ReadyLayers(), kLayers - 1);
  EXPECT_TRUE(Soon([&] { return process_.store()->Usage().leased_objects == 0; }));
  EXPECT_OK(Start(Lease(key))->log->WaitDone()) << "acquired again";
}

TEST_P(PathsToNodeTest, WhatCannotBeReadEndsTheLeaseAndIsAMissFromThenOn) {
  const ObjectKey key = PutCold(5);
  OpenPath();
  gate_->Break(3, SlabGate::Fault::kError);
  const auto object = Get(Lease(key));
  ASSERT_OK(object);
  EXPECT_EQ(EndOf((*object)->WaitLayer(kLayers - 1)), FetchEnd::kLeaseEnded);
  const auto again = objects_->Acquire(kTenant, {&key, 1}, {&kLayout, 1}, kLeaseMs, /*streaming=*/true);
  ASSERT_OK(again);
  EXPECT_FALSE(again->front().hit);
  EXPECT_EQ(again->front().cause, MissCause::kIoError);
}

INSTANTIATE_TEST_SUITE_P(Paths, PathsToNodeTest,
                         ::testing::Values(PathKind::kInproc, PathKind::kGrpc, PathKind::kUcx),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

}  // namespace
}  // namespace epic::kv_store
