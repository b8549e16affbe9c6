// A peer over gRPC whose other side is slow, hung, killed, not a node, or sends what cannot be read.
#include "services/kv_store/replication/rpc/remote_peer.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include "common/rpc/testing/certificates.h"
#include "common/status/error.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "epic/v1/replication.grpc.pb.h"
#include "services/kv_store/replication/rpc/replica_status.h"
#include "services/kv_store/replication/rpc/testing/any_message.h"
#include "services/kv_store/replication/rpc/testing/grpc_ways.h"
#include "services/kv_store/replication/rpc/testing/peer_door.h"

namespace epic::kv_store {
namespace {

constexpr int64_t kLongMs = 20'000;

// A node that answers beats with the number of the call, or keeps them; other calls are never answered.
class ScriptedPeer final : public PassingPeer<ScriptedPeer> {
 public:
  void Beat(BeatRequest, int64_t, Done<BeatReply> done) override {
    {
      MutexLock lock(&mu_);
      ++calls_;
      came_.SignalAll();
      if (holds_) {
        held_.push_back(std::move(done));
        return;
      }
    }
    done(BeatReply{});
  }
  template <typename Method, typename Request, typename Reply>
  void Pass(Method, Request, int64_t, Done<Reply>) {
    MutexLock lock(&mu_);
    ++calls_;
    came_.SignalAll();
  }
  void Hold(bool holds) {
    MutexLock lock(&mu_);
    holds_ = holds;
  }
  void AwaitCalls(size_t calls) {
    MutexLock lock(&mu_);
    while (calls_ < calls) came_.Wait(&mu_);
  }
  size_t calls() {
    MutexLock lock(&mu_);
    return calls_;
  }
  void AnswerAll() {
    std::deque<Done<BeatReply>> held;
    {
      MutexLock lock(&mu_);
      held.swap(held_);
    }
    for (const auto& done : held) done(BeatReply{});
  }

 private:
  Mutex mu_;
  CondVar came_;
  bool holds_ ABSL_GUARDED_BY(mu_) = false;
  size_t calls_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Done<BeatReply>> held_ ABSL_GUARDED_BY(mu_);
};

using BeatAnswer = std::shared_ptr<Awaited<absl::StatusOr<BeatReply>>>;

BeatAnswer BeginBeat(RemotePeer* peer, int64_t timeout_ms = kLongMs) {
  return Begin<BeatRequest, BeatReply>(peer, &ReplicaPeer::Beat, {}, timeout_ms);
}

// Within a moment, however long the call may last.
absl::Status EndOf(const BeatAnswer& answer, int64_t ms = 10'000) {
  auto came = answer->WaitMs(ms);
  return came.has_value() ? came->status() : absl::UnknownError("no answer");
}

void ExpectNetworkError(const absl::Status& status) {
  EXPECT_TRUE(absl::IsUnavailable(status) && IsUnexpected(status)) << status;
}

bool Eventually(const std::function<bool()>& holds) {
  Awaited<bool> nobody;
  const int64_t end_ns = SystemClock::Get()->SteadyNs() + kLongMs * 1'000'000;
  while (!holds()) {
    if (SystemClock::Get()->SteadyNs() > end_ns) return false;
    nobody.WaitMs(10);
  }
  return true;
}

class RemotePeerTest : public ::testing::Test {
 protected:
  RemotePeerTest() { Serve({}); }
  void Serve(ReplicationServiceOptions options) {
    door_ = std::make_unique<PeerDoor>(node_, std::move(options));
    peer_ = std::make_unique<RemotePeer>(RemotePeerOptions{.address = door_->address()});
  }

  const std::shared_ptr<ScriptedPeer> node_ = std::make_shared<ScriptedPeer>();
  std::unique_ptr<PeerDoor> door_;
  std::unique_ptr<RemotePeer> peer_;
};

TEST_F(RemotePeerTest, AServerThatIsKilledEndsItsCallsAtOnceAndIsFoundAgain) {
  node_->Hold(true);
  std::vector<BeatAnswer> answers;
  for (int call = 0; call < 16; ++call) answers.push_back(BeginBeat(peer_.get()));
  node_->AwaitCalls(16);
  door_->Stop();
  for (const BeatAnswer& answer : answers) ExpectNetworkError(EndOf(answer));
  ExpectNetworkError(EndOf(BeginBeat(peer_.get())));  // nobody listens
  node_->AnswerAll();                                 // of calls that are over
  node_->Hold(false);
  door_->Start();
  EXPECT_TRUE(Eventually([&] { return EndOf(BeginBeat(peer_.get())).ok(); }));
}

TEST_F(RemotePeerTest, AHungServerCostsItsOwnCallsTheirDeadlineAndOthersNothing) {
  const auto other_node = std::make_shared<ScriptedPeer>();
  PeerDoor other_door(other_node);
  RemotePeer other({.address = other_door.address()});
  node_->Hold(true);
  std::vector<BeatAnswer> hung;
  for (int call = 0; call < 64; ++call) hung.push_back(BeginBeat(peer_.get(), 500));
  node_->AwaitCalls(64);
  for (int call = 0; call < 64; ++call) EXPECT_OK(EndOf(BeginBeat(&other)));
  for (const BeatAnswer& answer : hung) ExpectNetworkError(EndOf(answer));
  EXPECT_TRUE(Eventually([&] { return door_->service().calls() == 0; })) << "the server keeps calls";
  node_->AnswerAll();
  node_->Hold(false);
  EXPECT_OK(EndOf(BeginBeat(peer_.get())));
}

TEST_F(RemotePeerTest, AMachineThatTakesConnectionsAndNothingElseIsUnavailable) {
  const int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_GE(listening, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(listening, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listening, 8), 0);
  ASSERT_EQ(getsockname(listening, reinterpret_cast<sockaddr*>(&address), &size), 0);
  RemotePeer peer({.address = "127.0.0.1:" + std::to_string(ntohs(address.sin_port))});
  ExpectNetworkError(EndOf(BeginBeat(&peer, 300)));
  close(listening);
}

TEST_F(RemotePeerTest, ACallIsNeverSentAfterItsDeadline) {
  ExpectNetworkError(EndOf(BeginBeat(peer_.get(), -1)));
  EXPECT_EQ(node_->calls(), 0u);
}

TEST_F(RemotePeerTest, CallsOutliveThePeer) {
  node_->Hold(true);
  const BeatAnswer answer = BeginBeat(peer_.get());
  node_->AwaitCalls(1);
  peer_.reset();
  node_->AnswerAll();
  EXPECT_OK(EndOf(answer));
}

TEST_F(RemotePeerTest, CallsUnderWayAreBoundedOnBothSides) {
  Serve({.node_role = "", .most_calls = 2});
  node_->Hold(true);
  const BeatAnswer first = BeginBeat(peer_.get()), second = BeginBeat(peer_.get());
  node_->AwaitCalls(2);
  EXPECT_EQ(CodeOf(EndOf(BeginBeat(peer_.get()))), ErrorCode::kQueueFull);
  RemotePeer narrow({.address = door_->address(), .most_calls = 0});
  ExpectNetworkError(EndOf(BeginBeat(&narrow)));
  node_->AnswerAll();
  EXPECT_OK(EndOf(first));
  EXPECT_OK(EndOf(second));
}

TEST_F(RemotePeerTest, WhatCannotBeReadIsRefusedAndReachesNobody) {
  const auto stub =
      v1::ReplicationService::NewStub(MakeChannel(door_->address(), nullptr, grpc::ChannelArguments()));
  grpc::ClientContext context;
  v1::ReplicaFetchResponse reply;
  const grpc::Status status = stub->Fetch(&context, v1::ReplicaFetchRequest(), &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CodeOf(FromReplicaGrpcStatus(status)), ErrorCode::kInvalidRequest);
  ChangeRequest ahead{.id = 1, .key = AnyMessage(1).Key(), .what = DeleteChange{}};
  ahead.until_unix_ms = SystemClock::Get()->UnixMs() + 100 * 3'600'000LL;
  const auto answer = Begin<ChangeRequest, ChangeReply>(peer_.get(), &ReplicaPeer::Change, ahead, kLongMs);
  EXPECT_EQ(ParamOf(answer->WaitMs(kLongMs)->status()), "until_unix_ms");
  EXPECT_EQ(node_->calls(), 0u);
}

TEST_F(RemotePeerTest, AnAnswerThatCannotBeReadIsNoAnswer) {
  class Nonsense final : public v1::ReplicationService::CallbackService {
    grpc::ServerUnaryReactor* Beat(grpc::CallbackServerContext* context, const v1::ReplicaBeatRequest*,
                                   v1::ReplicaBeatResponse*) override {
      auto* const reactor = context->DefaultReactor();
      reactor->Finish(grpc::Status::OK);
      return reactor;
    }
  } nonsense;
  GrpcListener listener;
  ASSERT_OK(listener.Listen("127.0.0.1:0", {}, {&nonsense}));
  RemotePeer peer({.address = "127.0.0.1:" + std::to_string(listener.port())});
  ExpectNetworkError(EndOf(BeginBeat(&peer)));
  listener.Stop(0);
}

TEST_F(RemotePeerTest, WhatTheLongestContextsNeedArrives) {
  SendRequest request{.session = 1, .beat = 1, .items = {}};
  ReplicaItem item{.key = AnyMessage(1).Key(), .state = {}, .tokens = nullptr};
  item.state.record = AnyMessage(2).Record(item.key);
  item.state.record->token_count = 3'000'000;
  item.tokens = std::make_shared<const std::vector<TokenId>>(3'000'000, 100'000);
  request.items.push_back(std::move(item));
  const auto sent = Begin<SendRequest, SendReply>(peer_.get(), &ReplicaPeer::Send, request, kLongMs);
  node_->AwaitCalls(1);
}

TEST(ReplicationRoleTest, OnlyNodesMayCallWhereMutualTlsIsOn) {
  const epic::testing::Authority authority("parts");
  const epic::testing::TempDir dir;
  const auto load = [&](const std::string& name, std::vector<std::string> dns) {
    const epic::testing::Identity identity = authority.Issue({.dns = std::move(dns)});
    CredentialsOptions options;
    options.paths = {dir.path() + "/" + name + ".cert", dir.path() + "/" + name + ".key", dir.path() + "/ca"};
    epic::testing::WriteFile(options.paths.cert_file, identity.cert_pem);
    epic::testing::WriteFile(options.paths.key_file, identity.key_pem);
    epic::testing::WriteFile(options.paths.ca_file, authority.pem());
    return *Credentials::Load(options);
  };
  const auto node = std::make_shared<ScriptedPeer>();
  PeerDoor door(node, {.node_role = "store.epic"}, load("server", {"localhost", "store.epic"}));
  RemotePeer store({.address = door.address(), .credentials = load("store", {"localhost", "store.epic"})});
  EXPECT_OK(EndOf(BeginBeat(&store)));
  RemotePeer router({.address = door.address(), .credentials = load("router", {"localhost", "router.epic"})});
  EXPECT_EQ(CodeOf(EndOf(BeginBeat(&router))), ErrorCode::kPermissionDenied);
  EXPECT_EQ(node->calls(), 1u);
  // Without TLS nobody can show to be one.
  PeerDoor plain(node, {.node_role = "store.epic"});
  RemotePeer anybody({.address = plain.address()});
  EXPECT_EQ(CodeOf(EndOf(BeginBeat(&anybody))), ErrorCode::kPermissionDenied);
}

}  // namespace
}  // namespace epic::kv_store
