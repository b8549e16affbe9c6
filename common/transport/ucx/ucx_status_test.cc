#include "common/transport/ucx/ucx_status.h"

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace epic::transport {
namespace {

using ::epic::testing::StatusIs;
using ::testing::HasSubstr;

TEST(UcxStatusTest, OkStaysOk) { EXPECT_OK(FromUcx(UCS_OK, "send")); }

TEST(UcxStatusTest, MapsEveryKindByTheTable) {
  const struct {
    ucs_status_t from;
    absl::StatusCode to;
  } rows[] = {
      {UCS_ERR_CANCELED, absl::StatusCode::kCancelled},
      {UCS_ERR_NO_MEMORY, absl::StatusCode::kResourceExhausted},
      {UCS_ERR_NO_RESOURCE, absl::StatusCode::kResourceExhausted},
      {UCS_ERR_EXCEEDS_LIMIT, absl::StatusCode::kResourceExhausted},
      {UCS_ERR_NOT_IMPLEMENTED, absl::StatusCode::kUnimplemented},
      {UCS_ERR_UNSUPPORTED, absl::StatusCode::kUnimplemented},
      {UCS_ERR_MESSAGE_TRUNCATED, absl::StatusCode::kDataLoss},
      {UCS_ERR_NO_ELEM, absl::StatusCode::kNotFound},
      {UCS_ERR_INVALID_PARAM, absl::StatusCode::kInternal},
      {UCS_ERR_INVALID_ADDR, absl::StatusCode::kInternal},
      {UCS_ERR_BUFFER_TOO_SMALL, absl::StatusCode::kInternal},
      {UCS_ERR_ALREADY_EXISTS, absl::StatusCode::kInternal},
      {UCS_ERR_OUT_OF_RANGE, absl::StatusCode::kInternal},
      {UCS_ERR_UNREACHABLE, absl::StatusCode::kUnavailable},
      {UCS_ERR_CONNECTION_RESET, absl::StatusCode::kUnavailable},
      {UCS_ERR_NOT_CONNECTED, absl::StatusCode::kUnavailable},
      {UCS_ERR_ENDPOINT_TIMEOUT, absl::StatusCode::kUnavailable},
      {UCS_ERR_TIMED_OUT, absl::StatusCode::kUnavailable},
      {UCS_ERR_REJECTED, absl::StatusCode::kUnavailable},
      {UCS_ERR_BUSY, absl::StatusCode::kUnavailable},
      {UCS_ERR_IO_ERROR, absl::StatusCode::kUnavailable},
      {UCS_ERR_NO_DEVICE, absl::StatusCode::kUnavailable},
  };
  for (const auto& row : rows) {
    EXPECT_THAT(FromUcx(row.from, "send a piece"), StatusIs(row.to, HasSubstr("send a piece: ")));
    EXPECT_THAT(FromUcx(row.from, "send a piece"), StatusIs(row.to, HasSubstr(ucs_status_string(row.from))));
  }
}

}  // namespace
}  // namespace epic::transport
