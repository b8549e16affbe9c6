// The request parsers over mutated JSON from fixed seeds: any bytes give a request or an error of ours, and
// what was parsed survives being printed into an error. Each seed is printed on failure and replays by
// itself.
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/random.h"
#include "common/http/error_answer.h"
#include "common/http/target.h"
#include "common/status/error.h"
#include "services/router/http/json_requests.h"
#include "services/router/http/routes.h"

namespace epic {
namespace {

const std::vector<std::string>& Corpus() {
  static const auto& corpus = *new std::vector<std::string>{
      R"({"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"n":2})",
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"context","id":"ctx_1"}]}]})",
      R"({"messages":[{"role":"system","content":"\ud83d\ude00"}],"logit_bias":{"1":2.5},"stop":["a"]})",
      R"({"messages":[],"linking":{"strategy":"legolink-16","k":16},"temperature":0.5,"seed":-1})",
      R"({"text":"hello","ttl":60,"pin":"soft","tags":["a","b"],"compile_prefix":{"type":"bos"},"wait":1.5})",
      R"({"tokens":[1,2,3,4294967296,-5],"name":"n"})",
      R"({"content":"x","with_pieces":true,"deep":[[[[{"a":{"b":null}}]]]]})",
      R"(limit=5&after=ctx_x&tag=a%20b&order=asc&state=ready)",
  };
  return corpus;
}

std::string Mutate(Rng& rng) {
  static constexpr std::string_view kTokens[] = {
      "null", "true",     "1e999",  "NaN", "-0",     "\"\\ud83d\"",  "[",
      "{",    "]",        "}",      ",",   ":",      "\"",           "\\",
      "%ff",  "messages", "\"id\"", "0x1", "1e-400", "\xed\xa0\x80", "\xf0\x9f"};
  std::string text = Corpus()[rng.Below(Corpus().size())];
  for (uint64_t edits = 1 + rng.Below(8); edits > 0; --edits) {
    const size_t at = rng.Below(text.size() + 1);
    switch (rng.Below(5)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(rng.Below(256));
        break;
      case 1:
        text.erase(at, 1 + rng.Below(12));
        break;
      case 2:
        text.insert(at, kTokens[rng.Below(std::size(kTokens))]);
        break;
      case 3:
        text.insert(at, text.substr(rng.Below(text.size() + 1), rng.Below(40)));
        break;
      default: {
        const std::string& other = Corpus()[rng.Below(Corpus().size())];
        text = text.substr(0, at) + other.substr(rng.Below(other.size()));
      }
    }
  }
  return text;
}

void ExpectErrorOfOurs(const absl::Status& status) {
  if (status.ok()) return;
  const ErrorCode code = CodeOf(status);
  EXPECT_TRUE(code == ErrorCode::kInvalidRequest || code == ErrorCode::kUnsupportedParameter)
      << status.ToString();
  const nlohmann::json body = nlohmann::json::parse(ErrorBody(status), nullptr, false);
  ASSERT_TRUE(body.is_object());
  EXPECT_EQ(body["error"].size(), 4u);
}

TEST(JsonRequestsFuzzTest, AnyBytesGiveARequestOrAnErrorOfOurs) {
  const JsonRequestLimits limits{16, 1000};
  for (uint64_t seed = 1; seed <= 5000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const std::string text = Mutate(rng);
    ExpectErrorOfOurs(ParseChat(text, limits).status());
    ExpectErrorOfOurs(ParseCreateContext(text, limits).status());
    ExpectErrorOfOurs(ParsePatchContext(text, limits).status());
    ExpectErrorOfOurs(ParseListContexts(text).status());
    ExpectErrorOfOurs(ParseDeleteContext(text).status());
    ExpectErrorOfOurs(ParseTokenize(text, limits).status());
    ExpectErrorOfOurs(ParseDetokenize(text, limits).status());
    ExpectErrorOfOurs(ParseApplyTemplate(text, limits).status());
    ExpectErrorOfOurs(SplitTarget(text).status());
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace epic
