#include "common/transport/ucx/ucx_fabric.h"

#include <algorithm>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/mutex.h"
#include "common/testing/status_matchers.h"

namespace epic::transport {
namespace {

using ::epic::testing::StatusIs;

// A value that the loop sets and a test waits for.
template <typename T>
class Slot {
 public:
  void Set(T value) {
    MutexLock lock(&mu_);
    value_ = std::move(value);
    changed_.SignalAll();
  }
  // Within 20 s.
  std::optional<T> Wait() {
    MutexLock lock(&mu_);
    for (int rounds = 0; !value_.has_value() && rounds < 200; ++rounds) changed_.WaitForMs(&mu_, 100);
    return value_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::optional<T> value_ ABSL_GUARDED_BY(mu_);
};

// One end of a lane: what came, and what to do with bodies. Shared by the loop and the test through Slots.
class End final : public LaneEvents {
 public:
  void OnMessage(uint8_t kind, ByteSpan header, IncomingBody& body) override {
    if (body.size() > 0 && !into.empty()) {
      body.ReceiveInto(into.first(body.size()), MemoryKind::kHost,
                       [this](absl::Status status) { received.Set(status); });
    }
    if (close_on_message && lane != nullptr) std::exchange(lane, nullptr)->Close();
    message.Set({kind, std::string(AsText(header))});
  }
  void OnDown(const absl::Status& why) override { down.Set(why); }

  Lane* lane = nullptr;  // the loop's
  MutableByteSpan into;
  bool close_on_message = false;
  Slot<std::pair<int, std::string>> message;
  Slot<absl::Status> received;
  Slot<absl::Status> down;
};

class Acceptor final : public LaneAcceptor {
 public:
  LaneEvents* OnLane(Lane* lane) override {
    end.lane = lane;
    accepted.Set(true);
    return &end;
  }
  End end;
  Slot<bool> accepted;
};

std::vector<std::byte> Pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 2654435761u) >> 13);
  return bytes;
}

UcxSettings ClientSettings() {
  UcxSettings settings;
  settings.listen_ip = "";
  return settings;
}

class UcxFabricTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = UcxFabric::Start(UcxSettings(), SystemClock::Get(), &acceptor_);
    ASSERT_OK(server);
    server_ = *std::move(server);
    auto client = UcxFabric::Start(ClientSettings(), SystemClock::Get(), nullptr);
    ASSERT_OK(client);
    client_ = *std::move(client);
  }

  // Runs `task` on the loop of `fabric` and waits for it.
  static void On(UcxFabric* fabric, std::function<void()> task) {
    Slot<bool> done;
    ASSERT_TRUE(fabric->loop()->TryPost([&] {
      task();
      done.Set(true);
    }));
    ASSERT_TRUE(done.Wait().has_value());
  }
  void Connect() {
    On(client_.get(), [&] {
      auto lane = client_->Connect(server_->address(), &end_);
      ASSERT_OK(lane);
      end_.lane = *lane;
    });
  }
  // A message from the client; its end, which may come after the test.
  std::shared_ptr<Slot<absl::Status>> Send(std::string header, ByteSpan body) {
    auto sent = std::make_shared<Slot<absl::Status>>();
    On(client_.get(), [&] {
      end_.lane->Send(3, std::move(header), body, MemoryKind::kHost,
                      [sent](absl::Status status) { sent->Set(status); });
    });
    return sent;
  }
  static size_t Lanes(UcxFabric* fabric) {
    size_t lanes = 0;
    On(fabric, [&] { lanes = fabric->lanes(); });
    return lanes;
  }

  Acceptor acceptor_;
  End end_;
  std::unique_ptr<UcxFabric> server_;
  std::unique_ptr<UcxFabric> client_;
};

TEST_F(UcxFabricTest, MessagesArriveWithTheirBodies) {
  Connect();
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{100}, size_t{65'536}, size_t{1 << 20}, size_t{8 << 20}}) {
    const std::vector<std::byte> body = Pattern(size);
    std::vector<std::byte> into(size + 8, std::byte{0x5A});
    End& other = acceptor_.end;
    On(server_.get(), [&] {
      other.into = into;
      std::destroy_at(&other.message);
      std::construct_at(&other.message);
      std::destroy_at(&other.received);
      std::construct_at(&other.received);
    });
    const auto sent = Send("size " + std::to_string(size), body);
    ASSERT_TRUE(sent->Wait().has_value());
    EXPECT_OK(*sent->Wait());
    ASSERT_TRUE(other.message.Wait().has_value());
    EXPECT_EQ(*other.message.Wait(), std::pair(3, "size " + std::to_string(size)));
    if (size == 0) continue;
    ASSERT_TRUE(other.received.Wait().has_value());
    ASSERT_OK(*other.received.Wait());
    EXPECT_TRUE(std::equal(body.begin(), body.end(), into.begin()));
    for (size_t i = size; i < into.size(); ++i) EXPECT_EQ(into[i], std::byte{0x5A});
  }
}

TEST_F(UcxFabricTest, TheOtherEndAnswersOnTheSameLane) {
  Connect();
  const auto sent = Send("ping", {});
  ASSERT_TRUE(acceptor_.end.message.Wait().has_value());
  Slot<absl::Status> answered;
  const std::vector<std::byte> body = Pattern(300'000);
  std::vector<std::byte> into(300'000);
  On(client_.get(), [&] { end_.into = into; });
  On(server_.get(), [&] {
    acceptor_.end.lane->Send(5, "pong", body, MemoryKind::kHost,
                             [&](absl::Status status) { answered.Set(status); });
  });
  ASSERT_TRUE(end_.received.Wait().has_value());
  EXPECT_OK(*end_.received.Wait());
  EXPECT_OK(*answered.Wait());
  EXPECT_EQ(end_.message.Wait()->first, 5);
  EXPECT_EQ(into, body);
}

TEST_F(UcxFabricTest, ABodyThatNobodyTakesIsDroppedAndTheSenderIsLetGo) {
  Connect();
  const std::vector<std::byte> body = Pattern(1 << 20);
  const auto sent = Send("unwanted", body);
  ASSERT_TRUE(sent->Wait().has_value());
  const auto sent_again = Send("still here", {});
  EXPECT_OK(*sent_again->Wait());
}

TEST_F(UcxFabricTest, ClosingTellsTheOtherEndAndFreesTheLanesOfBoth) {
  Connect();
  const auto sent = Send("hello", {});
  ASSERT_TRUE(acceptor_.end.message.Wait().has_value());
  On(client_.get(), [&] { std::exchange(end_.lane, nullptr)->Close(); });
  const auto down = acceptor_.end.down.Wait();
  ASSERT_TRUE(down.has_value());
  EXPECT_THAT(*down, StatusIs(absl::StatusCode::kUnavailable));
  On(server_.get(), [&] { std::exchange(acceptor_.end.lane, nullptr)->Close(); });
  EXPECT_EQ(Lanes(server_.get()), 0u);
  EXPECT_EQ(Lanes(client_.get()), 0u);
}

TEST_F(UcxFabricTest, ALaneThatIsClosedWhileItReceivesEndsTheReceiving) {
  Connect();
  std::vector<std::byte> into(8 << 20);
  const std::vector<std::byte> body = Pattern(8 << 20);
  On(server_.get(), [&] {
    acceptor_.end.into = into;
    acceptor_.end.close_on_message = true;
  });
  const auto sent = Send("big", body);
  const auto received = acceptor_.end.received.Wait();
  ASSERT_TRUE(received.has_value());
  EXPECT_THAT(*received, StatusIs(absl::StatusCode::kCancelled));
  // It is the test's again: nothing may write there any more.
  std::fill(into.begin(), into.end(), std::byte{0x77});
  const auto down = end_.down.Wait();
  ASSERT_TRUE(down.has_value());
  ASSERT_TRUE(sent->Wait().has_value());
  EXPECT_FALSE(sent->Wait()->ok());
  EXPECT_TRUE(std::all_of(into.begin(), into.end(), [](std::byte b) { return b == std::byte{0x77}; }));
  EXPECT_EQ(Lanes(server_.get()), 0u);
}

TEST_F(UcxFabricTest, AnAddressWhereNobodyListensIsAClearError) {
  On(client_.get(), [&] {
    EXPECT_THAT(client_->Connect("here:1", &end_), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(client_->Connect("127.0.0.1", &end_), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(client_->Connect("127.0.0.1:0", &end_), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(client_->Connect("127.0.0.1:70000", &end_), StatusIs(absl::StatusCode::kInvalidArgument));
    const auto lane = client_->Connect("127.0.0.1:1", &end_);
    ASSERT_OK(lane);
    end_.lane = *lane;
  });
  const auto down = end_.down.Wait();
  ASSERT_TRUE(down.has_value());
  EXPECT_THAT(*down, StatusIs(absl::StatusCode::kUnavailable));
  const auto sent = Send("late", {});
  EXPECT_THAT(*sent->Wait(), StatusIs(absl::StatusCode::kUnavailable));
  On(client_.get(), [&] { std::exchange(end_.lane, nullptr)->Close(); });
  EXPECT_EQ(Lanes(client_.get()), 0u);
}

TEST_F(UcxFabricTest, StoppingEndsWhatIsUnderWay) {
  Connect();
  const std::vector<std::byte> body = Pattern(8 << 20);
  Slot<absl::Status> blocked;
  const auto sent = Send("hello", {});
  ASSERT_TRUE(acceptor_.end.message.Wait().has_value());
  client_->Stop([&] {
    for (int i = 0; i < 4; ++i) {
      end_.lane->Send(3, "big", body, MemoryKind::kHost, [&](absl::Status status) { blocked.Set(status); });
    }
  });
  ASSERT_TRUE(blocked.Wait().has_value());
  EXPECT_TRUE(acceptor_.end.down.Wait().has_value());
}

TEST_F(UcxFabricTest, AnIdleThreadSleepsWithALaneOpen) {
  Connect();
  const auto sent = Send("hello", {});
  ASSERT_TRUE(acceptor_.end.message.Wait().has_value());
  const auto cpu_ns = [] {
    timespec spent{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return spent.tv_sec * 1'000'000'000 + spent.tv_nsec;
  };
  Slot<int64_t> spent;
  On(server_.get(), [&] {
    server_->loop()->At(SystemClock::Get()->SteadyNs() + 500'000'000,
                        [&, before_ns = cpu_ns()] { spent.Set(cpu_ns() - before_ns); });
  });
  ASSERT_TRUE(spent.Wait().has_value());
  EXPECT_LT(*spent.Wait(), 25'000'000) << "of 500 ms";
}

TEST_F(UcxFabricTest, OverTcpThereIsNoRma) {
  On(server_.get(), [&] {
    EXPECT_FALSE(server_->has_rma());
    const std::vector<std::byte> memory(4096);
    EXPECT_THAT(server_->Export(memory), StatusIs(absl::StatusCode::kUnimplemented));
  });
  Connect();
  On(client_.get(), [&] {
    EXPECT_FALSE(end_.lane->has_rma());
    EXPECT_THAT(end_.lane->AddRemoteRegion(0, 100, "0123456789abcdef"),
                StatusIs(absl::StatusCode::kUnimplemented));
  });
}

TEST(UcxSettingsTest, BeyondThisHostTheNetworkMustBeCalledTrusted) {
  EXPECT_OK(CheckUcxSettings(UcxSettings()));
  UcxSettings other;
  other.net_devices = {"lo", "eth0"};
  EXPECT_THAT(CheckUcxSettings(other), StatusIs(absl::StatusCode::kInvalidArgument));
  other.trusted_network = true;
  EXPECT_OK(CheckUcxSettings(other));
  UcxSettings address;
  address.listen_ip = "10.0.0.1";
  EXPECT_THAT(CheckUcxSettings(address), StatusIs(absl::StatusCode::kInvalidArgument));
  address.trusted_network = true;
  EXPECT_OK(CheckUcxSettings(address));
  for (const char* name : {"", "all", "lo,eth0", "lo ", "l\no"}) {
    UcxSettings bad;
    bad.trusted_network = true;
    bad.net_devices = {name};
    EXPECT_THAT(CheckUcxSettings(bad), StatusIs(absl::StatusCode::kInvalidArgument)) << name;
  }
  UcxSettings text;
  text.listen_ip = "localhost";
  EXPECT_THAT(CheckUcxSettings(text), StatusIs(absl::StatusCode::kInvalidArgument));
  UcxSettings none;
  none.net_devices = {};
  EXPECT_THAT(CheckUcxSettings(none), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(UcxTransportsTest, TheLoopbackDeviceHasTcpAndNoRma) {
  ASSERT_OK_AND_ASSIGN(const auto transports, ListUcxTransports());
  const auto found = std::find_if(transports.begin(), transports.end(), [](const UcxDeviceTransport& t) {
    return t.device == "lo" && t.transport == "tcp";
  });
  ASSERT_NE(found, transports.end());
  EXPECT_FALSE(found->rma_read);
  EXPECT_TRUE(found->peer_error_handling);
  EXPECT_FALSE(ChooseRma(transports, {"lo"}));
}

TEST(UcxTransportsTest, RmaNeedsHardwareAndPeerErrorHandlingOnEveryDevice) {
  const std::vector<UcxDeviceTransport> transports = {
      {.device = "lo", .transport = "tcp", .rma_read = false, .peer_error_handling = true},
      {.device = "odd", .transport = "tcp", .rma_read = true, .peer_error_handling = true},
      {.device = "mlx5_0:1", .transport = "ud_mlx5", .rma_read = false, .peer_error_handling = true},
      {.device = "mlx5_0:1", .transport = "rc_mlx5", .rma_read = true, .peer_error_handling = true},
      {.device = "mlx5_1:1", .transport = "rc_mlx5", .rma_read = true, .peer_error_handling = true},
      {.device = "old:1", .transport = "rc_verbs", .rma_read = true, .peer_error_handling = false},
  };
  EXPECT_TRUE(ChooseRma(transports, {"mlx5_0:1"}));
  EXPECT_TRUE(ChooseRma(transports, {"mlx5_0:1", "mlx5_1:1"}));
  EXPECT_FALSE(ChooseRma(transports, {"mlx5_0:1", "lo"}));
  EXPECT_FALSE(ChooseRma(transports, {"odd"}));
  EXPECT_FALSE(ChooseRma(transports, {"old:1"}));
  EXPECT_FALSE(ChooseRma(transports, {"gone"}));
  EXPECT_FALSE(ChooseRma(transports, {}));
}

}  // namespace
}  // namespace epic::transport
