#include "services/engine/testing/batch_harness.h"

#include <bit>
#include <cstring>
#include <utility>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/testing/status_matchers.h"

namespace epic::testing {
namespace {

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

bool HaveSameBytes(const GeneratedToken& a, const GeneratedToken& b) {
  if (a.token != b.token || Bits(a.logprob) != Bits(b.logprob)) return false;
  if (a.top_logprobs.size() != b.top_logprobs.size()) return false;
  for (size_t i = 0; i < a.top_logprobs.size(); ++i) {
    const TokenLogprob& x = a.top_logprobs[i];
    const TokenLogprob& y = b.top_logprobs[i];
    if (x.token != y.token || Bits(x.logprob) != Bits(y.logprob)) return false;
  }
  return true;
}

}  // namespace

LinkRequest SampledLink(std::vector<PromptPiece> pieces, const LinkStrategy& strategy, uint32_t max_tokens) {
  LinkRequest request{.pieces = std::move(pieces), .strategy = strategy};
  request.sampling.temperature = 0.9f;
  request.sampling.logprobs = true;
  request.sampling.top_logprobs = 20;
  request.max_tokens = max_tokens;
  return request;
}

EngineHold::EngineHold(Engine* engine) : sink_(std::make_shared<CollectLink>(1)) {
  sink_->on_token = [this](const GeneratedToken&) {
    held_.Set(absl::OkStatus());
    EXPECT_OK(open_.Wait());
    return true;
  };
  EXPECT_OK(engine->SubmitLink(SampledLink({Text({1})}, {StrategyKind::kFull, 0}, 1), sink_));
  EXPECT_OK(held_.Wait());
}

void EngineHold::Release() {
  open_.Set(absl::OkStatus());
  EXPECT_OK(sink_->done.Wait());
  sink_->on_token = nullptr;
}

std::shared_ptr<CollectLink> DecodeAmong(Engine* engine, const std::vector<PromptPiece>& pieces,
                                         const LinkStrategy& strategy, uint32_t tokens, uint32_t batch) {
  uint64_t others_tokens = 0;
  std::vector<std::shared_ptr<CollectLink>> others;
  const auto submit_others = [&](std::vector<PromptPiece> prompt, uint32_t choices) {
    if (choices == 0) return;
    LinkRequest request = SampledLink(std::move(prompt), strategy, tokens);
    request.choices = choices;
    request.sampling.seed = 1000;
    // To sort a whole vocabulary for each of hundreds of rows takes longer than to compute them.
    request.sampling.top_k = 20;
    request.sampling.logprobs = false;
    auto sink = std::make_shared<CollectLink>(choices);
    sink->on_token = [&others_tokens](const GeneratedToken&) {
      ++others_tokens;
      return true;
    };
    EXPECT_OK(engine->SubmitLink(std::move(request), sink));
    others.push_back(std::move(sink));
  };
  const uint32_t vocab = engine->config().vocab;
  std::vector<PromptPiece> same_object = {Text(RandomTokens(70, 11, vocab))};
  for (const PromptPiece& piece : pieces) {
    if (piece.object != nullptr && same_object.size() == 1) same_object.push_back(piece);
  }
  same_object.push_back(Text(RandomTokens(71, 6, vocab)));

  EngineHold hold(engine);
  submit_others(std::move(same_object), batch / 2);
  auto sink = std::make_shared<CollectLink>(1);
  std::vector<uint64_t> seen;
  sink->on_token = [&](const GeneratedToken&) {
    seen.push_back(others_tokens);
    return true;
  };
  EXPECT_OK(engine->SubmitLink(SampledLink(pieces, strategy, tokens), sink));
  submit_others({Text(RandomTokens(72, 37, vocab))}, batch - 1 - batch / 2);
  hold.Release();
  EXPECT_OK(sink->done.Wait());
  for (const auto& other : others) {
    EXPECT_OK(other->done.Wait());
    other->on_token = nullptr;
  }
  sink->on_token = nullptr;
  // Between two of its tokens each of the others had one.
  EXPECT_EQ(seen.size(), tokens);
  for (size_t i = 1; i < seen.size(); ++i) EXPECT_EQ(seen[i] - seen[i - 1], batch - 1) << "token " << i;
  return sink;
}

bool HaveSameBytes(const CollectLink& a, const CollectLink& b) {
  if (a.tokens.size() != b.tokens.size()) return false;
  for (size_t choice = 0; choice < a.tokens.size(); ++choice) {
    if (a.tokens[choice].size() != b.tokens[choice].size()) return false;
    for (size_t i = 0; i < a.tokens[choice].size(); ++i) {
      if (!HaveSameBytes(a.tokens[choice][i], b.tokens[choice][i])) return false;
    }
  }
  return true;
}

PromptPiece WithOneBitFlipped(const PromptPiece& piece, uint32_t layer, uint32_t row) {
  const KvLayout& layout = piece.object->layout();
  EPIC_CHECK(row < layout.tokens);
  auto copy = std::make_shared<PlainObject>(layout);
  for (uint32_t l = 0; l < layout.layers; ++l) {
    std::memcpy(copy->MutableLayer(l).data(), piece.object->Layer(l).data(), layout.LayerBytes());
  }
  // The lowest bit of the exponent of the row's first value in V: no rounding to bf16 hides it.
  const size_t value_bytes = SizeOf(layout.dtype);
  const size_t at = layout.LayerBytes() / 2 + size_t{row} * layout.head_dim * value_bytes;
  copy->MutableLayer(layer)[at + (value_bytes == 4 ? 2 : 0)] ^= std::byte{0x80};
  PromptPiece flipped = piece;
  flipped.object = std::move(copy);
  return flipped;
}

}  // namespace epic::testing
