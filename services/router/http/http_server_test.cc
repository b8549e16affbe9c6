// The HTTP door over real loopback sockets and fake Apis: protocol, routes, errors.
#include "services/router/http/http_server.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/clock.h"
#include "common/testing/status_matchers.h"
#include "services/router/http/fakes.h"
#include "services/router/http/raw_client.h"

namespace epic {
namespace {

using Json = nlohmann::json;
using testing::Ask;
using testing::FakeApis;
using testing::RawAnswer;
using testing::RawClient;

class HttpServerTest : public ::testing::Test {
 protected:
  void Serve(HttpOptions options = {}) {
    auto server = HttpServer::Start(std::move(options), fakes_.apis(), SystemClock::Get(), 1);
    ASSERT_OK(server);
    server_ = *std::move(server);
  }
  uint16_t port() const { return server_->port(); }

  FakeApis fakes_;
  std::unique_ptr<HttpServer> server_;
};

void ExpectError(const std::optional<RawAnswer>& answer, int status, const std::string& code) {
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, status) << answer->body;
  const Json body = Json::parse(answer->body, nullptr, false);
  ASSERT_TRUE(body.is_object() && body.contains("error")) << answer->body;
  EXPECT_EQ(body["error"].size(), 4u);
  for (const char* key : {"message", "type", "param", "code"}) EXPECT_TRUE(body["error"].contains(key));
  EXPECT_EQ(body["error"]["code"], code);
  EXPECT_FALSE(answer->headers.at("x-request-id").empty());
}

TEST_F(HttpServerTest, HealthAnswersOnAPortOfTheKernelsChoice) {
  Serve();
  EXPECT_NE(port(), 0);
  const auto answer = Ask(port(), "GET", "/health");
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->headers.at("content-type"), "application/json");
  EXPECT_EQ(Json::parse(answer->body)["status"], "ok");
}

TEST_F(HttpServerTest, UnknownPathsAndMethodsAreFourKeyErrors) {
  Serve();
  ExpectError(Ask(port(), "GET", "/nowhere"), 404, "route_not_found");
  const auto answer = Ask(port(), "PUT", "/v1/contexts");
  ExpectError(answer, 405, "method_not_allowed");
  EXPECT_EQ(answer->headers.at("allow"), "GET, HEAD, POST, OPTIONS");
  ExpectError(Ask(port(), "POST", "/tokenize", "a=b", "Content-Type: application/x-www-form-urlencoded\r\n"),
              415, "unsupported_media_type");
}

}  // namespace
}  // namespace epic
