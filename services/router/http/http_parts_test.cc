// The small parts of the HTTP door: routes, heads, errors, the exchange's bounded buffer.
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/http/error_answer.h"
#include "common/http/exchange.h"
#include "common/http/http_head.h"
#include "common/http/target.h"
#include "common/status/error.h"
#include "services/router/http/routes.h"

namespace epic {
namespace {

TEST(HttpRoutesTest, EveryRouteIsFoundAndNamed) {
  const struct {
    const char* method;
    const char* path;
    HttpCall call;
  } cases[] = {
      {"POST", "/v1/contexts", HttpCall::kCreateContext},
      {"GET", "/v1/contexts", HttpCall::kListContexts},
      {"GET", "/v1/contexts/a", HttpCall::kGetContext},
      {"PATCH", "/v1/contexts/a", HttpCall::kPatchContext},
      {"DELETE", "/v1/contexts/a", HttpCall::kDeleteContext},
      {"POST", "/v1/chat/completions", HttpCall::kChat},
      {"GET", "/v1/models", HttpCall::kListModels},
      {"GET", "/v1/models/a/b", HttpCall::kGetModel},
      {"HEAD", "/health", HttpCall::kHealth},
      {"OPTIONS", "/health", HttpCall::kPreflight},
  };
  for (const auto& test : cases) {
    const auto match = MatchRoute(HttpDoor::kPublic, test.method, test.path);
    ASSERT_TRUE(match.ok()) << test.path;
    EXPECT_EQ(match->call, test.call) << test.path;
    EXPECT_NE(NameOf(match->call), "unknown");
  }
  EXPECT_EQ(MatchRoute(HttpDoor::kPublic, "GET", "/v1/models/a%2Fb")->id, "a/b");
  EXPECT_EQ(CodeOf(MatchRoute(HttpDoor::kPublic, "GET", "/metrics").status()), ErrorCode::kRouteNotFound);
  EXPECT_TRUE(MatchRoute(HttpDoor::kAdmin, "GET", "/metrics").ok());
}

TEST(HttpRoutesTest, TargetsOfEveryFormAreSplit) {
  EXPECT_EQ(SplitTarget("/a?b=c?d#e")->path, "/a");
  EXPECT_EQ(SplitTarget("/a?b=c?d#e")->query, "b=c?d");
  EXPECT_EQ(SplitTarget("http://h:1/a")->path, "/a");
  EXPECT_EQ(SplitTarget("http://h")->path, "/");
  EXPECT_EQ(SplitTarget("*")->path, "*");
  EXPECT_FALSE(SplitTarget("").ok());
  EXPECT_FALSE(SplitTarget("a").ok());
}

TEST(HttpErrorTest, EveryCodeOfTheTablePrintsItsRow) {
  for (const ErrorInfo& info : ErrorTable()) {
    const HttpAnswer answer = ErrorAnswer(Error(info.code, "do \"this\"\xff", "a.b"));
    EXPECT_EQ(answer.status, info.http_status);
    EXPECT_NE(ReasonPhrase(answer.status), "Unknown") << info.http_status;
    const nlohmann::json error = nlohmann::json::parse(answer.body)["error"];
    EXPECT_EQ(error["code"], std::string(info.name));
    EXPECT_EQ(error["type"], std::string(info.type));
    EXPECT_EQ(error["param"], "a.b");
    EXPECT_EQ(error["message"], "do \"this\"\xef\xbf\xbd");
    bool should_not_retry = false;
    bool retry_after = false;
    for (const auto& [name, value] : answer.headers) {
      should_not_retry |= name == "x-should-retry" && value == "false";
      retry_after |= name == "Retry-After";
    }
    const bool clients_retry = info.http_status == 408 || info.http_status == 409 ||
                               info.http_status == 429 || info.http_status >= 500;
    EXPECT_EQ(should_not_retry, clients_retry && !info.retryable) << info.name;
    EXPECT_EQ(retry_after, info.retryable && (info.http_status == 429 || info.http_status == 503))
        << info.name;
  }
  EXPECT_TRUE(nlohmann::json::parse(ErrorBody(absl::InternalError("x")))["error"]["param"].is_null());
}

TEST(HttpHeadTest, AValueCannotBreakOutOfItsLine) {
  HttpAnswer answer;
  answer.headers = {{"Location", "/a\r\nX-Evil: 1"}};
  const std::string head = PrintHead(HttpOptions(), answer, HeadContext());
  EXPECT_EQ(head.find("\r\nX-Evil"), std::string::npos);
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
  EXPECT_NE(head.find("Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n"), std::string::npos);
}

TEST(HttpHeadTest, ContentTypesAndOriginsAreJudged) {
  EXPECT_TRUE(IsJsonContentType(""));
  EXPECT_TRUE(IsJsonContentType("application/json ; charset=utf-8"));
  EXPECT_TRUE(IsJsonContentType("application/problem+JSON"));
  EXPECT_FALSE(IsJsonContentType("text/json"));
  HttpOptions options;
  EXPECT_TRUE(OriginAllowed(options, ""));
  EXPECT_FALSE(OriginAllowed(options, "null"));
  options.allowed_origins = {"*"};
  EXPECT_TRUE(OriginAllowed(options, "http://a"));
}

TEST(ExchangeTest, OnlyTheFirstAnswerCounts) {
  int wakes = 0;
  Exchange exchange(100, [&] { ++wakes; });
  HttpAnswer first;
  first.status = 201;
  exchange.Answer(first);
  exchange.Answer(HttpAnswer());
  exchange.StartStream(HttpAnswer());
  EXPECT_EQ(wakes, 1);
  const Exchange::Output output = exchange.Take();
  EXPECT_EQ(output.head->status, 201);
  EXPECT_TRUE(output.complete);
  EXPECT_FALSE(exchange.Take().head.has_value());
}

TEST(ExchangeTest, BytesBeyondTheBufferEndTheStream) {
  Exchange exchange(10, [] {});
  exchange.StartStream(HttpAnswer());
  EXPECT_TRUE(exchange.Write(std::string(50, 'x')));  // one event fits always
  EXPECT_EQ(exchange.Take().bytes.size(), 50u);
  EXPECT_FALSE(exchange.cancel_token().cancelled());
  EXPECT_FALSE(exchange.Write("y"));  // the fifty are not known to be sent
  EXPECT_TRUE(exchange.cancel_token().cancelled());
  EXPECT_TRUE(exchange.Take().overflowed);
}

TEST(ExchangeTest, AfterDetachNothingWakesAndNothingIsCancelled) {
  int wakes = 0;
  Exchange exchange(100, [&] { ++wakes; });
  exchange.StartStream(HttpAnswer());
  exchange.Detach();
  EXPECT_FALSE(exchange.Write("x"));
  exchange.EndStream();
  EXPECT_EQ(wakes, 1);
  EXPECT_FALSE(exchange.cancel_token().cancelled());
}

}  // namespace
}  // namespace epic
