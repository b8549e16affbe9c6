#include "services/router/core/quality_service.h"

#include <optional>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/router/core/testing/world.h"

namespace epic {
namespace {

// Remembers what it was asked to compare and answers what a test says.
class FakeProbe final : public QualityProbe {
 public:
  absl::StatusOr<QualityReport> Compare(const LinkJob& job, const CancelToken& cancel) override {
    asked = job;
    if (cancel.cancelled()) return absl::CancelledError("cancelled");
    return answer;
  }
  std::optional<LinkJob> asked;
  absl::StatusOr<QualityReport> answer = QualityReport{.tokens = 4,
                                                       .kl_mean = 0.25,
                                                       .kl_median = 0.125,
                                                       .kl_first = 0.5,
                                                       .top1 = 0.75,
                                                       .prompt_tokens = 100,
                                                       .recomputed_tokens = 16,
                                                       .cached_tokens = 60};
};

class QualityServiceTest : public ::testing::Test {
 protected:
  QualityServiceTest() : service_(world_.parts, &probe_) {}
  static ChatRequest Ask(const std::string& text) {
    ChatRequest request;
    request.messages = {{"user", {{ContentPart::Kind::kText, text}}}};
    return request;
  }
  testing::World world_;
  FakeProbe probe_;
  QualityService service_;
};

TEST_F(QualityServiceTest, AChatIsComparedAsItWouldBeAnswered) {
  ChatRequest request = Ask("hello");
  request.linking.strategy = "legolink-4";
  request.max_tokens = 7;
  ASSERT_OK_AND_ASSIGN(const ChatQuality quality, service_.Compare(world_.Scope(), request));
  EXPECT_EQ(quality.linking, "legolink-4");
  EXPECT_EQ(quality.tokens, 4u);
  EXPECT_EQ(quality.kl_mean, 0.25);
  EXPECT_EQ(quality.kl_median, 0.125);
  EXPECT_EQ(quality.kl_first, 0.5);
  EXPECT_EQ(quality.top1, 0.75);
  EXPECT_EQ(quality.prompt_tokens, 100u);
  EXPECT_EQ(quality.cached_tokens, 60u);
  EXPECT_EQ(quality.recomputed_tokens, 16u);
  ASSERT_TRUE(probe_.asked.has_value());
  EXPECT_EQ(probe_.asked->tenant, "default");
  EXPECT_EQ(probe_.asked->max_tokens, 7u);
  EXPECT_EQ(probe_.asked->strategy.k, 4u);
}

TEST_F(QualityServiceTest, WhatAChatRefusesIsRefusedBeforeAnythingRuns) {
  const auto refused = [this](const ChatRequest& request) {
    return service_.Compare(world_.Scope(), request).status();
  };
  EXPECT_EQ(ParamOf(refused(ChatRequest())), "messages");
  ChatRequest strategy = Ask("hello");
  strategy.linking.strategy = "bogus";
  EXPECT_EQ(CodeOf(refused(strategy)), ErrorCode::kInvalidRequest);
  ChatRequest model = Ask("hello");
  model.model = "another";
  EXPECT_EQ(CodeOf(refused(model)), ErrorCode::kModelNotFound);
  ChatRequest context = Ask("hello");
  context.context_ids = {"ctx_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
  EXPECT_EQ(CodeOf(refused(context)), ErrorCode::kContextNotFound);
  EXPECT_EQ(CodeOf(refused(Ask(std::string(5000, 'x')))), ErrorCode::kContextLengthExceeded);
  EXPECT_FALSE(probe_.asked.has_value());
}

TEST_F(QualityServiceTest, ErrorsOfTheProbeAndACancelComeThrough) {
  probe_.answer = Error(ErrorCode::kInternal, "the model's output is not a number");
  EXPECT_EQ(CodeOf(service_.Compare(world_.Scope(), Ask("hello")).status()), ErrorCode::kInternal);
  probe_.answer = RetryLater(ErrorCode::kQueueFull, "another comparison runs", 5000);
  EXPECT_EQ(RetryAfterMsOf(service_.Compare(world_.Scope(), Ask("hello")).status()), 5000);
  world_.cancel.Cancel();
  EXPECT_EQ(CodeOf(service_.Compare(world_.Scope(), Ask("hello")).status()), ErrorCode::kClientGone);
}

}  // namespace
}  // namespace epic
