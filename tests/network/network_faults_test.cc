// Fetches from a peer in another network, over links that lose packets, delay them, or are cut for seconds:
// right bytes or a clear error in bounded time, nothing left open, and the peer usable again.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/testing/status_matchers.h"
#include "common/transport/testing/fetch_log.h"
#include "common/transport/testing/test_source.h"
#include "common/transport/ucx/ucx_node.h"
#include "tests/network/testing/network.h"
#include "tests/network/testing/peer.h"

namespace epic::network {
namespace {

using transport::FetchEnd;
using transport::FetchLog;
using transport::Path;
using transport::PathKind;
using transport::Region;
using transport::TestSource;

constexpr int kObjects = 4;
constexpr uint32_t kTokens = 2048;  // 1 MiB an object, 4 layers

// Once for the process, before it has threads.
const absl::Status& OwnNetwork() {
  static const absl::Status status = EnterOwnNetwork();
  return status;
}

struct Running {
  std::shared_ptr<const Region> region;
  std::vector<std::vector<std::byte>> buffers;
  std::shared_ptr<FetchLog> log;
};

class NetworkFaultsTest : public ::testing::TestWithParam<PathKind> {
 protected:
  NetworkFaultsTest() {
    std::signal(SIGPIPE, SIG_IGN);
    for (uint64_t i = 0; i < kObjects; ++i) {
      regions_.push_back(twin_.Put(i + 1, transport::SmallLayout(4, kTokens)));
    }
  }
  void SetUp() override {
    if (!OwnNetwork().ok()) GTEST_SKIP() << OwnNetwork().message();
  }
  void TearDown() override {
    path_.reset();
    node_.reset();
  }

  // False, and the test is skipped or has failed, where there is no such link.
  bool Start(PeerOptions options) {
    options.objects = {"random", "1", std::to_string(kObjects), std::to_string(kTokens)};
    auto peer = Peer::Start(options);
    if (!peer.ok()) {
      ADD_FAILURE() << peer.status();
      return false;
    }
    peer_ = *std::move(peer);
    if (GetParam() == PathKind::kGrpc) {
      path_ = MakeGrpcPathTo(*peer_);
      return true;
    }
    auto node = transport::UcxNode::Start({.settings = peer_->ucx_settings()});
    if (!node.ok()) {
      ADD_FAILURE() << node.status();
      return false;
    }
    node_ = *std::move(node);
    path_ = node_->MakePath(peer_, {});
    return true;
  }

  Running Fetch(int object, int64_t deadline_ms) {
    Running running{.region = regions_[object]};
    transport::FetchRequest request{
        .region = running.region,
        .deadline_steady_ns = SystemClock::Get()->SteadyNs() + deadline_ms * 1'000'000};
    running.buffers.resize(running.region->layout.layers);
    for (uint32_t layer = 0; layer < running.region->layout.layers; ++layer) {
      running.buffers[layer].assign(running.region->layout.LayerBytes(), std::byte{0xA5});
      request.ranges.push_back({.layer = layer, .to = running.buffers[layer]});
    }
    running.log = std::make_shared<FetchLog>(request.ranges.size());
    path_->Fetch(std::move(request), running.log);
    return running;
  }
  // The end of a fetch; every range that is called good has the right bytes.
  FetchEnd EndOf(const Running& running) {
    const FetchEnd end = transport::EndOf(running.log->WaitDone());
    for (uint32_t layer = 0; layer < running.buffers.size(); ++layer) {
      if (!running.log->range(layer).ok()) continue;
      const ByteSpan right = twin_.Bytes(*running.region, layer);
      EXPECT_TRUE(std::equal(right.begin(), right.end(), running.buffers[layer].begin())) << "wrong bytes";
    }
    return end;
  }
  // Asks until it is so, at most 30 s.
  static bool Eventually(const std::function<bool()>& so) {
    const int64_t deadline_ns = SystemClock::Get()->SteadyNs() + 30'000'000'000;
    while (!so()) {
      if (SystemClock::Get()->SteadyNs() > deadline_ns) return false;
      HoldFor(20);
    }
    return true;
  }
  void ExpectWhole(int rounds) {
    const int64_t begin_ns = SystemClock::Get()->SteadyNs();
    for (int round = 0; round < rounds; ++round) {
      std::vector<Running> running;
      for (int object = 0; object < kObjects; ++object) running.push_back(Fetch(object, 60'000));
      for (const Running& fetch : running) EXPECT_EQ(EndOf(fetch), FetchEnd::kOk);
    }
    EXPECT_TRUE(Eventually([this] { return peer_->Open() == 0; })) << "something is left open";
    EXPECT_GT(DroppedPackets(), 0) << "nothing was lost";
    std::printf("%d MiB in %.1f s, %d packets to here were lost\n", rounds * kObjects,
                static_cast<double>(SystemClock::Get()->SteadyNs() - begin_ns) * 1e-9,
                static_cast<int>(DroppedPackets()));
  }

  TestSource twin_{1};
  std::vector<std::shared_ptr<const Region>> regions_;
  std::shared_ptr<Peer> peer_;
  std::unique_ptr<transport::UcxNode> node_;
  std::unique_ptr<Path> path_;
};

TEST_P(NetworkFaultsTest, FetchesCompleteThoughOnePacketInAHundredIsLost) {
  ASSERT_TRUE(Start({.whole_packets = true}));
  ASSERT_OK(peer_->Drop(1));
  ExpectWhole(/*rounds=*/8);
}

TEST_P(NetworkFaultsTest, FetchesCompleteOverALinkThatDelaysAndLoses) {
  ASSERT_TRUE(Start({.link = LinkKind::kForwarder, .delay_us = 5'000}));
  ASSERT_OK(peer_->Drop(1));
  ExpectWhole(/*rounds=*/2);
  EXPECT_GT(peer_->forwarder()->packets(), 1000u);
}

TEST_P(NetworkFaultsTest, APeerThatCannotBeReachedForSecondsIsUsedAgain) {
  ASSERT_TRUE(Start({.whole_packets = true}));
  EXPECT_EQ(EndOf(Fetch(0, 20'000)), FetchEnd::kOk);
  for (int round = 0; round < 2; ++round) {
    std::vector<Running> running;
    for (int object = 0; object < kObjects; ++object) running.push_back(Fetch(object, 15'000));
    ASSERT_OK(peer_->Drop(100));
    const int64_t cut_ns = SystemClock::Get()->SteadyNs();
    const FetchEnd hurried = EndOf(Fetch(0, 500));
    EXPECT_TRUE(hurried == FetchEnd::kDeadline || hurried == FetchEnd::kPathDown);
    EXPECT_LT(SystemClock::Get()->SteadyNs() - cut_ns, 10'000'000'000);
    HoldFor(4'000);
    ASSERT_OK(peer_->Drop(0));
    for (const Running& fetch : running) {
      const FetchEnd end = EndOf(fetch);
      EXPECT_TRUE(end == FetchEnd::kOk || end == FetchEnd::kPathDown || end == FetchEnd::kDeadline)
          << static_cast<int>(end);
    }
    EXPECT_TRUE(Eventually([this] { return EndOf(Fetch(1, 5'000)) == FetchEnd::kOk; }))
        << "the peer is not used again";
    EXPECT_TRUE(Eventually([this] { return peer_->Open() == 0; })) << "something is left open";
    EXPECT_TRUE(peer_->IsAlive());
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, NetworkFaultsTest, ::testing::Values(PathKind::kGrpc, PathKind::kUcx),
                         [](const ::testing::TestParamInfo<PathKind>& info) {
                           return info.param == PathKind::kGrpc ? "Grpc" : "Ucx";
                         });

}  // namespace
}  // namespace epic::network
