// Malformed requests: each gets a 4xx with the four-key error, and the door lives on. Tables of bytes and of
// bodies, then mutations of good requests from fixed seeds.
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/random.h"
#include "services/router/http/testing/server_fixture.h"

namespace epic {
namespace {

using testing::Ask;
using testing::ExpectError;
using testing::RawClient;

class HttpMalformedTest : public testing::DoorTest {
 protected:
  void ExpectAlive() {
    const auto answer = Ask(port(), "GET", "/health");
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->status, 200);
  }
};

struct RawCase {
  std::string bytes;
  int status;
  std::string code = "invalid_request";
};

std::string Post(const std::string& headers, const std::string& body = "{}") {
  return "POST /tokenize HTTP/1.1\r\n" + headers + "\r\n" + body;
}

TEST_F(HttpMalformedTest, BytesThatAreNoRequestAreRefused) {
  Serve();
  const std::vector<RawCase> cases = {
      {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400},
      {"hello\r\n\r\n", 400},
      {"GET\r\n\r\n", 400},
      {"GET /health\r\n\r\n", 400},
      {"GET  /health HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /health HTTP/3.0\r\nHost: x\r\n\r\n", 400},
      {"GET /health HTTP/1.1x\r\nHost: x\r\n\r\n", 400},
      {"GET /health http/1.1\r\nHost: x\r\n\r\n", 400},
      {"G(T /health HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /he\x01lth HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET health HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /health HTTP/1.1\nHost: x\n\n\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nHost x\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nHost : x\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\n: x\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nHost: x\r\nX: a\x01z\r\n\r\n", 400},
      {"GET /v1/contexts/%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /v1/contexts?tag=%f HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /v1/contexts?tag=%ff HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /v1/contexts?limit=many HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /v1/contexts/a/b HTTP/1.1\r\nHost: x\r\n\r\n", 404, "route_not_found"},
      {"GET /v1/contexts/ HTTP/1.1\r\nHost: x\r\n\r\n", 404, "route_not_found"},
      {"GET //health HTTP/1.1\r\nHost: x\r\n\r\n", 404, "route_not_found"},
      {"GET /../health HTTP/1.1\r\nHost: x\r\n\r\n", 404, "route_not_found"},
      {"CONNECT example.com:80 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"TRACE /health HTTP/1.1\r\nHost: x\r\n\r\n", 405, "method_not_allowed"},
      {"BREW /health HTTP/1.1\r\nHost: x\r\n\r\n", 405, "method_not_allowed"},
      {"get /health HTTP/1.1\r\nHost: x\r\n\r\n", 405, "method_not_allowed"},
      {Post("Host: x\r\nContent-Length: -1\r\n"), 400},
      {Post("Host: x\r\nContent-Length: x\r\n"), 400},
      {Post("Host: x\r\nContent-Length: 2, 3\r\n"), 400},
      {Post("Host: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n"), 400},
      {Post("Host: x\r\nContent-Length: 99999999999999999999999\r\n"), 400},
      {Post("Host: x\r\nContent-Length: 18446744073709551615\r\n"), 413, "body_too_large"},
      {Post("Host: x\r\nContent-Length: 9223372036854775807\r\n"), 413, "body_too_large"},
      {Post("Host: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n"), 400},
      {Post("Host: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n"), 400},
      {Post("Host: x\r\nTransfer-Encoding: gzip\r\n"), 400},
      {Post("Host: x\r\nTransfer-Encoding: gzip, chunked\r\n"), 400},
      {Post("Host: x\r\nTransfer-Encoding: chunked\r\n", "zz\r\n{}\r\n0\r\n\r\n"), 400},
      {Post("Host: x\r\nTransfer-Encoding: chunked\r\n", "2\r\n{}xx0\r\n\r\n"), 400},
      {Post("Host: x\r\nTransfer-Encoding: chunked\r\n", "-2\r\n{}\r\n0\r\n\r\n"), 400},
      {Post("Host: x\r\nTransfer-Encoding: chunked\r\n", "ffffffffffffffffff\r\n{}\r\n0\r\n\r\n"), 400},
      {Post("Host: x\r\nTransfer-Encoding: chunked\r\n", "fffffffffffffff\r\n{}\r\n0\r\n\r\n"), 413,
       "body_too_large"},
      {Post("Host: x\r\nContent-Length: 2\r\nContent-Encoding: gzip\r\n"), 415, "unsupported_media_type"},
      {Post("Host: x\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n"), 415, "unsupported_media_type"},
      {Post("Host: x\r\nContent-Length: 2\r\nContent-Type: application/jsonp\r\n"), 415,
       "unsupported_media_type"},
      {Post("Host: x\r\nContent-Length: 2\r\nOrigin: http://evil\r\n"), 403, "permission_denied"},
      {Post("Host: x\r\n", ""), 400},
      {Post("Host: x\r\nContent-Length: 0\r\n", ""), 400},
  };
  for (const RawCase& test : cases) {
    SCOPED_TRACE(test.bytes);
    RawClient client(port());
    ASSERT_TRUE(client.Send(test.bytes));
    ExpectError(client.Read(), test.status, test.code);
  }
  ExpectAlive();
}

TEST_F(HttpMalformedTest, ARequestThatEndsTooSoonIsRefused) {
  Serve();
  const std::string whole =
      "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{\"content\":\"a\"";
  for (size_t size = 1; size <= whole.size(); size += 7) {
    SCOPED_TRACE(size);
    RawClient client(port());
    ASSERT_TRUE(client.Send(whole.substr(0, size)));
    client.ShutdownWrite();
    ExpectError(client.Read(), 400, "invalid_request");
  }
  ExpectAlive();
}

TEST_F(HttpMalformedTest, BodiesOfTheWrongShapeAreRefusedOnEveryPath) {
  Serve();
  const std::string chat = "/v1/chat/completions";
  const auto message = [](const std::string& content) {
    return R"({"messages":[{"role":"user","content":)" + content + "}]}";
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {chat, "{"},
      {chat, "{:"},
      {chat, "[]"},
      {chat, "null"},
      {chat, "{}"},
      {chat, "\"x\""},
      {chat, R"({"messages":null})"},
      {chat, R"({"messages":5})"},
      {chat, R"({"messages":[5]})"},
      {chat, R"({"messages":[{}]})"},
      {chat, message("null")},
      {chat, message("5")},
      {chat, message("[5]")},
      {chat, message(R"([{"type":"poem"}])")},
      {chat, message(R"([{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}])")},
      {chat, message(R"([{"type":"context"}])")},
      {chat, message(R"([{"type":"context","id":"a","x":1}])")},
      {chat, message(R"("\ud83d")")},
      {chat, message("\"\xff\"")},
      {chat, R"({"messages":[{"role":"user","content":"x"}],"stream":"true"})"},
      {chat, R"({"messages":[{"role":"user","content":"x"}],"temperature":NaN})"},
      {chat, R"({"messages":[{"role":"user","content":"x"}],"temperature":1e999})"},
      {chat, R"({"messages":[{"role":"user","content":"x"}],"tools":[{}]})"},
      {chat, R"({"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_object"}})"},
      {chat, R"({"messages":[{"role":"user","content":"x"}],"n":1.5})"},
      {chat, R"({"messages":[{"role":"user","content":"x"}],"linking":{"x":1}})"},
      {chat, R"({"messages":[{"role":"user","content":"x"}],"logit_bias":{"1":"a"}})"},
      {chat, R"({"messages":[{"role":"user","content":"x"}],"a":1,"a":2})"},
      {chat, std::string(100'000, '[')},
      {chat, R"({"a":)" + std::string(100'000, '[')},
      {"/v1/contexts", "{"},
      {"/v1/contexts", R"({"text":5})"},
      {"/v1/contexts", R"({"tokens":"1,2"})"},
      {"/v1/contexts", R"({"tokens":[1.5]})"},
      {"/v1/contexts", R"({"tokens":[99999999999999999999]})"},
      {"/v1/contexts", R"({"text":"x","ttl":"1h"})"},
      {"/v1/contexts", R"({"text":"x","tags":{"a":1}})"},
      {"/v1/contexts", R"({"text":"x","wait":"long"})"},
      {"/v1/contexts", R"({"text":"x","compile_prefix":"bos"})"},
      {"/v1/contexts", R"({"messages":"x"})"},
      {"/tokenize", R"({"content":5})"},
      {"/tokenize", "{}"},
      {"/detokenize", R"({"tokens":"x"})"},
      {"/detokenize", R"({"tokens":[{}]})"},
      {"/detokenize", "{}"},
      {"/apply-template", R"({"messages":{}})"},
      {"/apply-template", "{}"},
  };
  RawClient client(port());  // one connection for all: an error in a body does not end it
  for (const auto& [path, body] : cases) {
    SCOPED_TRACE(path + " " + body.substr(0, 100));
    ASSERT_TRUE(client.Request("POST", path, body));
    const auto answer = client.Read();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->status, 400);
    ExpectError(answer, 400, nlohmann::json::parse(answer->body)["error"]["code"]);
  }
  ExpectAlive();
}

TEST_F(HttpMalformedTest, MutatedRequestsNeverKillTheDoor) {
  HttpOptions options;
  options.header_timeout_ms = 20;
  options.body_timeout_ms = 20;
  options.linger_timeout_ms = 20;
  Serve(options);
  const std::string body = R"({"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"n":1})";
  const std::string seed_request =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\r\n"
      "Content-Type: application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::string text = seed_request;
    for (uint64_t edits = 1 + rng.Below(6); edits > 0; --edits) {
      const size_t at = rng.Below(text.size());
      switch (rng.Below(4)) {
        case 0:
          text[at] = static_cast<char>(rng.Below(256));
          break;
        case 1:
          text.erase(at, 1 + rng.Below(8));
          break;
        case 2:
          text.insert(at, text.substr(rng.Below(text.size()), rng.Below(16)));
          break;
        default:
          text.insert(at, 1, "\r\n:{}[]\"\\,0\xff"[rng.Below(12)]);
      }
      if (text.empty()) text = "\r\n";
    }
    RawClient client(port());
    client.Send(text);
    client.ShutdownWrite();
    EXPECT_TRUE(client.DiscardsToEnd());
  }
  ExpectAlive();
}

}  // namespace
}  // namespace epic
