#include "services/router/rpc/admin_door.h"

#include <chrono>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/client_unary_call.h>
#include <gtest/gtest.h>

#include "common/rpc/grpc_status.h"
#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "epic/v1/admin.grpc.pb.h"

namespace epic {
namespace {

constexpr int kPatienceSeconds = 20;

class FakeAdmin final : public AdminApi {
 public:
  std::vector<EffectiveSetting> Settings() const override {
    return {{"log.level", level_, "default"}, {"limits.n", "3", "--set"}};
  }
  absl::StatusOr<std::string> SetLogLevel(const std::string& level) override {
    if (level == "loud") return Error(ErrorCode::kInvalidRequest, "use trace, debug, …", "level");
    return std::exchange(level_, level);
  }
  uint64_t Drain() override { return ++drains_; }

 private:
  std::string level_ = "info";
  uint64_t drains_ = 0;
};

class AdminDoorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(door_, AdminDoor::Start({.address = "127.0.0.1:0"}, &admin_, SystemClock::Get()));
    channel_ =
        grpc::CreateChannel("127.0.0.1:" + std::to_string(door_->port()), grpc::InsecureChannelCredentials());
    stub_ = v1::AdminService::NewStub(channel_);
  }
  static void Bound(grpc::ClientContext* context) {
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(kPatienceSeconds));
  }

  FakeAdmin admin_;
  std::unique_ptr<AdminDoor> door_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::AdminService::Stub> stub_;
};

TEST_F(AdminDoorTest, SettingsComeInOrderWithTheirSources) {
  grpc::ClientContext context;
  Bound(&context);
  v1::GetConfigResponse response;
  ASSERT_TRUE(stub_->GetConfig(&context, {}, &response).ok());
  ASSERT_EQ(response.settings_size(), 2);
  EXPECT_EQ(response.settings(0).name(), "log.level");
  EXPECT_EQ(response.settings(1).value(), "3");
  EXPECT_EQ(response.settings(1).source(), "--set");
}

TEST_F(AdminDoorTest, TheLogLevelIsSetOrRefused) {
  grpc::ClientContext first, second;
  Bound(&first);
  Bound(&second);
  v1::SetLogLevelRequest request;
  v1::SetLogLevelResponse response;
  request.set_level("debug");
  ASSERT_TRUE(stub_->SetLogLevel(&first, request, &response).ok());
  EXPECT_EQ(response.previous(), "info");
  request.set_level("loud");
  const absl::Status refused = FromGrpcStatus(stub_->SetLogLevel(&second, request, &response));
  EXPECT_EQ(CodeOf(refused), ErrorCode::kInvalidRequest);
  EXPECT_EQ(ParamOf(refused), "level");
}

TEST_F(AdminDoorTest, DrainMayBeAskedAgain) {
  for (const uint64_t running : {1u, 2u}) {
    grpc::ClientContext context;
    Bound(&context);
    v1::DrainResponse response;
    ASSERT_TRUE(stub_->Drain(&context, {}, &response).ok());
    EXPECT_EQ(response.running(), running);
  }
}

// A call by name with empty bytes, so that no stub of the service is needed.
grpc::Status CallByName(const std::shared_ptr<grpc::Channel>& channel, const std::string& method) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(kPatienceSeconds));
  const grpc::internal::RpcMethod rpc(method.c_str(), grpc::internal::RpcMethod::NORMAL_RPC);
  v1::DrainRequest request;
  v1::DrainResponse response;
  return grpc::internal::BlockingUnaryCall(channel.get(), rpc, &context, request, &response);
}

TEST_F(AdminDoorTest, HasHealthAndReflectionAndNoServiceOfThePublicDoor) {
  EXPECT_TRUE(CallByName(channel_, "/grpc.health.v1.Health/Check").ok());
  EXPECT_NE(
      CallByName(channel_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo").error_code(),
      grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(CallByName(channel_, "/epic.v1.ModelService/List").error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(AdminDoorTest, ATakenPortIsAClearError) {
  const auto second = AdminDoor::Start({.address = "127.0.0.1:" + std::to_string(door_->port())}, &admin_,
                                       SystemClock::Get());
  EXPECT_THAT(second, testing::StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace epic
