#include "services/engine/validate.h"

#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/engine/testing/plain_object.h"

namespace epic {
namespace {

const ModelConfig kConfig{
    .layers = 2, .heads = 2, .kv_heads = 1, .head_dim = 4, .vocab = 100, .context_length = 64};
const RequestLimits kLimits{.config = &kConfig,
                            .shape = {.layers = 2, .kv_heads = 1, .head_dim = 4, .dtype = KvDtype::kBf16},
                            .max_sequences = 4};

KvLayout Layout(uint32_t tokens, uint32_t first_position = 0) {
  return {.layers = 2,
          .kv_heads = 1,
          .head_dim = 4,
          .tokens = tokens,
          .dtype = KvDtype::kBf16,
          .first_position = first_position};
}

PromptPiece Chunk(const KvLayout& layout, size_t tokens, size_t prefix = 0) {
  return {.tokens = std::vector<TokenId>(tokens, 1),
          .object = std::make_shared<testing::PlainObject>(layout),
          .prefix_tokens = std::vector<TokenId>(prefix, 2)};
}

LinkRequest Good() {
  LinkRequest request;
  request.pieces = {Chunk(Layout(5), 5), {.tokens = {1, 2, 3}}};
  request.max_tokens = 8;
  return request;
}

TEST(ValidateTest, AGoodRequestPasses) {
  EXPECT_OK(ValidateLink(kLimits, Good()));
  LinkRequest to_the_brim = Good();
  to_the_brim.max_tokens = 56;
  EXPECT_OK(ValidateLink(kLimits, to_the_brim));
  EXPECT_OK(ValidateCompile(kLimits, {.prefix_tokens = {1}, .tokens = std::vector<TokenId>(63, 1)}));
  EXPECT_OK(ValidateScore(kLimits, {.pieces = Good().pieces, .continuation = {1}}));
}

struct BadLink {
  std::string_view param;
  std::function<void(LinkRequest*)> spoil;
};

TEST(ValidateTest, EveryFaultOfALinkNamesItsParameter) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const BadLink cases[] = {
      {"messages", [](LinkRequest* r) { r->pieces.clear(); }},
      {"messages", [](LinkRequest* r) { r->pieces[1].tokens[0] = 100; }},
      {"linking.compile_prefix",
       [](LinkRequest* r) {
         r->pieces.push_back(Chunk(Layout(1, 1), 1, 1));
         r->pieces.back().prefix_tokens[0] = 1000;
       }},
      {"max_tokens", [](LinkRequest* r) { r->max_tokens = 0; }},
      {"n", [](LinkRequest* r) { r->choices = 0; }},
      {"n", [](LinkRequest* r) { r->choices = 5; }},
      {"context_ids", [](LinkRequest* r) { r->pieces[0] = Chunk(Layout(6), 5); }},
      {"context_ids", [](LinkRequest* r) { r->pieces[0] = Chunk(Layout(5, 3), 5); }},
      {"context_ids", [](LinkRequest* r) { r->pieces[0] = Chunk(Layout(5, 60), 5, 60); }},
      {"context_ids",
       [](LinkRequest* r) {
         KvLayout other = Layout(5);
         other.dtype = KvDtype::kF32;
         r->pieces[0] = Chunk(other, 5);
       }},
      {"context_ids",
       [](LinkRequest* r) {
         KvLayout other = Layout(5);
         other.kv_heads = 2;
         r->pieces[0] = Chunk(other, 5);
       }},
      {"linking.compile_prefix",
       [](LinkRequest* r) {
         r->strategy = {StrategyKind::kLegoLink, 0, CompilePrefixKind::kBos4};
         r->pieces.insert(r->pieces.begin(), {.tokens = {1}});
       }},
      {"temperature", [nan](LinkRequest* r) { r->sampling.temperature = nan; }},
      {"temperature", [](LinkRequest* r) { r->sampling.temperature = -1; }},
      {"top_p", [](LinkRequest* r) { r->sampling.top_p = 0; }},
      {"top_p", [nan](LinkRequest* r) { r->sampling.top_p = nan; }},
      {"min_p", [](LinkRequest* r) { r->sampling.min_p = 1.5f; }},
      {"presence_penalty", [infinity](LinkRequest* r) { r->sampling.presence_penalty = infinity; }},
      {"frequency_penalty", [nan](LinkRequest* r) { r->sampling.frequency_penalty = nan; }},
      {"repetition_penalty", [](LinkRequest* r) { r->sampling.repetition_penalty = 0; }},
      {"top_logprobs", [](LinkRequest* r) { r->sampling.top_logprobs = 21; }},
      {"logit_bias",
       [](LinkRequest* r) {
         r->sampling.logit_bias = {{100, 1.0f}};
       }},
      {"logit_bias",
       [nan](LinkRequest* r) {
         r->sampling.logit_bias = {{1, nan}};
       }},
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    LinkRequest request = Good();
    cases[i].spoil(&request);
    const absl::Status status = ValidateLink(kLimits, request);
    ASSERT_FALSE(status.ok()) << i;
    EXPECT_EQ(CodeOf(status), ErrorCode::kInvalidRequest) << i;
    EXPECT_EQ(ParamOf(status), cases[i].param) << i << " " << status;
  }
}

TEST(ValidateTest, AboveTheContextBothNumbersAreNamed) {
  LinkRequest request = Good();
  request.max_tokens = 57;
  const absl::Status status = ValidateLink(kLimits, request);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(CodeOf(status), ErrorCode::kContextLengthExceeded);
  EXPECT_NE(MessageOf(status).find("64"), std::string::npos);
  EXPECT_NE(MessageOf(status).find("65"), std::string::npos);
  const absl::Status compile =
      ValidateCompile(kLimits, {.prefix_tokens = {1, 2}, .tokens = std::vector<TokenId>(63, 1)});
  ASSERT_FALSE(compile.ok());
  EXPECT_EQ(CodeOf(compile), ErrorCode::kContextLengthExceeded);
}

TEST(ValidateTest, EmptyChunksAndContinuationsAreRefused) {
  EXPECT_FALSE(ValidateCompile(kLimits, {}).ok());
  EXPECT_FALSE(ValidateCompile(kLimits, {.tokens = {100}}).ok());
  EXPECT_FALSE(ValidateScore(kLimits, {.pieces = Good().pieces}).ok());
}

}  // namespace
}  // namespace epic
