// Printed answers, checked against the documented shapes by an independent reading of the JSON.
#include "services/router/http/json_answers.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "services/router/http/testing/fakes.h"

namespace epic {
namespace {

using Json = nlohmann::json;

TEST(JsonAnswersTest, AContextHasEveryFieldOfTheInterface) {
  const Json json = Json::parse(PrintContext(testing::FakeRecord()));
  for (const char* key :
       {"object", "id", "model", "state", "tokens", "bytes", "created_at", "last_used_at", "expires_at",
        "ttl", "pin", "pin_until", "tags", "name", "durability", "variants", "hits", "compile_ms", "error"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["object"], "context");
  EXPECT_EQ(json["state"], "ready");
  EXPECT_EQ(json["created_at"], 1'700'000'000);
  EXPECT_TRUE(json["last_used_at"].is_null());
  EXPECT_TRUE(json["expires_at"].is_null());
  EXPECT_TRUE(json["ttl"].is_null());
  EXPECT_TRUE(json["name"].is_null());
  EXPECT_TRUE(json["error"].is_null());
  EXPECT_EQ(json["pin"], "none");
  EXPECT_EQ(json["durability"], "replicas");
  EXPECT_EQ(json["tags"], Json::array());
  EXPECT_EQ(json["compile_prefix"], Json({{"type", "none"}}));
}

TEST(JsonAnswersTest, AFullContextPrintsSecondsAndVariants) {
  ContextRecord record = testing::FakeRecord();
  record.state = ContextState::kFailed;
  record.error = "bad \xff byte";
  record.ttl_seconds = 60;
  record.expires_at_ms = 1'700'000'060'999;
  record.pin = Pin::kHard;
  record.pin_until_ms = 5'000;
  record.tags = {"a", "b"};
  record.name = "book";
  record.variants.push_back({CompilePrefixKind::kBos4, {}, KvDtype::kBf16, ComputeFormat::kF32});
  const Json json = Json::parse(PrintContext(record));
  EXPECT_EQ(json["expires_at"], 1'700'000'060);
  EXPECT_EQ(json["ttl"], 60);
  EXPECT_EQ(json["pin"], "hard");
  EXPECT_EQ(json["pin_until"], 5);
  EXPECT_EQ(json["name"], "book");
  EXPECT_EQ(json["error"], "bad \xef\xbf\xbd byte");
  ASSERT_EQ(json["variants"].size(), 1u);
  EXPECT_EQ(json["variants"][0]["compile_prefix"], "bos4");
  EXPECT_EQ(json["variants"][0]["dtype"], "bf16");
}

TEST(JsonAnswersTest, AnEmptyPageHasNullIds) {
  const Json json = Json::parse(PrintContextPage({}));
  EXPECT_EQ(json["object"], "list");
  EXPECT_TRUE(json["first_id"].is_null());
  EXPECT_TRUE(json["last_id"].is_null());
  EXPECT_EQ(json["has_more"], false);
}

TEST(JsonAnswersTest, UsageAddsUpAndNamesTheThreeKindsOfRows) {
  const Json json = Json::parse(PrintCompletion(testing::FakeChat::Start(), {{"Hello", {}, "stop"}}, false,
                                                testing::FakeChat::Usage(), {}));
  const Json& usage = json["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 200);
  EXPECT_EQ(usage["total_tokens"], 202);
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"].get<int>() +
                usage["recomputed_tokens"].get<int>() + usage["fresh_tokens"].get<int>(),
            200);
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "Hello");
  EXPECT_TRUE(json["choices"][0]["logprobs"].is_null());
  for (const char* key :
       {"queue_ms", "fetch_ms", "decide_ms", "link_ms", "ttft_ms", "decode_ms", "fetched_bytes"}) {
    EXPECT_TRUE(json["timings"].contains(key)) << key;
  }
}

TEST(JsonAnswersTest, LogprobsCarryRawBytesAndNoInfinity) {
  ChatLogprob half{"\xc3", -std::numeric_limits<float>::infinity(), {{"\xff", -1.0f}}};
  const Json json =
      Json::parse(PrintCompletion(testing::FakeChat::Start(), {{"x", {half}, "length"}}, true, {}, {}));
  const Json& entry = json["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(entry["bytes"], Json::array({0xc3}));
  EXPECT_EQ(entry["token"], "\xef\xbf\xbd");
  EXPECT_EQ(entry["logprob"], -9999.0);
  EXPECT_EQ(entry["top_logprobs"][0]["bytes"], Json::array({0xff}));
}

TEST(JsonAnswersTest, EveryChunkHasChoicesAndTheSameHead) {
  const ChatStart start = testing::FakeChat::Start();
  const std::string chunks[] = {
      PrintRoleChunk(start, 0, true), PrintDeltaChunk(start, {0, "x", {}}, false, true),
      PrintFinishChunk(start, 0, "stop", ChatTimings(), true), PrintUsageChunk(start, {}, {})};
  for (const std::string& text : chunks) {
    const Json chunk = Json::parse(text);
    EXPECT_EQ(chunk["id"], "chatcmpl-1");
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    EXPECT_EQ(chunk["created"], 1'700'000'000);
    EXPECT_TRUE(chunk["choices"].is_array());
    EXPECT_TRUE(chunk.contains("usage"));
  }
  EXPECT_EQ(Json::parse(chunks[0])["choices"][0]["delta"], Json({{"role", "assistant"}, {"content", ""}}));
  EXPECT_EQ(Json::parse(chunks[2])["choices"][0]["delta"], Json::object());
  EXPECT_TRUE(Json::parse(chunks[2]).contains("timings"));
  EXPECT_TRUE(Json::parse(chunks[3])["choices"].empty());
  EXPECT_FALSE(Json::parse(PrintRoleChunk(start, 0, false)).contains("usage"));
}

TEST(JsonAnswersTest, AnUnableNodeTellsItsCausesAndAnError) {
  const Json json = Json::parse(PrintHealth({false, "draining", {"asked to stop"}}));
  EXPECT_EQ(json["status"], "draining");
  EXPECT_EQ(json["causes"][0], "asked to stop");
  EXPECT_EQ(json["error"]["code"], "draining");
  EXPECT_EQ(json["error"].size(), 4u);
  EXPECT_FALSE(Json::parse(PrintHealth({true, "degraded", {"disk"}})).contains("error"));
}

TEST(JsonAnswersTest, PiecesThatAreNotTextComeWithTheirBytes) {
  const Json json = Json::parse(PrintTokens({{5, "\xe2\x82"}}, true));
  EXPECT_EQ(json["tokens"][0]["id"], 5);
  EXPECT_EQ(json["tokens"][0]["bytes"], Json::array({0xe2, 0x82}));
  EXPECT_EQ(Json::parse(PrintTokens({{5, "x"}}, false))["tokens"], Json::array({5}));
}

TEST(JsonAnswersTest, TheLinkingHeaderTellsTheCountWhenItIsKnown) {
  EXPECT_EQ(PrintLinkingHeader("legolink-16", 128), "legolink-16; recomputed=128");
  EXPECT_EQ(PrintLinkingHeader("full", std::nullopt), "full");
}

}  // namespace
}  // namespace epic
