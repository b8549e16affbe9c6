// The hand-over between a store and clients: what they get, who gets it, and what is left of those that die,
// stall or talk nonsense. Where it matters the other end is another process.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/storage/shm/client.h"
#include "common/storage/shm/server.h"
#include "common/storage/shm/testing/child_process.h"
#include "common/storage/shm/testing/plain_store.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"

namespace epic::shm {
namespace {

using epic::testing::StatusIs;
using ::testing::HasSubstr;

constexpr std::string_view kTenant = "t";
constexpr uid_t kOtherUid = 65534;

class HandoverTest : public ::testing::Test {
 protected:
  ServerOptions Options() {
    return {
        .path = path_, .arena_fd = store_.fd(), .arena_bytes = PlainStore::kArenaBytes, .incarnation = 77};
  }
  void StartServer(const ServerOptions& options) {
    ASSERT_OK_AND_ASSIGN(server_, Server::Start(options, &store_));
  }
  void StartServer() { StartServer(Options()); }
  std::unique_ptr<Client> Connect() {
    auto client = Client::Connect({.path = path_});
    EXPECT_OK(client);
    return client.ok() ? *std::move(client) : nullptr;
  }
  // A connection that says what the test says, after hello.
  std::unique_ptr<Channel> ConnectRaw(bool hello = true) {
    auto socket = ConnectTo(path_);
    EXPECT_OK(socket);
    auto channel = std::make_unique<Channel>(*std::move(socket), 10'000);
    if (!hello) return channel;
    EXPECT_OK(channel->Send(EncodeFrame(FrameType::kHello, 1, "")));
    EXPECT_EQ(channel->Receive(kMaxAnswerBytes)->header.type, FrameType::kWelcome);
    return channel;
  }
  static std::string Lease(uint32_t number, const ObjectKey& key, bool zero_copy) {
    return EncodeFrame(
        FrameType::kLease, number,
        EncodeLeaseRequest(
            {.zero_copy = zero_copy, .tenant = std::string(kTenant), .key = key, .layout = PlainLayout()}));
  }

  const epic::testing::TempDir dir_;
  const std::string path_ = dir_.path() + "/store.sock";
  const KvLayout layout_ = PlainLayout();
  PlainStore store_;
  std::unique_ptr<Server> server_;
};

bool Copies(Client* client, uint32_t object, uint64_t seed) {
  const KvLayout layout = PlainLayout();
  std::string to(layout.TotalBytes(), '\0');
  const auto result = client->Copy(kTenant, PlainKey(object), layout, std::as_writable_bytes(std::span(to)));
  return result.ok() && result->outcome == Outcome::kHit && to == PlainContent(layout, seed);
}

Client::CopyResult Copy(Client* client, const ObjectKey& key, const KvLayout& layout) {
  std::string to(layout.TotalBytes(), '\0');
  const auto result = client->Copy(kTenant, key, layout, std::as_writable_bytes(std::span(to)));
  EXPECT_OK(result);
  return result.ok() ? *result : Client::CopyResult{};
}

bool HoldsContent(const HeldObject& object, uint64_t seed) {
  const std::string content = PlainContent(object.layout(), seed);
  for (uint32_t layer = 0; layer < object.layout().layers; ++layer) {
    const uint64_t bytes = object.layout().LayerBytes();
    if (AsText(object.Layer(layer)) != std::string_view(content).substr(layer * bytes, bytes)) return false;
    if (!object.Matches(layer)) return false;
  }
  return true;
}

TEST_F(HandoverTest, ACopyIsExactlyWhatTheStoreHas) {
  StartServer();
  store_.Put(PlainKey(1), layout_, 4096, 1);
  store_.Put(PlainKey(2), layout_, 64 << 10, 2);
  const auto client = Connect();
  EXPECT_EQ(client->incarnation(), 77u);
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(Copies(client.get(), 1, 1));
    EXPECT_TRUE(Copies(client.get(), 2, 2));
  }
  EXPECT_EQ(server_->numbers().leases, 0u);
  EXPECT_EQ(server_->numbers().leases_granted, 6u);
}

TEST_F(HandoverTest, AMissSaysWhy) {
  StartServer();
  store_.Put(PlainKey(1), layout_, 4096, 1);
  const auto client = Connect();
  const auto unknown = Copy(client.get(), PlainKey(9), layout_);
  EXPECT_EQ(unknown.outcome, Outcome::kMiss);
  EXPECT_EQ(unknown.cause, MissCause::kNeverStored);
  const auto other = Copy(client.get(), PlainKey(1), PlainLayout(65));
  EXPECT_EQ(other.outcome, Outcome::kMiss);
  EXPECT_EQ(other.cause, MissCause::kLayoutMismatch);
  store_.AnswerAllWith({.outcome = LeaseOutcome::kMustCopy});
  EXPECT_EQ(client->Hold(kTenant, PlainKey(1), layout_)->outcome, Outcome::kMustCopy);
  store_.AnswerAllWith({.outcome = LeaseOutcome::kRefused, .reason = "no such tenant"});
  EXPECT_THAT(client->Hold(kTenant, PlainKey(1), layout_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no such tenant")));
  store_.AnswerAllWith({.outcome = LeaseOutcome::kMiss, .cause = MissCause::kDeleted});
  EXPECT_EQ(Copy(client.get(), PlainKey(1), layout_).cause, MissCause::kDeleted) << "the connection goes on";
}

TEST_F(HandoverTest, CallsThatCannotBeAreRefusedHere) {
  StartServer();
  const auto client = Connect();
  KvLayout none = layout_;
  none.layers = 0;
  EXPECT_THAT(client->Hold(kTenant, PlainKey(1), none), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(client->Hold(kTenant, {}, layout_), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(client->Hold(std::string(257, 'x'), PlainKey(1), layout_),
              StatusIs(absl::StatusCode::kInvalidArgument));
  KvLayout f32 = layout_;
  f32.dtype = KvDtype::kF32;
  EXPECT_THAT(client->Hold(kTenant, PlainKey(1), f32), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(HandoverTest, AnObjectReplacedDuringTheCopyIsNoHit) {
  StartServer();
  store_.Put(PlainKey(1), layout_, 4096, 1);
  const auto client = Connect();
  // Elsewhere: the bytes that are copied are whole, and are not what readers of the key get any more.
  store_.AfterFind([this] { store_.Put(PlainKey(1), layout_, 128 << 10, 2); });
  EXPECT_EQ(Copy(client.get(), PlainKey(1), layout_).outcome, Outcome::kChanged);
  // In the same place: also torn.
  store_.AfterFind([this] { store_.Put(PlainKey(1), layout_, (128 << 10) + 64, 3); });
  EXPECT_EQ(Copy(client.get(), PlainKey(1), layout_).outcome, Outcome::kChanged);
  store_.AfterFind(nullptr);
  EXPECT_TRUE(Copies(client.get(), 1, 3));
}

TEST_F(HandoverTest, BytesThatAreNotThoseOfTheChecksumsAreDamage) {
  StartServer();
  store_.Put(PlainKey(1), layout_, 4096, 1);
  const auto client = Connect();
  const auto held = client->Hold(kTenant, PlainKey(1), layout_)->object;
  store_.Scribble(4096 + layout_.LayerBytes() + 5);
  EXPECT_EQ(Copy(client.get(), PlainKey(1), layout_).outcome, Outcome::kDamaged);
  EXPECT_TRUE(held->Matches(0));
  EXPECT_FALSE(held->Matches(1));
  store_.Scribble(4096 + layout_.LayerBytes() + 5);
  EXPECT_TRUE(Copies(client.get(), 1, 1));
}

TEST_F(HandoverTest, AHeldObjectIsHeldUntilItIsDestroyed) {
  StartServer();
  store_.Put(PlainKey(1), layout_, 4096, 1);
  auto client = Connect();
  auto first = client->Hold(kTenant, PlainKey(1), layout_)->object;
  auto second = client->Hold(kTenant, PlainKey(1), layout_)->object;
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(HoldsContent(*first, 1));
  EXPECT_EQ(store_.holds(), 2);
  EXPECT_EQ(server_->numbers().zero_copy_leases, 2u);
  first.reset();
  store_.WaitForHolds(1);
  client.reset();  // the object keeps the connection
  EXPECT_TRUE(second->StillHeld());
  EXPECT_TRUE(HoldsContent(*second, 1));
  second.reset();
  store_.WaitForHolds(0);
}

TEST_F(HandoverTest, AfterAStopNothingIsHeldAndReadersKnow) {
  StartServer();
  store_.Put(PlainKey(1), layout_, 4096, 1);
  const auto client = Connect();
  const auto held = client->Hold(kTenant, PlainKey(1), layout_)->object;
  ASSERT_NE(held, nullptr);
  EXPECT_TRUE(held->StillHeld());
  server_->Stop();
  EXPECT_FALSE(held->StillHeld());
  EXPECT_EQ(store_.holds(), 0);
  EXPECT_EQ(server_->numbers().leases, 0u);
  EXPECT_FALSE(std::filesystem::exists(path_));
  std::string to(layout_.TotalBytes(), '\0');
  EXPECT_THAT(client->Copy(kTenant, PlainKey(1), layout_, std::as_writable_bytes(std::span(to))),
              StatusIs(absl::StatusCode::kUnavailable));
  StartServer();
  EXPECT_TRUE(Copies(Connect().get(), 1, 1));
}

// --- two processes

int ReadInChild(const std::string& path, const ChildProcess::Ends& parent) {
  auto client = Client::Connect({.path = path});
  if (!client.ok()) return 2;
  if (!Copies(client->get(), 1, 1)) return 3;
  std::vector<std::shared_ptr<const HeldObject>> held;
  for (const uint32_t object : {1, 2, 1}) {
    const auto result = (*client)->Hold(kTenant, PlainKey(object), PlainLayout());
    if (!result.ok() || result->object == nullptr || !HoldsContent(*result->object, object)) return 4;
    held.push_back(result->object);
  }
  parent.Tell('h');
  parent.Hear();
  return 0;
}

TEST_F(HandoverTest, AKilledClientLosesItsLeases) {
  ChildProcess child([this](const ChildProcess::Ends& parent) { return ReadInChild(path_, parent); });
  ChildProcess other([this](const ChildProcess::Ends& parent) { return ReadInChild(path_, parent); });
  store_.Put(PlainKey(1), layout_, 4096, 1);
  store_.Put(PlainKey(2), layout_, 64 << 10, 2);
  StartServer();
  child.Start();
  other.Start();
  ASSERT_EQ(child.Hear(), 'h') << child.Wait();
  ASSERT_EQ(other.Hear(), 'h') << other.Wait();
  EXPECT_EQ(store_.holds(), 6);
  child.Kill();
  store_.WaitForHolds(3);
  other.Tell('e');
  EXPECT_EQ(other.Wait(), 0);
  store_.WaitForHolds(0);
  EXPECT_TRUE(Copies(Connect().get(), 2, 2)) << "the server goes on";
}

TEST_F(HandoverTest, WhatADeadStoreHandedOutStaysReadableButIsNotHeld) {
  store_.Put(PlainKey(1), layout_, 4096, 1);
  ChildProcess child([this](const ChildProcess::Ends& parent) {
    auto server = Server::Start(Options(), &store_);
    if (!server.ok()) return 2;
    parent.Tell('r');
    parent.Hear();
    return 0;
  });
  child.Start();
  ASSERT_EQ(child.Hear(), 'r') << child.Wait();
  const auto client = Connect();
  EXPECT_TRUE(Copies(client.get(), 1, 1));
  const auto held = client->Hold(kTenant, PlainKey(1), layout_)->object;
  ASSERT_NE(held, nullptr);
  EXPECT_TRUE(held->StillHeld());
  child.Kill();
  EXPECT_FALSE(held->StillHeld());
  EXPECT_TRUE(HoldsContent(*held, 1));
  EXPECT_THAT(client->Hold(kTenant, PlainKey(1), layout_), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Client::Connect({.path = path_}), StatusIs(absl::StatusCode::kUnavailable));
  StartServer();
  EXPECT_TRUE(Copies(Connect().get(), 1, 1)) << "the dead one's socket file is replaced";
}

// --- who may connect

TEST_F(HandoverTest, OnlyTheOwnerMayConnect) {
  StartServer();
  struct stat info = {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  server_->Stop();
  ServerOptions options = Options();
  options.peer_uid = geteuid() + 1;
  StartServer(options);
  EXPECT_THAT(Client::Connect({.path = path_}), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(server_->numbers().clients_refused, 1u);
  EXPECT_EQ(server_->numbers().connections, 0u);
  EXPECT_THAT(Client::Connect({.path = path_, .server_uid = geteuid() + 1}),
              StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(HandoverTest, AProcessOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const auto connect_as_other = [this](const ChildProcess::Ends& parent) {
    if (setgid(kOtherUid) != 0 || setuid(kOtherUid) != 0) return 2;
    if (Client::Connect({.path = path_, .server_uid = 0}).ok()) return 3;
    parent.Tell('1');  // refused by the file's mode
    parent.Hear();
    const auto now = Client::Connect({.path = path_, .server_uid = 0});
    return now.ok() ? 4 : 0;
  };
  ChildProcess child(connect_as_other);
  ASSERT_EQ(chmod(dir_.path().c_str(), 0755), 0);
  StartServer();
  child.Start();
  ASSERT_EQ(child.Hear(), '1') << child.Wait();
  EXPECT_EQ(server_->numbers().clients_refused, 0u);
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  child.Tell('2');
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_EQ(server_->numbers().clients_refused, 1u) << "refused by its credentials";
}

TEST_F(HandoverTest, ASocketPathThatIsTakenOrTooLongIsAnError) {
  StartServer();
  EXPECT_THAT(Server::Start(Options(), &store_), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_TRUE(std::filesystem::exists(path_)) << "it is the first one's";
  ServerOptions options = Options();
  options.path = dir_.path() + "/file";
  ASSERT_GE(close(open(options.path.c_str(), O_CREAT | O_WRONLY, 0600)), 0);
  EXPECT_THAT(Server::Start(options, &store_), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_TRUE(std::filesystem::exists(options.path)) << "a file that is no socket is left alone";
  options.path = dir_.path() + "/" + std::string(108, 'x');
  EXPECT_THAT(Server::Start(options, &store_), StatusIs(absl::StatusCode::kInvalidArgument));
  options.path = dir_.path() + "/none/store.sock";
  EXPECT_THAT(Server::Start(options, &store_), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(HandoverTest, ConnectionsAndLeasesAreBounded) {
  ServerOptions options = Options();
  options.connections_max = 2;
  options.leases_max = 2;
  StartServer(options);
  store_.Put(PlainKey(1), layout_, 4096, 1);
  auto first = Connect();
  const auto second = Connect();
  EXPECT_THAT(Client::Connect({.path = path_}), StatusIs(absl::StatusCode::kUnavailable));
  auto a = first->Hold(kTenant, PlainKey(1), layout_)->object;
  const auto b = first->Hold(kTenant, PlainKey(1), layout_)->object;
  EXPECT_THAT(first->Hold(kTenant, PlainKey(1), layout_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("release some")));
  a.reset();
  EXPECT_TRUE(Copies(first.get(), 1, 1));
}

// --- clients that stall or talk nonsense

// Whether the server ends a connection on which `bytes` are said.
bool EndsAfter(Channel* channel, const std::string& bytes) {
  if (!channel->Send(bytes).ok()) return true;
  while (true) {
    const auto frame = channel->Receive(kMaxAnswerBytes);
    if (!frame.ok()) return absl::IsUnavailable(frame.status());
  }
}

TEST_F(HandoverTest, AClientThatBreaksTheProtocolLosesItsConnectionOnly) {
  StartServer();
  store_.Put(PlainKey(1), layout_, 4096, 1);
  const auto good = Connect();
  const auto held = good->Hold(kTenant, PlainKey(1), layout_)->object;
  std::string oversize = EncodeFrame(FrameType::kLease, 1, "");
  oversize[13] = 0x11;  // 4352 bytes
  const std::string lease = Lease(1, PlainKey(1), true);
  struct Case {
    const char* name;
    bool hello;
    std::string bytes;
  };
  const Case cases[] = {
      {"garbage", false, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"no hello", false, lease},
      {"two hellos", true, EncodeFrame(FrameType::kHello, 2, "")},
      {"a store's frame", true, EncodeFrame(FrameType::kConfirmed, 2, EncodeConfirmed(true))},
      {"a body over the bound", true, oversize},
      {"a lease without a body", true, EncodeFrame(FrameType::kLease, 1, "")},
      {"a lease that does not exist", true, EncodeFrame(FrameType::kRelease, 1, EncodeLeaseNumber(1))},
      {"another connection's lease", true, EncodeFrame(FrameType::kConfirm, 1, EncodeLeaseNumber(1))},
      {"a zero-copy lease confirmed", true,
       lease + EncodeFrame(FrameType::kConfirm, 1, EncodeLeaseNumber(1))},
      {"a lease released twice", true,
       lease + EncodeFrame(FrameType::kRelease, 1, EncodeLeaseNumber(1)) +
           EncodeFrame(FrameType::kRelease, 1, EncodeLeaseNumber(1))},
  };
  uint64_t malformed = 0;
  for (const Case& each : cases) {
    const auto channel = ConnectRaw(each.hello);
    EXPECT_TRUE(EndsAfter(channel.get(), each.bytes)) << each.name;
    store_.WaitForHolds(1);
    ++malformed;
  }
  EXPECT_TRUE(held->StillHeld());
  EXPECT_TRUE(Copies(good.get(), 1, 1));
  EXPECT_TRUE(Copies(Connect().get(), 1, 1));
  server_->Stop();
  EXPECT_EQ(server_->numbers().clients_malformed, malformed);
}

TEST_F(HandoverTest, AClientOfAnotherVersionIsToldSo) {
  StartServer();
  std::string hello = EncodeFrame(FrameType::kHello, 1, "");
  hello[4] = 9;
  const auto channel = ConnectRaw(false);
  ASSERT_OK(channel->Send(hello));
  ASSERT_OK_AND_ASSIGN(const Frame frame, channel->Receive(kMaxAnswerBytes));
  EXPECT_EQ(frame.header.type, FrameType::kRefused);
  EXPECT_THAT(*DecodeReason(AsBytes(frame.body)), HasSubstr("version 9"));
}

TEST_F(HandoverTest, AClientThatStopsWithinAFrameIsGivenUp) {
  ServerOptions options = Options();
  options.timeout_ms = 50;
  StartServer(options);
  const auto silent = ConnectRaw(false);
  const auto half = ConnectRaw();
  const auto idle = Connect();
  ASSERT_OK(half->Send(Lease(1, PlainKey(1), false).substr(0, 20)));
  EXPECT_THAT(silent->Receive(kMaxAnswerBytes), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(half->Receive(kMaxAnswerBytes), StatusIs(absl::StatusCode::kUnavailable));
  store_.Put(PlainKey(1), layout_, 4096, 1);
  EXPECT_TRUE(Copies(idle.get(), 1, 1)) << "one that has nothing to ask is left alone";
}

TEST_F(HandoverTest, AClientThatDoesNotReadItsAnswersIsGivenUp) {
  ServerOptions options = Options();
  options.timeout_ms = 50;
  options.leases_max = 1'000'000;
  StartServer(options);
  const KvLayout large = PlainLayout(1, 2000);  // 8000 checksums in each answer
  store_.Put(PlainKey(1), large, 4096, 1);
  const auto channel = ConnectRaw();
  const std::string lease = EncodeFrame(
      FrameType::kLease, 1,
      EncodeLeaseRequest({.zero_copy = false, .tenant = "t", .key = PlainKey(1), .layout = large}));
  absl::Status status;
  for (int requests = 0; requests < 100'000 && status.ok(); ++requests) status = channel->Send(lease);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(Copy(Connect().get(), PlainKey(1), large).outcome, Outcome::kHit);
}

TEST_F(HandoverTest, AStoreThatDoesNotAnswerIsGivenUp) {
  StartServer();
  store_.Put(PlainKey(1), layout_, 4096, 1);
  ASSERT_OK_AND_ASSIGN(const auto client, Client::Connect({.path = path_, .timeout_ms = 300}));
  const auto held = client->Hold(kTenant, PlainKey(1), layout_)->object;
  store_.Block();
  const auto patient = Connect();
  EXPECT_THAT(client->Hold(kTenant, PlainKey(1), layout_), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(client->Hold(kTenant, PlainKey(1), layout_), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(held->StillHeld());
  store_.Unblock();
  store_.WaitForHolds(0);
  EXPECT_TRUE(Copies(patient.get(), 1, 1));
}

// Whole conversations with mutated frames: the server survives, leaks no lease and serves on.
TEST_F(HandoverTest, MutatedConversationsHarmNobody) {
  constexpr int kRounds = 400;
  constexpr uint64_t kSeed = 4711;
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  Rng rng(kSeed);
  ServerOptions options = Options();
  options.connections_max = kRounds + 1;
  StartServer(options);
  store_.Put(PlainKey(1), layout_, 4096, 1);
  for (int round = 0; round < kRounds; ++round) {
    std::string talk = EncodeFrame(FrameType::kHello, 1, "") + Lease(2, PlainKey(1), true) +
                       EncodeFrame(FrameType::kRelease, 3, EncodeLeaseNumber(1)) +
                       Lease(4, PlainKey(1), false) +
                       EncodeFrame(FrameType::kConfirm, 5, EncodeLeaseNumber(2));
    for (uint64_t changes = rng.Below(4); changes > 0; --changes) {
      talk[rng.Below(talk.size())] = static_cast<char>(rng.Next());
    }
    talk.resize(talk.size() - rng.Below(2) * rng.Below(talk.size()));
    const auto channel = ConnectRaw(false);
    channel->Send(talk).IgnoreError();
    channel->Close();
  }
  EXPECT_TRUE(Copies(Connect().get(), 1, 1));
  server_->Stop();
  EXPECT_EQ(store_.holds(), 0);
  EXPECT_EQ(server_->numbers().leases, 0u);
}

// --- stores that are none

// Answers one client with what the test says.
class FalseStore {
 public:
  FalseStore(const std::string& path, int fd, std::vector<std::string> answers)
      : listener_(*ListenOn(path)), thread_([this, fd, answers = std::move(answers)] { Run(fd, answers); }) {}
  ~FalseStore() { thread_.join(); }

 private:
  void Run(int fd, const std::vector<std::string>& answers) {
    Channel channel(UniqueFd(accept(listener_.get(), nullptr, nullptr)), 10'000);
    for (const std::string& answer : answers) {
      if (!channel.Receive(kMaxRequestBytes).ok() || !channel.Send(answer, std::exchange(fd, -1)).ok())
        return;
    }
    channel.Receive(kMaxRequestBytes).status().IgnoreError();
  }

  const UniqueFd listener_;
  std::thread thread_;
};

std::string WelcomeFrame(uint64_t arena_bytes = PlainStore::kArenaBytes) {
  return EncodeFrame(FrameType::kWelcome, 0, EncodeWelcome({.incarnation = 1, .arena_bytes = arena_bytes}));
}

TEST_F(HandoverTest, AStoreWithoutSealedMemoryOfItsSizeIsRefused) {
  const PlainStore unsealed(/*sealed=*/false);
  struct Case {
    const char* name;
    int fd;
    std::string welcome;
  };
  const Case cases[] = {{"no file", -1, WelcomeFrame()},
                        {"not sealed", unsealed.fd(), WelcomeFrame()},
                        {"smaller than it says", store_.fd(), WelcomeFrame(PlainStore::kArenaBytes + 4096)},
                        {"of no size", store_.fd(), WelcomeFrame(0)},
                        {"not a welcome", store_.fd(), EncodeFrame(FrameType::kConfirmed, 0, "\1")},
                        {"refused", -1, EncodeFrame(FrameType::kRefused, 0, EncodeReason("go away"))}};
  for (const Case& each : cases) {
    const FalseStore store(path_, each.fd, {each.welcome});
    EXPECT_THAT(Client::Connect({.path = path_}), StatusIs(absl::StatusCode::kFailedPrecondition))
        << each.name;
    unlink(path_.c_str());
  }
}

TEST_F(HandoverTest, AnswersThatCannotBeRightAreNotBelieved) {
  store_.Put(PlainKey(1), layout_, 4096, 1);
  LeaseAnswer right =
      store_.Find({.zero_copy = false, .tenant = "t", .key = PlainKey(1), .layout = layout_}).answer;
  const auto wrong = [&right](const std::function<void(LeasedObject*)>& change) {
    LeaseAnswer answer = right;
    change(&answer.object);
    return EncodeFrame(FrameType::kAnswer, 1, EncodeLeaseAnswer(answer));
  };
  struct Case {
    const char* name;
    std::string answer;
  };
  const Case cases[] = {
      {"past the arena", wrong([](LeasedObject* o) { o->layer_offsets[1] = PlainStore::kArenaBytes - 64; })},
      {"far past it", wrong([](LeasedObject* o) { o->layer_offsets[1] = ~uint64_t{63}; })},
      {"unaligned", wrong([](LeasedObject* o) { o->layer_offsets[2] += 8; })},
      {"a layer short", wrong([](LeasedObject* o) { o->layer_offsets.pop_back(); })},
      {"a checksum short", wrong([](LeasedObject* o) { o->block_crcs.pop_back(); })},
      {"checksums of another build", wrong([](LeasedObject* o) { o->block_crcs[0] ^= 1; })},
      {"another request's", EncodeFrame(FrameType::kAnswer, 2, EncodeLeaseAnswer(right))},
      {"no answer", EncodeFrame(FrameType::kConfirmed, 1, EncodeConfirmed(true))},
      {"garbage", std::string(64, 'x')}};
  for (const Case& each : cases) {
    const FalseStore store(path_, store_.fd(), {WelcomeFrame(), each.answer});
    const auto client = Connect();
    EXPECT_THAT(client->Hold(kTenant, PlainKey(1), layout_), StatusIs(absl::StatusCode::kDataLoss))
        << each.name;
    EXPECT_THAT(client->Hold(kTenant, PlainKey(1), layout_), StatusIs(absl::StatusCode::kUnavailable));
    unlink(path_.c_str());
  }
}

// Threads read through one client and through several while objects are replaced in place. For
// ThreadSanitizer.
TEST_F(HandoverTest, ThreadsNeverSeeTornObjects) {
  constexpr int kThreads = 3;
  constexpr int kReads = 300;
  StartServer();
  store_.Put(PlainKey(1), layout_, 4096, 0);
  const auto shared = Connect();
  std::atomic<int> hits{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (int thread = 0; thread < kThreads; ++thread) {
    readers.emplace_back([&, thread] {
      const auto own = Connect();
      std::string to(layout_.TotalBytes(), '\0');
      for (int read = 0; read < kReads; ++read) {
        Client* const client = read % 2 == 0 ? shared.get() : own.get();
        const auto result =
            client->Copy(kTenant, PlainKey(1), layout_, std::as_writable_bytes(std::span(to)));
        ASSERT_OK(result);
        if (result->outcome != Outcome::kHit) continue;
        ++hits;
        EXPECT_TRUE(to == PlainContent(layout_, 0) || to == PlainContent(layout_, 1)) << thread;
      }
    });
  }
  std::thread writer([&] {
    for (uint64_t seed = 1; !done; ++seed) store_.Put(PlainKey(1), layout_, 4096, seed % 2);
  });
  for (std::thread& reader : readers) reader.join();
  done = true;
  writer.join();
  std::printf("%d of %d reads were hits\n", hits.load(), kThreads * kReads);
}

}  // namespace
}  // namespace epic::shm
