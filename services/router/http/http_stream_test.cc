// Chat answers through the HTTP door: whole and streamed, failures, disconnects, slow readers, draining.
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "services/router/http/testing/server_fixture.h"

namespace epic {
namespace {

using Json = nlohmann::json;
using testing::Ask;
using testing::ExpectError;
using testing::FakeChat;
using testing::RawAnswer;
using testing::RawClient;

class HttpStreamTest : public testing::DoorTest {
 protected:
  // The held call of one request that `client` sends.
  FakeChat::Call Hold(RawClient& client, const std::string& more) {
    EXPECT_TRUE(client.Request("POST", "/v1/chat/completions", Body("hold", more)));
    auto calls = fakes_.chat.held.Wait();
    EXPECT_EQ(calls.size(), 1u);
    return calls.at(0);
  }
  static std::string Body(const std::string& user, const std::string& more) {
    return R"({"messages":[{"role":"user","content":"hi"}],"user":")" + user + "\"" + more + "}";
  }
};

// The "data:" lines of a stream, in order.
std::vector<std::string> Events(const std::string& body) {
  std::vector<std::string> out;
  size_t at = 0;
  while (at < body.size()) {
    const size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    if (end == std::string::npos) break;
    const std::string event = body.substr(at, end - at);
    if (event.starts_with("data: ")) {
      out.push_back(event.substr(6));
    } else {
      EXPECT_EQ(event, ": ping");
    }
    at = end + 2;
  }
  return out;
}

TEST_F(HttpStreamTest, AWholeAnswerHasChoicesUsageTimingsAndHeaders) {
  Serve();
  const auto answer = Ask(port(), "POST", "/v1/chat/completions", Body("u", R"(,"n":2,"logprobs":true)"));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->headers.at("x-epic-linking"), "legolink-16; recomputed=128");
  const Json json = Json::parse(answer->body);
  ASSERT_EQ(json["choices"].size(), 2u);
  EXPECT_EQ(json["choices"][1]["index"], 1);
  EXPECT_EQ(json["choices"][1]["message"]["content"], "Hello");
  EXPECT_EQ(json["choices"][1]["finish_reason"], "stop");
  EXPECT_EQ(json["choices"][1]["logprobs"]["content"].size(), 2u);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 60);
  EXPECT_EQ(json["usage"]["recomputed_tokens"], 128);
  EXPECT_EQ(json["system_fingerprint"], "fp_1");
}

TEST_F(HttpStreamTest, AStreamGoesRoleContentFinishUsageDone) {
  Serve();
  const auto answer = Ask(port(), "POST", "/v1/chat/completions",
                          Body("u", R"(,"stream":true,"stream_options":{"include_usage":true})"));
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(answer->chunked);
  EXPECT_TRUE(answer->headers.at("content-type").starts_with("text/event-stream"));
  EXPECT_EQ(answer->headers.at("cache-control"), "no-cache");
  EXPECT_EQ(answer->headers.at("x-accel-buffering"), "no");
  EXPECT_EQ(answer->headers.at("x-epic-linking"), "legolink-16; recomputed=128");
  const std::vector<std::string> events = Events(answer->body);
  ASSERT_EQ(events.size(), 6u) << answer->body;
  EXPECT_EQ(Json::parse(events[0])["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(Json::parse(events[1])["choices"][0]["delta"]["content"], "Hel");
  EXPECT_EQ(Json::parse(events[2])["choices"][0]["delta"]["content"], "lo");
  const Json finish = Json::parse(events[3]);
  EXPECT_EQ(finish["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(finish.contains("timings"));
  EXPECT_TRUE(finish["usage"].is_null());
  const Json usage = Json::parse(events[4]);
  EXPECT_EQ(usage["choices"], Json::array());
  EXPECT_EQ(usage["usage"]["prompt_tokens"], 200);
  EXPECT_EQ(events[5], "[DONE]");
}

TEST_F(HttpStreamTest, UsageIsNeverSentUnasked) {
  Serve();
  const auto answer = Ask(port(), "POST", "/v1/chat/completions", Body("u", R"(,"stream":true,"n":3)"));
  const std::vector<std::string> events = Events(answer->body);
  ASSERT_EQ(events.size(), 3u + 3 * 3 + 1);
  EXPECT_EQ(answer->body.find("usage"), std::string::npos);
  int finishes = 0;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json chunk = Json::parse(events[i]);
    ASSERT_EQ(chunk["choices"].size(), 1u);
    const bool finish = !chunk["choices"][0]["finish_reason"].is_null();
    finishes += finish ? 1 : 0;
    EXPECT_EQ(chunk.contains("timings"), finish && finishes == 3);
  }
  EXPECT_EQ(finishes, 3);
}

TEST_F(HttpStreamTest, ARefusalComesBeforeTheStreamStarts) {
  Serve();
  for (const char* more : {"", R"(,"stream":true)"}) {
    const auto answer = Ask(port(), "POST", "/v1/chat/completions", Body("refuse", more));
    ExpectError(answer, 429, "queue_full");
    EXPECT_EQ(answer->headers.at("retry-after"), "2");
    EXPECT_EQ(answer->headers.at("content-type"), "application/json");
  }
}

TEST_F(HttpStreamTest, HeadersAndTheRoleComeAtOnceAndPingsFillTheSilence) {
  HttpOptions options;
  options.heartbeat_ms = 20;
  Serve(options);
  RawClient client(port());
  const FakeChat::Call call = Hold(client, R"(,"stream":true)");
  call.sink->OnStart(FakeChat::Start());
  ASSERT_TRUE(client.ReadHead().has_value());
  ASSERT_TRUE(client.ReadUntil("\"role\":\"assistant\"").has_value());
  EXPECT_EQ(server_->streams(), 1u);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client.ReadUntil(": ping\n\n").has_value());
  call.sink->OnDelta({0, "x", {}});
  call.sink->OnFinish(0, "length");
  call.sink->OnDone(absl::OkStatus(), {}, {});
  ASSERT_TRUE(client.ReadUntil("data: [DONE]\n\n\r\n0\r\n\r\n").has_value());
  // The connection goes on.
  ASSERT_TRUE(client.Request("GET", "/health"));
  EXPECT_EQ(client.Read()->status, 200);
  EXPECT_EQ(server_->streams(), 0u);
}

TEST_F(HttpStreamTest, AFailureAmidTheStreamIsAnErrorEventThenDone) {
  Serve();
  RawClient client(port());
  const FakeChat::Call call = Hold(client, R"(,"stream":true)");
  call.sink->OnStart(FakeChat::Start());
  call.sink->OnDelta({0, "x", {}});
  call.sink->OnFinish(0, "stop");
  call.sink->OnDone(Error(ErrorCode::kContextObjectMissing, "it was deleted"), {}, {});
  const auto answer = client.Read();
  ASSERT_TRUE(answer.has_value());
  const std::vector<std::string> events = Events(answer->body);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(Json::parse(events[2])["error"]["code"], "context_object_missing");
  EXPECT_EQ(Json::parse(events[2])["error"].size(), 4u);
  EXPECT_EQ(events[3], "[DONE]");
}

TEST_F(HttpStreamTest, AClosedConnectionCancelsWithinASecond) {
  Serve();
  for (const char* more : {"", R"(,"stream":true)"}) {
    for (const bool started : {false, true}) {
      RawClient client(port());
      const FakeChat::Call call = Hold(client, more);
      if (started) call.sink->OnStart(FakeChat::Start());
      client.Close();
      EXPECT_TRUE(CancelledWithin(call.scope.cancel, 1000)) << more << started;
      EXPECT_TRUE(events_.WaitFor(499));
      EXPECT_FALSE(call.sink->OnDelta({0, "late", {}}));
      call.sink->OnDone(absl::CancelledError("gone"), {}, {});
    }
  }
  RawClient client(port());
  ASSERT_TRUE(client.Request("POST", "/v1/contexts", R"({"text":"x","name":"hold"})"));
  auto held = fakes_.contexts.held.Wait();
  ASSERT_EQ(held.size(), 1u);
  client.Close();
  EXPECT_TRUE(CancelledWithin(held[0].scope.cancel, 1000));
  held[0].done(absl::CancelledError("gone"));
  EXPECT_EQ(Ask(port(), "GET", "/health")->status, 200);
}

TEST_F(HttpStreamTest, AcceptedWorkIsNotCancelledByItsOwnAnswer) {
  Serve();
  RawClient client(port());
  ASSERT_TRUE(client.Request("POST", "/v1/contexts", R"({"text":"x","name":"hold"})"));
  auto held = fakes_.contexts.held.Wait();
  ASSERT_EQ(held.size(), 1u);
  held[0].done(CreateContextResult{CreateContextResult::Outcome::kAccepted, testing::FakeRecord()});
  EXPECT_EQ(client.Read()->status, 202);
  ASSERT_TRUE(client.Request("GET", "/health"));
  EXPECT_EQ(client.Read()->status, 200);
  EXPECT_FALSE(held[0].scope.cancel.cancelled());
}

TEST_F(HttpStreamTest, AReaderThatStopsIsCutWithBoundedMemory) {
  HttpOptions options;
  options.stream_buffer_bytes = 64 * 1024;
  Serve(options);
  RawClient client(port(), 10'000, /*receive_buffer_bytes=*/4096);
  const FakeChat::Call call = Hold(client, R"(,"stream":true)");
  call.sink->OnStart(FakeChat::Start());
  const std::string text(1000, 'x');
  // The kernel's own buffers take a few megabytes at most; then ours fills up.
  int taken = 0;
  while (taken < 100'000 && call.sink->OnDelta({0, text, {}})) ++taken;
  EXPECT_LT(taken, 100'000);
  EXPECT_TRUE(call.scope.cancel.cancelled());
  EXPECT_TRUE(events_.WaitFor(499));
  call.sink->OnDone(absl::CancelledError("gone"), {}, {});
  EXPECT_TRUE(client.DiscardsToEnd());
}

TEST_F(HttpStreamTest, AReaderThatStopsIsCutAlsoWhileAWriteWaitsForIt) {
  HttpOptions options;
  options.stream_buffer_bytes = 64 * 1024;
  options.write_timeout_ms = 60'000;
  Serve(options);
  RawClient client(port(), 10'000, /*receive_buffer_bytes=*/4096);
  const FakeChat::Call call = Hold(client, R"(,"stream":true)");
  call.sink->OnStart(FakeChat::Start());
  const std::string text(30'000, 'x');
  // Slow enough for each piece to be written, until the kernel's buffers are full and a write waits.
  Mutex mu;
  CondVar never;
  int taken = 0;
  while (taken < 3'000 && call.sink->OnDelta({0, text, {}})) {
    ++taken;
    MutexLock lock(&mu);
    never.WaitForMs(&mu, 2);
  }
  EXPECT_LT(taken, 3'000);
  EXPECT_TRUE(call.scope.cancel.cancelled());
  EXPECT_TRUE(events_.WaitFor(499));
  call.sink->OnDone(absl::CancelledError("gone"), {}, {});
}

TEST_F(HttpStreamTest, AReaderThatTakesNothingIsCutAtTheWriteDeadline) {
  HttpOptions options;
  options.stream_buffer_bytes = 64 << 20;
  options.write_timeout_ms = 100;
  Serve(options);
  RawClient client(port(), 10'000, /*receive_buffer_bytes=*/4096);
  const FakeChat::Call call = Hold(client, R"(,"stream":true)");
  call.sink->OnStart(FakeChat::Start());
  const std::string text(1000, 'x');
  for (int i = 0; i < 20'000; ++i) {
    if (!call.sink->OnDelta({0, text, {}})) break;
  }
  EXPECT_TRUE(CancelledWithin(call.scope.cancel, 5000));
  EXPECT_FALSE(call.sink->OnDelta({0, text, {}}));
  call.sink->OnDone(absl::CancelledError("gone"), {}, {});
}

TEST_F(HttpStreamTest, DrainLetsRunningRequestsFinishAndTakesNoMore) {
  Serve();
  RawClient idle(port());
  ASSERT_TRUE(idle.Request("GET", "/health"));
  EXPECT_EQ(idle.Read()->status, 200);
  RawClient client(port());
  const FakeChat::Call call = Hold(client, R"(,"stream":true)");
  call.sink->OnStart(FakeChat::Start());
  bool drained = false;
  std::thread drainer([&] { drained = server_->Drain(10'000); });
  EXPECT_TRUE(idle.ReadsEnd());
  call.sink->OnDelta({0, "x", {}});
  call.sink->OnFinish(0, "stop");
  call.sink->OnDone(absl::OkStatus(), {}, {});
  const auto answer = client.Read();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(Events(answer->body).back(), "[DONE]");
  EXPECT_TRUE(client.ReadsEnd());
  drainer.join();
  EXPECT_TRUE(drained);
  EXPECT_EQ(server_->connections(), 0u);
  EXPECT_FALSE(Ask(port(), "GET", "/health").has_value());
}

TEST_F(HttpStreamTest, StopCancelsWhatADrainLeft) {
  Serve();
  RawClient client(port());
  const FakeChat::Call call = Hold(client, "");
  EXPECT_FALSE(server_->Drain(20));
  EXPECT_FALSE(call.scope.cancel.cancelled());
  server_->Stop();
  EXPECT_TRUE(call.scope.cancel.cancelled());
  EXPECT_TRUE(client.ReadsEnd());
  // The core may answer long after the door is gone.
  server_.reset();
  call.sink->OnStart(FakeChat::Start());
  EXPECT_FALSE(call.sink->OnDelta({0, "x", {}}));
  call.sink->OnDone(absl::OkStatus(), {}, {});
}

TEST_F(HttpStreamTest, AnHttp10ClientGetsAStreamThatEndsWithTheConnection) {
  Serve();
  RawClient client(port());
  const std::string body = Body("u", R"(,"stream":true)");
  ASSERT_TRUE(client.Send("POST /v1/chat/completions HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: " +
                          std::to_string(body.size()) + "\r\n\r\n" + body));
  const auto answer = client.Read();
  ASSERT_TRUE(answer.has_value());
  EXPECT_FALSE(answer->chunked);
  EXPECT_EQ(Events(answer->body).back(), "[DONE]");
}

TEST_F(HttpStreamTest, ManyClientsThatComeAndGoLeaveNothingOpen) {
  Serve();
  std::vector<std::thread> clients;
  for (int t = 0; t < 4; ++t) {
    clients.emplace_back([this, t] {
      for (int i = 0; i < 50; ++i) {
        RawClient client(port());
        client.Request("POST", "/v1/chat/completions", Body("u", i % 2 == 0 ? "" : R"(,"stream":true)"));
        if ((i + t) % 3 != 0) {
          const auto answer = client.Read();
          EXPECT_TRUE(answer.has_value() && answer->status == 200);
        }
      }
    });
  }
  for (std::thread& thread : clients) thread.join();
  EXPECT_TRUE(server_->Drain(10'000));
  EXPECT_EQ(server_->connections(), 0u);
  EXPECT_EQ(server_->streams(), 0u);
}

}  // namespace
}  // namespace epic
