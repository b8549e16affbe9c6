#include "services/router/core/checks.h"

#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/router/core/create_context.h"
#include "services/router/core/testing/world.h"

namespace epic {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr auto kBad = ErrorCode::kInvalidRequest;
constexpr auto kNotSupported = ErrorCode::kUnsupportedParameter;

ChatMessage Says(std::string role, std::string text) {
  return {std::move(role), {{ContentPart::Kind::kText, std::move(text)}}};
}

struct ChatCase {
  const char* name;
  ErrorCode code;
  const char* param;
  std::function<void(ChatRequest&)> change;
};

void ExpectRefusals(const std::vector<ChatCase>& cases) {
  testing::World world;
  for (const ChatCase& c : cases) {
    SCOPED_TRACE(c.name);
    ChatRequest request;
    request.messages = {Says("user", "hi")};
    ASSERT_OK(CheckChat(request, world.parts));
    c.change(request);
    const absl::Status status = CheckChat(request, world.parts).status();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(CodeOf(status), c.code) << status;
    EXPECT_EQ(ParamOf(status), c.param) << status;
  }
}

TEST(ChecksTest, BadMessagesAndSamplingOfAChatAreRefusedByName) {
  ExpectRefusals({
      {"another model", ErrorCode::kModelNotFound, "model", [](auto& r) { r.model = "gpt"; }},
      {"no messages", kBad, "messages", [](auto& r) { r.messages.clear(); }},
      {"tool role", kBad, "messages[0].role", [](auto& r) { r.messages[0].role = "tool"; }},
      {"broken role", kBad, "messages[0].role", [](auto& r) { r.messages[0].role = "\xff"; }},
      {"surrogate", kBad, "messages[0].content",
       [](auto& r) { r.messages = {Says("user", "\xed\xa0\xbd")}; }},
      {"too many messages", kBad, "messages", [](auto& r) { r.messages.resize(3000, Says("user", "x")); }},
      {"too many parts", kBad, "messages",
       [](auto& r) {
         r.messages[0].content.resize(5000, {ContentPart::Kind::kText, "x"});
       }},
      {"too many contexts", kBad, "messages", [](auto& r) { r.context_ids.resize(5000, "ctx"); }},
      {"temperature below", kBad, "temperature", [](auto& r) { r.temperature = -0.1; }},
      {"temperature above", kBad, "temperature", [](auto& r) { r.temperature = 2.1; }},
      {"temperature NaN", kBad, "temperature", [](auto& r) { r.temperature = kNaN; }},
      {"top_p zero", kBad, "top_p", [](auto& r) { r.top_p = 0; }},
      {"top_p above", kBad, "top_p", [](auto& r) { r.top_p = 1.01; }},
      {"top_p NaN", kBad, "top_p", [](auto& r) { r.top_p = kNaN; }},
      {"min_p", kBad, "min_p", [](auto& r) { r.min_p = kInf; }},
      {"top_k", kBad, "top_k", [](auto& r) { r.top_k = -2; }},
      {"presence", kBad, "presence_penalty", [](auto& r) { r.presence_penalty = -2.5; }},
      {"frequency", kBad, "frequency_penalty", [](auto& r) { r.frequency_penalty = kNaN; }},
      {"repetition", kBad, "repetition_penalty", [](auto& r) { r.repetition_penalty = 0; }},
  });
}

TEST(ChecksTest, BadBoundsAndStopsOfAChatAreRefusedByName) {
  ExpectRefusals({
      {"n zero", kBad, "n", [](auto& r) { r.n = 0; }},
      {"n above", kBad, "n", [](auto& r) { r.n = 17; }},
      {"top_logprobs above", kBad, "top_logprobs",
       [](auto& r) {
         r.logprobs = true;
         r.top_logprobs = 21;
       }},
      {"top_logprobs alone", kBad, "top_logprobs", [](auto& r) { r.top_logprobs = 2; }},
      {"max_tokens zero", kBad, "max_tokens", [](auto& r) { r.max_tokens = 0; }},
      {"max_completion_tokens", kBad, "max_completion_tokens",
       [](auto& r) { r.max_completion_tokens = -186; }},
      {"max_tokens beside a good one", kBad, "max_tokens",
       [](auto& r) {
         r.max_tokens = 0;
         r.max_completion_tokens = 5;
       }},
      {"empty stop", kBad, "stop", [](auto& r) { r.stop = {""}; }},
      {"five stops", kBad, "stop",
       [](auto& r) {
         r.stop = {"a", "b", "c", "d", "e"};
       }},
      {"long stop", kBad, "stop", [](auto& r) { r.stop = {std::string(2000, 'x')}; }},
      {"stop not UTF-8", kBad, "stop", [](auto& r) { r.stop = {"\xff"}; }},
      {"stop id", kBad, "stop_token_ids[1]",
       [](auto& r) {
         r.stop_token_ids = {1, 512};
       }},
      {"stop id below", kBad, "stop_token_ids[0]", [](auto& r) { r.stop_token_ids = {-1}; }},
      {"bias id above", kBad, "logit_bias",
       [](auto& r) {
         r.logit_bias = {{"999999999", 1}};
       }},
      {"bias id below", kBad, "logit_bias",
       [](auto& r) {
         r.logit_bias = {{"-1", 1}};
       }},
      {"bias id word", kBad, "logit_bias",
       [](auto& r) {
         r.logit_bias = {{"x", 1}};
       }},
      {"bias id empty", kBad, "logit_bias",
       [](auto& r) {
         r.logit_bias = {{"", 1}};
       }},
      {"bias value", kBad, "logit_bias",
       [](auto& r) {
         r.logit_bias = {{"5", 101}};
       }},
      {"bias NaN", kBad, "logit_bias",
       [](auto& r) {
         r.logit_bias = {{"5", kNaN}};
       }},
  });
}

TEST(ChecksTest, BadLinkingOfAChatIsRefusedByName) {
  ExpectRefusals({
      {"ratio above", kBad, "linking.ratio", [](auto& r) { r.linking.ratio = 1.01; }},
      {"ratio NaN", kBad, "linking.ratio", [](auto& r) { r.linking.ratio = kNaN; }},
      {"ratio of another", kBad, "linking.ratio",
       [](auto& r) {
         r.linking.strategy = "legolink-16";
         r.linking.ratio = 0.15;
       }},
      {"two ratios", kBad, "linking.ratio",
       [](auto& r) {
         r.linking.strategy = "cacheblend-0.15:paper";
         r.linking.ratio = 0.2;
       }},
      {"budget zero", kBad, "linking.budget", [](auto& r) { r.linking.budget = 0; }},
      {"budget above", kBad, "linking.budget", [](auto& r) { r.linking.budget = int64_t{1} << 40; }},
      {"two budgets", kBad, "linking.budget",
       [](auto& r) {
         r.linking.strategy = "query-guided-16";
         r.linking.budget = 8;
       }},
      {"ratio and budget", kBad, "linking.budget",
       [](auto& r) {
         r.linking.ratio = 0.15;
         r.linking.budget = 16;
       }},
      {"auto", kNotSupported, "linking.auto", [](auto& r) { r.linking.auto_mode = "linked"; }},
      {"auto word", kBad, "linking.auto", [](auto& r) { r.linking.auto_mode = "yes"; }},
      {"ratio in the name", kBad, "linking.strategy", [](auto& r) { r.linking.strategy = "cacheblend-1.5"; }},
      {"options of measurements", kBad, "linking.strategy",
       [](auto& r) { r.linking.strategy = "query-guided-16:first=4"; }},
      {"strategy word", kBad, "linking.strategy", [](auto& r) { r.linking.strategy = "fast"; }},
      {"k below", kBad, "linking.k", [](auto& r) { r.linking.k = -1; }},
      {"two ks", kBad, "linking.k",
       [](auto& r) {
         r.linking.strategy = "legolink-16";
         r.linking.k = 8;
       }},
      {"prefix word", kBad, "linking.compile_prefix", [](auto& r) { r.linking.compile_prefix = "eos"; }},
      {"prefix type", kBad, "linking.compile_prefix.type",
       [](auto& r) { r.linking.compile_prefix_object = {.type = "eos"}; }},
      {"system alone", kBad, "linking.compile_prefix",
       [](auto& r) { r.linking.compile_prefix_object = {.type = "system"}; }},
      {"system of two", kBad, "linking.compile_prefix",
       [](auto& r) { r.linking.compile_prefix_object = {.type = "system", .text = "x", .context_id = "y"}; }},
      {"text of bos", kBad, "linking.compile_prefix",
       [](auto& r) { r.linking.compile_prefix_object = {.type = "bos", .text = "x"}; }},
      {"empty prefix text", kBad, "linking.compile_prefix.text",
       [](auto& r) { r.linking.compile_prefix_object = {.type = "system", .text = ""}; }},
      {"prefix text not UTF-8", kBad, "linking.compile_prefix.text",
       [](auto& r) { r.linking.compile_prefix_object = {.type = "system", .text = "\xff"}; }},
      {"prefix twice", kBad, "linking.compile_prefix",
       [](auto& r) {
         r.linking.compile_prefix = "bos";
         r.linking.compile_prefix_object = {.type = "bos"};
       }},
      {"prefix of full", kBad, "linking.compile_prefix",
       [](auto& r) {
         r.linking.strategy = "full";
         r.linking.compile_prefix_object = {.type = "bos"};
       }},
      {"no prefix for legolink-0", kBad, "linking.compile_prefix",
       [](auto& r) {
         r.linking.strategy = "legolink-0";
         r.linking.compile_prefix_object = {.type = "none"};
       }},
      {"on_missing", kBad, "linking.on_missing", [](auto& r) { r.linking.on_missing = "ignore"; }},
  });
}

TEST(ChecksTest, GoodFieldsReachTheEngine) {
  testing::World world;
  ChatRequest request;
  request.messages = {Says("developer", "be brief"), Says("user", ""), Says("assistant", "x")};
  request.temperature = -0.0;
  request.top_k = -1;
  request.seed = -5;
  request.n = 4;
  request.logprobs = true;
  request.top_logprobs = 20;
  request.max_tokens = 10;
  request.max_completion_tokens = 3;
  request.logit_bias = {{"7", -100}};
  request.stop_token_ids = {511};
  ASSERT_OK_AND_ASSIGN(const CheckedChat chat, CheckChat(request, world.parts));
  EXPECT_EQ(chat.sampling.temperature, 0.0f);
  EXPECT_EQ(chat.sampling.top_k, 0);
  EXPECT_EQ(chat.sampling.top_logprobs, 20u);
  EXPECT_EQ(chat.choices, 4u);
  EXPECT_EQ(chat.max_tokens, 3u);
  EXPECT_EQ(chat.stop_tokens, std::vector<TokenId>{511});
  EXPECT_EQ(chat.strategy.Name(), "legolink-16");
}

TEST(ChecksTest, LinkingTakesTheServersDefaultsWhereItNamesNone) {
  testing::World world;
  const auto name = [&](LinkingRequest linking) { return CheckLinking(linking, world.parts)->Name(); };
  EXPECT_EQ(name({}), "legolink-16");
  EXPECT_EQ(name({.strategy = {}, .k = 8}), "legolink-8");
  EXPECT_EQ(name({.strategy = "full"}), "full");
  EXPECT_EQ(name({.strategy = "cacheblend"}), "cacheblend-0.15");
  EXPECT_EQ(name({.strategy = "cacheblend:attention", .ratio = 0.3}), "cacheblend-0.3:attention");
  EXPECT_EQ(name({.strategy = {}, .ratio = 0.2}), "cacheblend-0.2");
  EXPECT_EQ(name({.strategy = "query-guided", .budget = 32}), "query-guided-32");
  EXPECT_EQ(name({.strategy = {}, .budget = 8}), "query-guided-8");
  LinkingRequest zero;
  zero.strategy = "legolink-0";
  EXPECT_EQ(CheckLinking(zero, world.parts)->compile_prefix, CompilePrefixKind::kBos4);
  world.parts.default_compile_prefix = "system";
  EXPECT_EQ(CheckLinking(zero, world.parts)->compile_prefix, CompilePrefixKind::kSystem);
  zero.compile_prefix = "bos";
  EXPECT_EQ(CheckLinking(zero, world.parts)->compile_prefix, CompilePrefixKind::kBos);
}

struct CreateCase {
  const char* name;
  ErrorCode code;
  const char* param;
  std::function<void(CreateContextRequest&)> change;
};

TEST(ChecksTest, EveryBadFieldOfACreateIsRefusedByName) {
  const std::vector<CreateCase> cases = {
      {"another model", ErrorCode::kModelNotFound, "model", [](auto& r) { r.model = "gpt"; }},
      {"nothing", kBad, "text", [](auto& r) { r.text.reset(); }},
      {"two sources", kBad, "text", [](auto& r) { r.tokens = {{1}}; }},
      {"empty text", kBad, "text", [](auto& r) { r.text = ""; }},
      {"text not UTF-8", kBad, "text", [](auto& r) { r.text = "\xff"; }},
      {"empty tokens", kBad, "tokens",
       [](auto& r) {
         r.text.reset();
         r.tokens.emplace();
       }},
      {"empty messages", kBad, "messages",
       [](auto& r) {
         r.text.reset();
         r.messages.emplace();
       }},
      {"ttl zero", kBad, "ttl", [](auto& r) { r.ttl = 0; }},
      {"ttl huge", kBad, "ttl", [](auto& r) { r.ttl = std::numeric_limits<int64_t>::max(); }},
      {"pin", kBad, "pin", [](auto& r) { r.pin = "glue"; }},
      {"pin_until alone", kBad, "pin_until", [](auto& r) { r.pin_until = 1'800'000'000; }},
      {"pin_until past", kBad, "pin_until",
       [](auto& r) {
         r.pin = "hard";
         r.pin_until = 5;
       }},
      {"empty tag", kBad, "tags", [](auto& r) { r.tags = {""}; }},
      {"long tag", kBad, "tags", [](auto& r) { r.tags = {std::string(200, 't')}; }},
      {"many tags", kBad, "tags",
       [](auto& r) {
         for (int i = 0; i < 40; ++i) r.tags.push_back(std::to_string(i));
       }},
      {"long name", kBad, "name", [](auto& r) { r.name = std::string(300, 'n'); }},
      {"durability", kBad, "durability", [](auto& r) { r.durability = "forever"; }},
      {"prefix word", kBad, "compile_prefix.type", [](auto& r) { r.compile_prefix = {.type = "eos"}; }},
      {"system alone", kBad, "compile_prefix", [](auto& r) { r.compile_prefix = {.type = "system"}; }},
      {"text of bos", kBad, "compile_prefix",
       [](auto& r) { r.compile_prefix = {.type = "bos", .text = "x"}; }},
      {"wait above", kBad, "wait", [](auto& r) { r.wait = 56; }},
      {"wait below", kBad, "wait", [](auto& r) { r.wait = -1; }},
      {"wait NaN", kBad, "wait", [](auto& r) { r.wait = kNaN; }},
  };
  testing::World world;
  for (const CreateCase& c : cases) {
    SCOPED_TRACE(c.name);
    CreateContextRequest request;
    request.text = "hello";
    ASSERT_OK(CheckCreate(request, world.parts));
    c.change(request);
    const absl::Status status = CheckCreate(request, world.parts);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(CodeOf(status), c.code) << status;
    EXPECT_EQ(ParamOf(status), c.param) << status;
  }
}

}  // namespace
}  // namespace epic
