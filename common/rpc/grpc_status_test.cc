#include "common/rpc/grpc_status.h"

#include <gtest/gtest.h>

#include "common/status/context_place.h"
#include "common/status/error.h"

namespace epic {
namespace {

TEST(GrpcStatusTest, EveryErrorCodeCrossesTheWireAndBack) {
  for (const ErrorInfo& info : ErrorTable()) {
    const grpc::Status wire = ToGrpcStatus(Error(info.code, "do this", "messages[0].role"));
    EXPECT_EQ(static_cast<int>(wire.error_code()), static_cast<int>(info.status_code)) << info.name;
    EXPECT_EQ(wire.error_message(), "do this");
    const absl::Status back = FromGrpcStatus(wire);
    EXPECT_EQ(CodeOf(back), info.code) << info.name;
    EXPECT_EQ(ParamOf(back), "messages[0].role");
    EXPECT_EQ(MessageOf(back), "do this");
  }
}

TEST(GrpcStatusTest, RetryAdviceCrossesTheWire) {
  const absl::Status back = FromGrpcStatus(
      ToGrpcStatus(AtPlace(RetryLater(ErrorCode::kContextCompiling, "wait", 2500), "context_ids[1]")));
  EXPECT_EQ(CodeOf(back), ErrorCode::kContextCompiling);
  EXPECT_EQ(RetryAfterMsOf(back), 2500);
  EXPECT_EQ(ParamOf(back), "context_ids[1]");
}

TEST(GrpcStatusTest, ForeignStatusesKeepTheirCode) {
  const absl::Status back = FromGrpcStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE, "connection refused"));
  EXPECT_EQ(back.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(MessageOf(back), "connection refused");
}

TEST(GrpcStatusTest, OkIsOk) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
}

TEST(GrpcStatusTest, GarbageInTheDetailsIsIgnored) {
  const absl::Status back =
      FromGrpcStatus(grpc::Status(grpc::StatusCode::NOT_FOUND, "gone", "\xff\xfe not a proto"));
  EXPECT_EQ(back.code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace epic
