#include "common/status/error.h"

#include <set>

#include <gtest/gtest.h>

namespace epic {
namespace {

TEST(ErrorTest, EveryCodeSurvivesTheTripThroughAStatus) {
  std::set<std::string> names;
  for (const ErrorInfo& info : ErrorTable()) {
    const absl::Status status = Error(info.code, "do this", "messages[0]");
    EXPECT_EQ(CodeOf(status), info.code) << info.name;
    EXPECT_EQ(status.code(), info.status_code);
    EXPECT_EQ(ParamOf(status), "messages[0]");
    EXPECT_EQ(MessageOf(status), "do this");
    names.insert(std::string(info.name));
  }
  EXPECT_EQ(names.size(), ErrorTable().size()) << "two codes share a name";
}

TEST(ErrorTest, ForeignStatusesMapByTheirCode) {
  EXPECT_EQ(CodeOf(absl::CancelledError("")), ErrorCode::kClientGone);
  EXPECT_EQ(CodeOf(absl::DeadlineExceededError("")), ErrorCode::kDeadline);
  EXPECT_EQ(CodeOf(absl::InvalidArgumentError("")), ErrorCode::kInvalidRequest);
  EXPECT_EQ(CodeOf(absl::UnknownError("")), ErrorCode::kInternal);
}

TEST(ErrorTest, ClientsReadOnlyWhatWasWrittenForThem) {
  const absl::Status foreign = absl::UnknownError("IO error: /var/lib/epic/000042.sst: Permission denied");
  EXPECT_TRUE(IsUnexpected(foreign));
  EXPECT_EQ(PublicMessageOf(foreign).find("/var"), std::string::npos);
  EXPECT_EQ(MessageOf(foreign), "IO error: /var/lib/epic/000042.sst: Permission denied");
  const absl::Status ours = Error(ErrorCode::kInternal, "the logits are not finite");
  EXPECT_FALSE(IsUnexpected(ours));
  EXPECT_EQ(PublicMessageOf(ours), "the logits are not finite");
  EXPECT_EQ(PublicMessageOf(absl::InvalidArgumentError("n is 0")), "n is 0");
}

TEST(ErrorTest, RetryAdviceIsKept) {
  const absl::Status status = RetryLater(ErrorCode::kQueueFull, "queue is full", 1500);
  EXPECT_EQ(RetryAfterMsOf(status), 1500);
  EXPECT_EQ(RetryAfterMsOf(Error(ErrorCode::kQueueFull, "")), std::nullopt);
}

TEST(ErrorTest, AFinalErrorIsNotSentAgainThoughItsCodeMightBe) {
  const absl::Status last = FinalError(ErrorCode::kInternal, "the weights are no numbers");
  EXPECT_EQ(CodeOf(last), ErrorCode::kInternal);
  EXPECT_EQ(PublicMessageOf(last), "the weights are no numbers");
  EXPECT_FALSE(MayRetry(last));
  EXPECT_TRUE(MayRetry(Error(ErrorCode::kInternal, "out of luck")));
  EXPECT_FALSE(MayRetry(Error(ErrorCode::kStorageFull, "full")));
  EXPECT_TRUE(MayRetry(absl::UnknownError("what was that")));
}

TEST(ErrorTest, FaultsOfTheClientAreNeverRetryable) {
  for (const ErrorInfo& info : ErrorTable()) {
    const bool clients_fault = info.http_status >= 400 && info.http_status < 408;
    EXPECT_FALSE(clients_fault && info.retryable) << info.name;
  }
}

}  // namespace
}  // namespace epic
