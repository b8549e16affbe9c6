// Request bodies and queries into structs: what is taken, what is refused, and which field is named.
#include "services/router/http/json_requests.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"

namespace epic {
namespace {

const JsonRequestLimits kLimits;

std::string Chat(const std::string& more) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (more.empty() ? "" : "," + more) + "}";
}

TEST(JsonRequestsTest, AFullChatRequestArrivesFieldByField) {
  ASSERT_OK_AND_ASSIGN(const ParsedChat parsed, ParseChat(R"({
    "model":"m","messages":[
      {"role":"system","content":"be brief"},
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"context","id":"ctx_1"},
                                {"type":"context","name":"book"}]}],
    "context_ids":["ctx_2"],"linking":{"strategy":"legolink-k","k":4,"compile_prefix":"bos4","on_missing":"error",
    "auto":"off","ratio":0.5,"budget":9},
    "stream":true,"stream_options":{"include_usage":true},"max_tokens":5,"max_completion_tokens":6,
    "temperature":0.5,"top_p":1,"min_p":0,"top_k":3,"seed":-9,"n":2,"presence_penalty":1,"frequency_penalty":-1,
    "repetition_penalty":1.1,"stop":["x","y"],"stop_token_ids":[1,2],"logit_bias":{"7":-100},"logprobs":true,
    "top_logprobs":2,"ignore_eos":true,"user":"u","brand_new_field":{"a":[1]}})",
                                                          kLimits));
  const ChatRequest& request = parsed.request;
  EXPECT_TRUE(parsed.include_usage);
  EXPECT_EQ(request.model, "m");
  ASSERT_EQ(request.messages.size(), 2u);
  EXPECT_EQ(request.messages[0].role, "system");
  EXPECT_EQ(request.messages[0].content[0].value, "be brief");
  ASSERT_EQ(request.messages[1].content.size(), 3u);
  EXPECT_EQ(request.messages[1].content[1].kind, ContentPart::Kind::kContextId);
  EXPECT_EQ(request.messages[1].content[1].value, "ctx_1");
  EXPECT_EQ(request.messages[1].content[2].kind, ContentPart::Kind::kContextName);
  EXPECT_EQ(request.messages[1].content[2].value, "book");
  EXPECT_EQ(request.context_ids, std::vector<std::string>{"ctx_2"});
  EXPECT_EQ(request.linking.strategy, "legolink-k");
  EXPECT_EQ(request.linking.k, 4);
  EXPECT_EQ(request.linking.ratio, 0.5);
  EXPECT_EQ(request.linking.budget, 9);
  EXPECT_EQ(request.linking.compile_prefix, "bos4");
  EXPECT_EQ(request.linking.on_missing, "error");
  EXPECT_EQ(request.linking.auto_mode, "off");
  EXPECT_TRUE(request.stream);
  EXPECT_EQ(request.max_tokens, 5);
  EXPECT_EQ(request.max_completion_tokens, 6);
  EXPECT_EQ(request.temperature, 0.5);
  EXPECT_EQ(request.top_p, 1.0);
  EXPECT_EQ(request.min_p, 0.0);
  EXPECT_EQ(request.top_k, 3);
  EXPECT_EQ(request.seed, -9);
  EXPECT_EQ(request.n, 2);
  EXPECT_EQ(request.presence_penalty, 1.0);
  EXPECT_EQ(request.frequency_penalty, -1.0);
  EXPECT_EQ(request.repetition_penalty, 1.1);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(request.stop_token_ids, (std::vector<int64_t>{1, 2}));
  ASSERT_EQ(request.logit_bias.size(), 1u);
  EXPECT_EQ(request.logit_bias[0], (std::pair<std::string, double>{"7", -100.0}));
  EXPECT_TRUE(request.logprobs);
  EXPECT_EQ(request.top_logprobs, 2);
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_EQ(request.user, "u");
}

TEST(JsonRequestsTest, ACompilePrefixOfAChatIsAWordOrTheObjectOfACreate) {
  ASSERT_OK_AND_ASSIGN(const ParsedChat word,
                       ParseChat(Chat(R"("linking":{"compile_prefix":"system"})"), kLimits));
  EXPECT_EQ(word.request.linking.compile_prefix, "system");
  EXPECT_FALSE(word.request.linking.compile_prefix_object.has_value());
  ASSERT_OK_AND_ASSIGN(
      const ParsedChat object,
      ParseChat(Chat(R"("linking":{"compile_prefix":{"type":"system","text":"t","context_id":"c"}})"),
                kLimits));
  EXPECT_FALSE(object.request.linking.compile_prefix.has_value());
  ASSERT_TRUE(object.request.linking.compile_prefix_object.has_value());
  EXPECT_EQ(object.request.linking.compile_prefix_object->type, "system");
  EXPECT_EQ(object.request.linking.compile_prefix_object->text, "t");
  EXPECT_EQ(object.request.linking.compile_prefix_object->context_id, "c");
  ASSERT_OK_AND_ASSIGN(const ParsedChat none,
                       ParseChat(Chat(R"("linking":{"compile_prefix":null})"), kLimits));
  EXPECT_FALSE(none.request.linking.compile_prefix.has_value());
  EXPECT_FALSE(none.request.linking.compile_prefix_object.has_value());
}

TEST(JsonRequestsTest, NullIsAbsentEverywhereButInMessages) {
  ASSERT_OK_AND_ASSIGN(
      const ParsedChat parsed,
      ParseChat(Chat(R"("model":null,"temperature":null,"stop":null,"tools":null,"linking":null,
                       "stream":null,"stream_options":null,"logit_bias":null,"context_ids":null)"),
                kLimits));
  EXPECT_FALSE(parsed.request.model.has_value());
  EXPECT_FALSE(parsed.request.temperature.has_value());
  EXPECT_TRUE(parsed.request.stop.empty());
  EXPECT_EQ(ParamOf(ParseChat(R"({"messages":null})", kLimits).status()), "messages");
}

TEST(JsonRequestsTest, AskingForNothingIsNotRefused) {
  EXPECT_OK(ParseChat(Chat(R"("tools":[],"tool_choice":"none","response_format":{"type":"text"},"store":false,
    "modalities":["text"],"parallel_tool_calls":true,"service_tier":"auto","keep":false)"),
                      kLimits));
  EXPECT_OK(ParseChat(R"({"messages":[{"role":"assistant","content":"x","tool_calls":[],"refusal":null}]})",
                      kLimits));
}

struct Refused {
  const char* body;
  const char* param;
  ErrorCode code = ErrorCode::kInvalidRequest;
};

TEST(JsonRequestsTest, EveryRefusalOfAChatNamesItsField) {
  const std::vector<Refused> cases = {
      {R"({})", "messages"},
      {R"({"messages":5})", "messages"},
      {R"({"messages":"hi"})", "messages"},
      {R"({"messages":{}})", "messages"},
      {R"({"messages":[5]})", "messages[0]"},
      {R"({"messages":[null]})", "messages[0]"},
      {R"({"messages":[{"content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":1,"content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":null}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":7}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":["x"]}]})", "messages[0].content[0]"},
      {R"({"messages":[{"role":"user","content":[{}]}]})", "messages[0].content[0].type"},
      {R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"poem"}]}]})",
       "messages[0].content[1].type"},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", "messages[0].content[0].text"},
      {R"({"messages":[{"role":"user","content":[{"type":"text","text":"a","cache":1}]}]})",
       "messages[0].content[0].cache"},
      {R"({"messages":[{"role":"user","content":[{"type":"context"}]}]})", "messages[0].content[0].id"},
      {R"({"messages":[{"role":"user","content":[{"type":"context","id":"a","name":"b"}]}]})",
       "messages[0].content[0].id"},
      {R"({"messages":[{"role":"user","content":[{"type":"context","id":5}]}]})",
       "messages[0].content[0].id"},
      {R"({"messages":[{"role":"user","content":[{"type":"context","id":"a","reset":1}]}]})",
       "messages[0].content[0].reset"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})",
       "messages[0].content[0].type", ErrorCode::kUnsupportedParameter},
      {R"({"messages":[{"role":"assistant","content":"x","tool_calls":[{}]}]})", "messages[0].tool_calls",
       ErrorCode::kUnsupportedParameter},
  };
  for (const Refused& refused : cases) {
    const absl::Status status = ParseChat(refused.body, kLimits).status();
    ASSERT_FALSE(status.ok()) << refused.body;
    EXPECT_EQ(CodeOf(status), refused.code) << refused.body;
    EXPECT_EQ(ParamOf(status), refused.param) << refused.body;
  }
}

TEST(JsonRequestsTest, WrongTypesOfFieldsAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("model":5)", "model"},
      {R"("stream":"true")", "stream"},
      {R"("stream":1)", "stream"},
      {R"("max_tokens":"5")", "max_tokens"},
      {R"("max_tokens":1.5)", "max_tokens"},
      {R"("max_tokens":99999999999999999999)", "max_tokens"},
      {R"("max_tokens":18446744073709551615)", "max_tokens"},
      {R"("max_completion_tokens":[])", "max_completion_tokens"},
      {R"("temperature":"0.5")", "temperature"},
      {R"("top_p":true)", "top_p"},
      {R"("min_p":{})", "min_p"},
      {R"("top_k":0.5)", "top_k"},
      {R"("seed":1.0)", "seed"},
      {R"("n":"2")", "n"},
      {R"("presence_penalty":"x")", "presence_penalty"},
      {R"("frequency_penalty":[])", "frequency_penalty"},
      {R"("repetition_penalty":false)", "repetition_penalty"},
      {R"("stop":5)", "stop"},
      {R"("stop":["a",5])", "stop[1]"},
      {R"("stop_token_ids":["1"])", "stop_token_ids[0]"},
      {R"("stop_token_ids":7)", "stop_token_ids"},
      {R"("logit_bias":[])", "logit_bias"},
      {R"("logit_bias":{"1":"x"})", "logit_bias.1"},
      {R"("logprobs":5)", "logprobs"},
      {R"("top_logprobs":"2")", "top_logprobs"},
      {R"("user":{})", "user"},
      {R"("ignore_eos":"no")", "ignore_eos"},
      {R"("context_ids":"ctx")", "context_ids"},
      {R"("context_ids":[null])", "context_ids[0]"},
      {R"("linking":"full")", "linking"},
      {R"("linking":{"strategie":"full"})", "linking.strategie"},
      {R"("linking":{"strategy":5})", "linking.strategy"},
      {R"("linking":{"k":"16"})", "linking.k"},
      {R"("linking":{"compile_prefix":5})", "linking.compile_prefix"},
      {R"("linking":{"compile_prefix":{}})", "linking.compile_prefix.type"},
      {R"("linking":{"compile_prefix":{"type":7}})", "linking.compile_prefix.type"},
      {R"("linking":{"compile_prefix":{"type":"system","text":5}})", "linking.compile_prefix.text"},
      {R"("linking":{"compile_prefix":{"type":"system","context_id":[]}})",
       "linking.compile_prefix.context_id"},
      {R"("linking":{"compile_prefix":{"type":"system","tokens":[1]}})", "linking.compile_prefix.tokens"},
      {R"("stream_options":{"include_usage":true})", "stream_options"},
      {R"("stream":true,"stream_options":{"include_usage":"yes"})", "stream_options.include_usage"},
      {R"("stream":true,"stream_options":[])", "stream_options"},
  };
  for (const auto& [field, param] : cases) {
    const absl::Status status = ParseChat(Chat(field), kLimits).status();
    ASSERT_FALSE(status.ok()) << field;
    EXPECT_EQ(CodeOf(status), ErrorCode::kInvalidRequest) << field;
    EXPECT_EQ(ParamOf(status), param) << field;
    EXPECT_FALSE(MessageOf(status).empty());
  }
}

TEST(JsonRequestsTest, EveryKnownButUnsupportedFieldIsRefusedByName) {
  for (const std::string& field : UnsupportedChatFields()) {
    const absl::Status status = ParseChat(Chat("\"" + field + "\":{\"type\":\"x\"}"), kLimits).status();
    ASSERT_FALSE(status.ok()) << field;
    EXPECT_EQ(CodeOf(status), ErrorCode::kUnsupportedParameter) << field;
    EXPECT_EQ(ParamOf(status), field);
  }
}

TEST(JsonRequestsTest, TextThatIsNotStrictJsonIsRefused) {
  const std::string deep(65, '[');
  const std::vector<std::string> cases = {
      "",
      "   ",
      "null",
      "[]",
      "5",
      "\"x\"",
      "{",
      "{:",
      "{\"a\"}",
      "{\"a\":1,}",
      "{'a':1}",
      "{\"a\":1} x",
      "{\"a\":NaN}",
      "{\"a\":Infinity}",
      "{\"a\":-Infinity}",
      "{\"a\":1e999}",
      "{\"a\":-1e999}",
      "{\"a\":01}",
      "{\"a\":+1}",
      "{\"a\":.5}",
      "{\"a\":0x10}",
      "{\"a\":True}",
      "{\"a\":1,\"a\":2}",
      "{\"a\":{\"b\":1,\"b\":1}}",
      "{\"a\":\"\\ud83d\"}",
      "{\"a\":\"\\ude00\"}",
      "{\"a\":\"\\ud83dx\"}",
      "{\"a\":\"\\uZZZZ\"}",
      "{\"a\":\"\\x\"}",
      "{\"a\":\"\xff\"}",
      "{\"a\":\"\xed\xa0\x80\"}",
      "{\"a\":\"\xc0\x80\"}",
      std::string("{\"a\":\"\0\"}", 9),
      "{\"a\":\"line\nbreak\"}",
      "{\"a\":" + deep + std::string(65, ']') + "}",
      std::string(1'000'000, '['),
      "// comment\n{}",
  };
  for (const std::string& body : cases) {
    const absl::Status status = ParseChat(body, kLimits).status();
    ASSERT_FALSE(status.ok()) << body.substr(0, 80);
    EXPECT_EQ(CodeOf(status), ErrorCode::kInvalidRequest) << body.substr(0, 80);
  }
}

TEST(JsonRequestsTest, TheNumberOfValuesIsBounded) {
  std::string body = R"({"tokens":[1)";
  for (int i = 0; i < 100; ++i) body += ",1";
  body += "]}";
  EXPECT_OK(ParseDetokenize(body, {8, 200}));
  EXPECT_FALSE(ParseDetokenize(body, {8, 50}).ok());
}

TEST(JsonRequestsTest, AContextIsCreatedFromTextTokensOrMessages) {
  ASSERT_OK_AND_ASSIGN(
      const CreateContextRequest request,
      ParseCreateContext(
          R"({"model":"m","text":"t","ttl":60,"pin":"soft","pin_until":9,"tags":["a"],"name":"n",
        "compile_prefix":{"type":"system","text":"s","context_id":"c"},"durability":"one","wait":0.5,"x":1})",
          kLimits));
  EXPECT_EQ(request.text, "t");
  EXPECT_EQ(request.ttl, 60);
  EXPECT_EQ(request.pin, "soft");
  EXPECT_EQ(request.pin_until, 9);
  EXPECT_EQ(request.tags, std::vector<std::string>{"a"});
  EXPECT_EQ(request.name, "n");
  ASSERT_TRUE(request.compile_prefix.has_value());
  EXPECT_EQ(request.compile_prefix->type, "system");
  EXPECT_EQ(request.compile_prefix->text, "s");
  EXPECT_EQ(request.compile_prefix->context_id, "c");
  EXPECT_EQ(request.durability, "one");
  EXPECT_EQ(request.wait, 0.5);
  ASSERT_OK_AND_ASSIGN(const CreateContextRequest tokens,
                       ParseCreateContext(R"({"tokens":[1,-2]})", kLimits));
  EXPECT_EQ(tokens.tokens, (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(ParamOf(ParseCreateContext(R"({"tokens":[1,"2"]})", kLimits).status()), "tokens[1]");
  EXPECT_EQ(ParamOf(ParseCreateContext(R"({"text":5})", kLimits).status()), "text");
  EXPECT_EQ(ParamOf(ParseCreateContext(R"({"wait":"5"})", kLimits).status()), "wait");
  EXPECT_EQ(ParamOf(ParseCreateContext(R"({"tags":"a"})", kLimits).status()), "tags");
  EXPECT_EQ(ParamOf(ParseCreateContext(R"({"compile_prefix":"bos"})", kLimits).status()), "compile_prefix");
  EXPECT_EQ(ParamOf(ParseCreateContext(R"({"compile_prefix":{"kind":"bos"}})", kLimits).status()),
            "compile_prefix.kind");
}

TEST(JsonRequestsTest, APatchTellsNullFromAbsent) {
  ASSERT_OK_AND_ASSIGN(const PatchContextRequest clear,
                       ParsePatchContext(R"({"ttl":null,"pin_until":null})", kLimits));
  ASSERT_TRUE(clear.ttl.has_value());
  EXPECT_FALSE(clear.ttl->has_value());
  ASSERT_TRUE(clear.pin_until.has_value());
  EXPECT_FALSE(clear.pin_until->has_value());
  ASSERT_OK_AND_ASSIGN(const PatchContextRequest set, ParsePatchContext(R"({"ttl":5,"tags":[]})", kLimits));
  EXPECT_EQ(set.ttl, std::optional<int64_t>(5));
  EXPECT_FALSE(set.pin_until.has_value());
  EXPECT_TRUE(set.tags.has_value());
  EXPECT_EQ(ParamOf(ParsePatchContext(R"({"text":"new"})", kLimits).status()), "text");
  EXPECT_EQ(ParamOf(ParsePatchContext(R"({"ttl":"5"})", kLimits).status()), "ttl");
}

TEST(JsonRequestsTest, AListQueryIsDecodedAndChecked) {
  ASSERT_OK_AND_ASSIGN(const ListContextsRequest request,
                       ParseListContexts("limit=5&after=ctx_x&order=asc&tag=a%20b+c&unknown=1&name=%C3%A9"));
  EXPECT_EQ(request.limit, 5);
  EXPECT_EQ(request.after, "ctx_x");
  EXPECT_EQ(request.order, "asc");
  EXPECT_EQ(request.tag, "a b c");
  EXPECT_EQ(request.name, "\xc3\xa9");
  EXPECT_FALSE(request.state.has_value());
  for (const char* bad :
       {"limit=x", "limit=", "limit=1.5", "limit=99999999999999999999", "limit=1&limit=2"}) {
    EXPECT_EQ(ParamOf(ParseListContexts(bad).status()), "limit") << bad;
  }
  for (const char* bad : {"tag=%", "tag=%2", "tag=%zz", "tag=%ff", "%ff=1"}) {
    EXPECT_FALSE(ParseListContexts(bad).ok()) << bad;
  }
  EXPECT_TRUE(*ParseDeleteContext("erase=wait"));
  EXPECT_FALSE(*ParseDeleteContext(""));
  EXPECT_EQ(ParamOf(ParseDeleteContext("erase=now").status()), "erase");
}

TEST(JsonRequestsTest, TheSmallCallsAreChecked) {
  ASSERT_OK_AND_ASSIGN(const TokenizeRequest tokenize,
                       ParseTokenize(R"({"content":"x","with_pieces":true})", kLimits));
  EXPECT_TRUE(tokenize.with_pieces);
  EXPECT_EQ(ParamOf(ParseTokenize(R"({})", kLimits).status()), "content");
  EXPECT_EQ(ParamOf(ParseTokenize(R"({"content":["x"]})", kLimits).status()), "content");
  EXPECT_EQ(ParamOf(ParseDetokenize(R"({})", kLimits).status()), "tokens");
  EXPECT_EQ(ParamOf(ParseDetokenize(R"({"tokens":[1.5]})", kLimits).status()), "tokens[0]");
  EXPECT_EQ(ParamOf(ParseApplyTemplate(R"({})", kLimits).status()), "messages");
  EXPECT_OK(ParseApplyTemplate(R"({"messages":[]})", kLimits));
}

}  // namespace
}  // namespace epic
