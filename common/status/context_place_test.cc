#include "common/status/context_place.h"

#include <gtest/gtest.h>

#include "common/status/error.h"

namespace epic {
namespace {

TEST(ContextPlaceTest, ThePlaceReplacesTheFieldOfErrorsAboutContextsOnly) {
  for (const ErrorInfo& info : ErrorTable()) {
    const bool about = info.name.starts_with("context_") && info.code != ErrorCode::kContextLengthExceeded;
    const absl::Status status = Error(info.code, "why", "id");
    const absl::Status placed = AtPlace(status, "context_ids[2]");
    EXPECT_EQ(ParamOf(placed), about ? "context_ids[2]" : "id") << info.name;
    EXPECT_EQ(CodeOf(placed), info.code);
    EXPECT_EQ(placed.code(), status.code());
    EXPECT_EQ(MessageOf(placed), "why");
    EXPECT_EQ(AtPlace(status, ""), status);
  }
}

TEST(ContextPlaceTest, AdviceWhenToTryAgainStays) {
  const absl::Status placed =
      AtPlace(RetryLater(ErrorCode::kContextCompiling, "wait", 1000), "context_ids[0]");
  EXPECT_EQ(ParamOf(placed), "context_ids[0]");
  EXPECT_EQ(RetryAfterMsOf(placed), 1000);
}

TEST(ContextPlaceTest, SuccessAndForeignErrorsAreLeftAlone) {
  EXPECT_TRUE(AtPlace(absl::OkStatus(), "x").ok());
  EXPECT_EQ(ParamOf(AtPlace(absl::NotFoundError("a file"), "x")), "");
}

}  // namespace
}  // namespace epic
