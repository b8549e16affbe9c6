// The HTTP door over real loopback sockets and fake Apis: protocol, routes, limits.
#include "common/http/http_server.h"
#include "services/router/http/router_site.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "services/router/http/testing/server_fixture.h"

namespace epic {
namespace {

using Json = nlohmann::json;
using testing::Ask;
using testing::ExpectError;
using testing::RawAnswer;
using testing::RawClient;

class HttpServerTest : public testing::DoorTest {};

constexpr char kChat[] = R"({"messages":[{"role":"user","content":"hi"}]})";

TEST_F(HttpServerTest, HealthAnswersOnAPortOfTheKernelsChoice) {
  Serve();
  EXPECT_NE(port(), 0);
  EXPECT_EQ(server_->address(), "127.0.0.1:" + std::to_string(port()));
  const auto answer = Ask(port(), "GET", "/health");
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->headers.at("content-type"), "application/json");
  EXPECT_EQ(Json::parse(answer->body)["status"], "ok");
}

TEST_F(HttpServerTest, AnUnableNodeIs503OnHealth) {
  fakes_.node.health = {false, "loading", {"model"}};
  Serve();
  ExpectError(Ask(port(), "GET", "/health"), 503, "loading");
}

TEST_F(HttpServerTest, AHostThatIsNoAddressIsAStartUpError) {
  HttpOptions options;
  options.host = "no such host";
  EXPECT_FALSE(StartHttpDoor(options, fakes_.apis(), SystemClock::Get(), 1).ok());
  Serve();
  options.host = "127.0.0.1";
  options.port = port();
  EXPECT_THAT(StartHttpDoor(options, fakes_.apis(), SystemClock::Get(), 1),
              testing::StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(HttpServerTest, UnknownPathsAndMethodsAreFourKeyErrors) {
  Serve();
  ExpectError(Ask(port(), "GET", "/nowhere"), 404, "route_not_found");
  ExpectError(Ask(port(), "GET", "/metrics"), 404, "route_not_found");
  const auto answer = Ask(port(), "PUT", "/v1/contexts");
  ExpectError(answer, 405, "method_not_allowed");
  EXPECT_EQ(answer->headers.at("allow"), "GET, HEAD, POST, OPTIONS");
  ExpectError(Ask(port(), "POST", "/tokenize", "a=b", "Content-Type: application/x-www-form-urlencoded\r\n"),
              415, "unsupported_media_type");
  EXPECT_EQ(Ask(port(), "POST", "/tokenize", R"({"content":"x"})",
                "content-type: Application/JSON; charset=utf-8\r\n")
                ->status,
            200);
}

TEST_F(HttpServerTest, ContextsAreCreatedReadListedChangedAndDeleted) {
  fakes_.contexts.create->outcome = CreateContextResult::Outcome::kAccepted;
  Serve();
  const auto created = Ask(port(), "POST", "/v1/contexts", R"({"text":"x"})");
  EXPECT_EQ(created->status, 202);
  EXPECT_EQ(created->headers.at("location"), std::string("/v1/contexts/") + testing::kFakeId);
  EXPECT_EQ(Json::parse(created->body)["object"], "context");
  const std::string path = std::string("/v1/contexts/") + testing::kFakeId;
  EXPECT_EQ(Json::parse(Ask(port(), "GET", path)->body)["id"], testing::kFakeId);
  ExpectError(Ask(port(), "GET", "/v1/contexts/other"), 404, "context_not_found");
  EXPECT_EQ(Json::parse(Ask(port(), "GET", "/v1/contexts?limit=5")->body)["has_more"], true);
  ExpectError(Ask(port(), "GET", "/v1/contexts?limit=0"), 400, "invalid_request");
  EXPECT_EQ(Json::parse(Ask(port(), "PATCH", path, R"({"tags":["a"]})")->body)["tags"][0], "a");
  const auto taken = Ask(port(), "PATCH", path, R"({"name":"n"})");
  ExpectError(taken, 409, "name_in_use");
  EXPECT_EQ(taken->headers.at("x-should-retry"), "false");
  const auto deleted = Ask(port(), "DELETE", path + "?erase=wait");
  EXPECT_EQ(deleted->status, 200);
  EXPECT_EQ(Json::parse(deleted->body),
            Json({{"id", testing::kFakeId}, {"object", "context"}, {"deleted", true}}));
  fakes_.contexts.erase = std::vector<std::string>{"a", "b"};
  const auto pending = Ask(port(), "DELETE", path + "?erase=wait");
  EXPECT_EQ(pending->status, 202);
  EXPECT_EQ(Json::parse(pending->body)["pending"], Json({"a", "b"}));
  EXPECT_EQ(Json::parse(pending->body)["deleted"], true);
  EXPECT_EQ(Ask(port(), "DELETE", path)->status, 200) << "nobody waits";
  fakes_.contexts.erase = Error(ErrorCode::kStorageFull, "delete contexts");
  ExpectError(Ask(port(), "DELETE", path + "?erase=wait"), 507, "storage_full");
}

TEST_F(HttpServerTest, AStorageThatIsFullTellsClientsNotToResend) {
  fakes_.contexts.create = Error(ErrorCode::kStorageFull, "delete contexts");
  Serve();
  const auto answer = Ask(port(), "POST", "/v1/contexts", R"({"text":"x"})");
  ExpectError(answer, 507, "storage_full");
  EXPECT_EQ(answer->headers.at("x-should-retry"), "false");
}

TEST_F(HttpServerTest, ModelsAndTokensAnswer) {
  Serve();
  EXPECT_EQ(Json::parse(Ask(port(), "GET", "/v1/models")->body)["data"][0]["id"], "fake");
  EXPECT_EQ(Json::parse(Ask(port(), "GET", "/v1/models/fake")->body)["max_model_len"], 2048);
  ExpectError(Ask(port(), "GET", "/v1/models/org%2Fother"), 404, "model_not_found");
  ExpectError(Ask(port(), "GET", "/v1/models/org/other"), 404, "model_not_found");
  EXPECT_EQ(Json::parse(Ask(port(), "POST", "/detokenize", R"({"tokens":[1,2]})")->body)["content"], "xx");
  EXPECT_EQ(Json::parse(Ask(port(), "POST", "/apply-template", kChat)->body)["prompt"], "<prompt>");
  EXPECT_EQ(Json::parse(Ask(port(), "GET", "/version")->body)["name"], "epic");
}

TEST_F(HttpServerTest, TheAdminDoorServesWhatThePublicOneDoesNot) {
  HttpOptions options;
  options.door = HttpDoor::kAdmin;
  Serve(options);
  const auto metrics = Ask(port(), "GET", "/metrics");
  EXPECT_EQ(metrics->headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(metrics->body, "epic_up 1\n");
  EXPECT_EQ(Ask(port(), "GET", "/live")->status, 200);
  EXPECT_EQ(Ask(port(), "GET", "/ready")->status, 200);
  EXPECT_EQ(Ask(port(), "GET", "/health")->status, 200);
  EXPECT_EQ(Json::parse(Ask(port(), "GET", "/debug/requests")->body)["data"][0]["phase"], "decode");
  ExpectError(Ask(port(), "GET", "/v1/models"), 404, "route_not_found");
}

TEST_F(HttpServerTest, AHundredRequestsGoThroughOneConnection) {
  Serve();
  RawClient client(port());
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(i % 2 == 0 ? client.Request("GET", "/v1/models")
                           : client.Request("POST", "/v1/chat/completions", kChat));
    const auto answer = client.Read();
    ASSERT_TRUE(answer.has_value()) << i;
    ASSERT_EQ(answer->status, 200) << i;
    ASSERT_FALSE(answer->headers.contains("connection"));
  }
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Serve();
  RawClient client(port());
  std::string text;
  for (int i = 0; i < 50; ++i) {
    text += "GET /v1/models/" + std::string(i % 2 == 0 ? "fake" : "other") +
            " HTTP/1.1\r\nHost: x\r\nX-Request-Id: r" + std::to_string(i) + "\r\n\r\n";
  }
  ASSERT_TRUE(client.Send(text));
  for (int i = 0; i < 50; ++i) {
    const auto answer = client.Read();
    ASSERT_TRUE(answer.has_value()) << i;
    EXPECT_EQ(answer->status, i % 2 == 0 ? 200 : 404);
    EXPECT_EQ(answer->headers.at("x-request-id"), "r" + std::to_string(i));
  }
}

TEST_F(HttpServerTest, MoreIsPipelinedThanIsReadAhead) {
  HttpOptions options;
  options.read_ahead_bytes = 2048;
  Serve(options);
  RawClient client(port());
  ASSERT_TRUE(client.Request("POST", "/v1/contexts", R"({"text":"x","name":"hold"})"));
  auto held = fakes_.contexts.held.Wait();
  ASSERT_EQ(held.size(), 1u);
  const std::string body = R"({"content":")" + std::string(3000, 'y') + "\"}";
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client.Request("POST", "/tokenize", body));
  EXPECT_FALSE(held[0].scope.cancel.cancelled());
  held[0].done(fakes_.contexts.create);
  EXPECT_EQ(client.Read()->status, 201);
  for (int i = 0; i < 20; ++i) {
    const auto answer = client.Read();
    ASSERT_TRUE(answer.has_value()) << i;
    EXPECT_EQ(answer->status, 200);
  }
}

TEST_F(HttpServerTest, AChunkedBodyIsTaken) {
  Serve();
  RawClient client(port());
  ASSERT_TRUE(
      client.Send("POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "5;ext=1\r\n{\"con\r\nc\r\ntent\":\"abc\"}\r\n0\r\nTrailer: x\r\n\r\n"));
  EXPECT_EQ(client.Read()->status, 200);
  ASSERT_TRUE(client.Request("GET", "/health"));
  EXPECT_EQ(client.Read()->status, 200);
}

TEST_F(HttpServerTest, ARequestMayComeByteByByte) {
  Serve();
  RawClient client(port());
  const std::string text =
      "\r\nPOST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{\"content\":\"a\"}";
  for (const char c : text) ASSERT_TRUE(client.Send(std::string(1, c)));
  EXPECT_EQ(client.Read()->status, 200);
}

TEST_F(HttpServerTest, ExpectContinueIsHonouredAndARefusalSparesTheBody) {
  Serve();
  RawClient client(port());
  ASSERT_TRUE(client.Send(
      "POST /tokenize HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 15\r\n\r\n"));
  ASSERT_TRUE(client.ReadUntil("HTTP/1.1 100 Continue\r\n\r\n").has_value());
  ASSERT_TRUE(client.Send(R"({"content":"a"})"));
  EXPECT_EQ(client.Read()->status, 200);
  ASSERT_TRUE(
      client.Send("POST /nowhere HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 15\r\n\r\n"));
  const auto answer = client.Read();
  ExpectError(answer, 404, "route_not_found");
  EXPECT_EQ(client.interim_answers(), 0);
  EXPECT_EQ(answer->headers.at("connection"), "close");
}

TEST_F(HttpServerTest, BodiesUpToTheLimitAreTakenAndLargerOnesAre413) {
  Serve();
  const std::string million = R"({"content":")" + std::string(1 << 20, 'x') + "\"}";
  EXPECT_EQ(Ask(port(), "POST", "/tokenize", million)->status, 200);
  // Sixty-four megabytes: the answer must arrive although the client is still sending.
  const std::string large(64 << 20, 'x');
  ExpectError(Ask(port(), "POST", "/tokenize", large), 413, "body_too_large");
  RawClient chunked(port());
  ASSERT_TRUE(
      chunked.Send("POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4000000\r\n"));
  ASSERT_TRUE(chunked.Send(large));
  ExpectError(chunked.Read(), 413, "body_too_large");
  EXPECT_EQ(Ask(port(), "GET", "/health")->status, 200);
}

TEST_F(HttpServerTest, TheSumOfAllBodiesIsBounded) {
  HttpOptions options;
  options.max_body_bytes = 1000;
  options.max_total_body_bytes = 1000;
  Serve(options);
  RawClient first(port());
  ASSERT_TRUE(
      first.Send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n{\"content\":\"a"));
  RawClient second(port());
  const std::string body = R"({"content":")" + std::string(200, 'x') + "\"}";
  // The first body counts from the moment its header is read; until then the second is served.
  std::optional<RawAnswer> answer;
  for (int i = 0; i < 1000 && (!answer.has_value() || answer->status == 200); ++i) {
    answer = Ask(port(), "POST", "/tokenize", body);
  }
  ExpectError(answer, 429, "queue_full");
  EXPECT_EQ(answer->headers.at("retry-after"), "1");
  first.Close();
  for (int i = 0; i < 1000 && answer->status != 200; ++i) answer = Ask(port(), "POST", "/tokenize", body);
  EXPECT_EQ(answer->status, 200);
}

TEST_F(HttpServerTest, AFloodOfHeadersIs431) {
  Serve();
  RawClient client(port());
  std::string flood = "GET /health HTTP/1.1\r\nHost: x\r\n";
  for (int i = 0; i < 2000; ++i)
    flood += "X-Header-" + std::to_string(i) + ": " + std::string(40, 'v') + "\r\n";
  client.Send(flood);
  ExpectError(client.Read(), 431, "header_too_large");
  RawClient line(port());
  line.Send("GET /" + std::string(100'000, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n");
  ExpectError(line.Read(), 431, "header_too_large");
}

TEST_F(HttpServerTest, ASlowHeaderIsCutWith408) {
  HttpOptions options;
  options.header_timeout_ms = 100;
  Serve(options);
  RawClient client(port());
  ASSERT_TRUE(client.Send("GET /health HTTP/1.1\r\nHost:"));
  ExpectError(client.Read(), 408, "request_timeout");
  EXPECT_TRUE(client.ReadsEnd());
  RawClient silent(port());
  EXPECT_TRUE(silent.ReadsEnd());
}

TEST_F(HttpServerTest, ASlowBodyIsCutWith408) {
  HttpOptions options;
  options.body_timeout_ms = 100;
  Serve(options);
  RawClient client(port());
  ASSERT_TRUE(client.Send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"));
  ExpectError(client.Read(), 408, "request_timeout");
}

TEST_F(HttpServerTest, AnIdleConnectionIsClosedAfterItsTime) {
  HttpOptions options;
  options.idle_timeout_ms = 100;
  Serve(options);
  RawClient client(port());
  ASSERT_TRUE(client.Request("GET", "/health"));
  EXPECT_EQ(client.Read()->status, 200);
  EXPECT_TRUE(client.ReadsEnd());
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreTold) {
  HttpOptions options;
  options.max_connections = 2;
  Serve(options);
  RawClient first(port());
  RawClient second(port());
  for (RawClient* client : {&first, &second}) {
    ASSERT_TRUE(client->Request("GET", "/health"));
    EXPECT_EQ(client->Read()->status, 200);
  }
  RawClient third(port());
  const auto answer = third.Read();
  ExpectError(answer, 429, "queue_full");
  EXPECT_TRUE(answer->headers.contains("retry-after"));
}

TEST_F(HttpServerTest, AFullQueueOfWorkersIs429WhileHealthAnswers) {
  HttpOptions options;
  options.worker_queue = 0;
  Serve(options);
  ExpectError(Ask(port(), "GET", "/v1/models"), 429, "queue_full");
  EXPECT_EQ(Ask(port(), "GET", "/health")->status, 200);
}

TEST_F(HttpServerTest, HeadHasTheHeadersOfGetAndNoBody) {
  Serve();
  RawClient client(port());
  ASSERT_TRUE(client.Request("HEAD", "/v1/models"));
  const auto answer = client.Read(/*head_only=*/true);
  EXPECT_EQ(answer->status, 200);
  EXPECT_GT(std::stoi(answer->headers.at("content-length")), 10);
  ASSERT_TRUE(client.Request("GET", "/health"));
  EXPECT_EQ(client.Read()->status, 200);
}

TEST_F(HttpServerTest, PreflightIsAnsweredAndOtherOriginsMayNotWrite) {
  HttpOptions options;
  options.allowed_origins = {"http://app.example"};
  Serve(options);
  const std::string preflight =
      "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n";
  auto answer =
      Ask(port(), "OPTIONS", "/v1/chat/completions", "", "Origin: http://app.example\r\n" + preflight);
  EXPECT_EQ(answer->status, 204);
  EXPECT_EQ(answer->headers.at("access-control-allow-origin"), "http://app.example");
  EXPECT_NE(answer->headers.at("access-control-allow-headers").find("Authorization"), std::string::npos);
  EXPECT_NE(answer->headers.at("access-control-allow-methods").find("POST"), std::string::npos);
  answer = Ask(port(), "OPTIONS", "/v1/chat/completions", "", "Origin: http://evil.example\r\n" + preflight);
  EXPECT_EQ(answer->status, 204);
  EXPECT_FALSE(answer->headers.contains("access-control-allow-origin"));
  answer = Ask(port(), "POST", "/v1/chat/completions", "{", "Origin: http://app.example\r\n");
  ExpectError(answer, 400, "invalid_request");
  EXPECT_EQ(answer->headers.at("access-control-allow-origin"), "http://app.example");
  ExpectError(Ask(port(), "POST", "/v1/chat/completions", kChat, "Origin: http://evil.example\r\n"), 403,
              "permission_denied");
  EXPECT_EQ(Ask(port(), "OPTIONS", "*")->status, 204);
  ExpectError(Ask(port(), "OPTIONS", "/nowhere"), 404, "route_not_found");
}

TEST_F(HttpServerTest, RequestIdsAreTakenWhenSafeAndMadeOtherwise) {
  Serve();
  EXPECT_EQ(Ask(port(), "GET", "/health", "", "X-Request-Id: my-id.1:2_3\r\n")->headers.at("x-request-id"),
            "my-id.1:2_3");
  const std::string made =
      Ask(port(), "GET", "/health", "", "X-Request-Id: a b\r\n")->headers.at("x-request-id");
  EXPECT_TRUE(made.starts_with("req_")) << made;
  EXPECT_NE(made, Ask(port(), "GET", "/health")->headers.at("x-request-id"));
  EXPECT_TRUE(Ask(port(), "GET", "/health", "", "X-Request-Id: " + std::string(129, 'a') + "\r\n")
                  ->headers.at("x-request-id")
                  .starts_with("req_"));
  const std::string trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  EXPECT_EQ(Ask(port(), "GET", "/health", "", "traceparent: " + trace + "\r\n")->headers.at("traceparent"),
            trace);
  EXPECT_FALSE(Ask(port(), "GET", "/health", "", "traceparent: x\r\n")->headers.contains("traceparent"));
}

TEST_F(HttpServerTest, AnHttp10ClientGetsItsAnswerAndTheEnd) {
  Serve();
  RawClient client(port());
  ASSERT_TRUE(client.Send("GET /v1/models HTTP/1.0\r\n\r\n"));
  const auto answer = client.Read();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->headers.at("connection"), "close");
  EXPECT_TRUE(client.ReadsEnd());
}

TEST_F(HttpServerTest, AHalfClosedClientStillGetsItsAnswers) {
  HttpOptions options;
  options.half_close_probe_ms = 10;
  Serve(options);
  RawClient client(port());
  ASSERT_TRUE(client.Request("POST", "/v1/contexts", R"({"text":"x","name":"hold"})"));
  ASSERT_TRUE(client.Request("GET", "/health"));
  client.ShutdownWrite();
  auto held = fakes_.contexts.held.Wait();
  ASSERT_EQ(held.size(), 1u);
  EXPECT_FALSE(CancelledWithin(held[0].scope.cancel, 100));
  held[0].done(fakes_.contexts.create);
  EXPECT_EQ(client.Read()->status, 201);
  EXPECT_EQ(client.interim_answers(), 1);
  EXPECT_EQ(client.Read()->status, 200);
  EXPECT_TRUE(client.ReadsEnd());
}

TEST_F(HttpServerTest, AnAbsoluteTargetIsRoutedByItsPath) {
  Serve();
  RawClient client(port());
  ASSERT_TRUE(client.Send("GET http://localhost:1/health?x=1 HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_EQ(client.Read()->status, 200);
}

}  // namespace
}  // namespace epic
