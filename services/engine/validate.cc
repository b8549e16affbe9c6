#include "services/engine/validate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/engine/link_policy.h"
#include "services/engine/row_plan.h"

namespace epic {
namespace {

constexpr uint32_t kMaxTopLogprobs = 20;

absl::Status Invalid(std::string_view message, std::string_view param) {
  return Error(ErrorCode::kInvalidRequest, message, param);
}

absl::Status CheckIds(const RequestLimits& limits, std::span<const TokenId> tokens, std::string_view param) {
  const auto bad =
      std::find_if(tokens.begin(), tokens.end(), [&](TokenId id) { return id >= limits.config->vocab; });
  if (bad == tokens.end()) return absl::OkStatus();
  return Invalid("token id " + std::to_string(*bad) + " is outside the vocabulary of " +
                     std::to_string(limits.config->vocab),
                 param);
}

absl::Status CheckLength(const RequestLimits& limits, uint64_t prompt, uint64_t more, std::string_view what) {
  if (prompt + more <= limits.config->context_length) return absl::OkStatus();
  return Error(ErrorCode::kContextLengthExceeded,
               "this model's context length is " + std::to_string(limits.config->context_length) +
                   " tokens, but " + std::to_string(prompt + more) + " were asked for (" +
                   std::to_string(prompt) + " in the prompt, " + std::to_string(more) + " " +
                   std::string(what) + "): shorten one of them",
               "messages");
}

absl::Status CheckObject(const RequestLimits& limits, const PromptPiece& piece) {
  if (piece.object == nullptr) return absl::OkStatus();
  const KvLayout& layout = piece.object->layout();
  if (!limits.shape.Matches(layout)) {
    return Invalid("a context was compiled for another model or KV type: compile it again", "context_ids");
  }
  if (layout.tokens != piece.tokens.size() || layout.first_position != piece.prefix_tokens.size()) {
    return Invalid("a context's object holds other rows than its tokens: compile it again", "context_ids");
  }
  if (layout.first_position + uint64_t{layout.tokens} > limits.config->context_length) {
    return Invalid("a context's object is longer than the model's context length", "context_ids");
  }
  return absl::OkStatus();
}

// legolink-0 reads objects behind a dropped prefix; a plain one would silently be `naive`.
absl::Status CheckVariants(std::span<const PromptPiece> pieces, const LinkPolicy& policy) {
  if (!policy.refuses_plain_objects()) return absl::OkStatus();
  const std::vector<TokenId> tokens = JoinTokens(pieces);
  size_t offset = 0;
  for (const PromptPiece& piece : pieces) {
    if (piece.object != nullptr && piece.prefix_tokens.empty() && !piece.tokens.empty() &&
        !IsExactInPlace(tokens, offset, piece)) {
      return Invalid(
          "legolink-0 reads contexts compiled behind a prefix, and one was compiled without: "
          "compile it in the variant bos4, bos or system",
          "linking.compile_prefix");
    }
    offset += piece.tokens.size();
  }
  return absl::OkStatus();
}

// The prompt's length, once its pieces are in order.
absl::StatusOr<uint64_t> CheckPieces(const RequestLimits& limits, std::span<const PromptPiece> pieces,
                                     const LinkStrategy& strategy) {
  uint64_t total = 0;
  for (const PromptPiece& piece : pieces) {
    total += piece.tokens.size();
    EPIC_RETURN_IF_ERROR(CheckIds(limits, piece.tokens, "messages"));
    EPIC_RETURN_IF_ERROR(CheckIds(limits, piece.prefix_tokens, "linking.compile_prefix"));
    EPIC_RETURN_IF_ERROR(CheckObject(limits, piece));
  }
  if (total == 0) return Invalid("the prompt is empty: give at least one token", "messages");
  const std::unique_ptr<const LinkPolicy> policy = LinkPolicy::Make(strategy);
  if (policy->highest_layer() >= limits.config->layers) {
    return Invalid("the strategy names layer " + std::to_string(policy->highest_layer()) +
                       ", and the model has layers 0.." + std::to_string(limits.config->layers - 1),
                   "linking.strategy");
  }
  EPIC_RETURN_IF_ERROR(CheckVariants(pieces, *policy));
  return total;
}

absl::Status CheckRange(float value, float low, float high, std::string_view param) {
  if (value >= low && value <= high) return absl::OkStatus();  // NaN fails
  return Invalid(std::string(param) + " must be in " + std::to_string(low) + ".." + std::to_string(high),
                 param);
}

absl::Status CheckSampling(const RequestLimits& limits, const SamplingParams& params) {
  constexpr float kAny = 1e6f;
  EPIC_RETURN_IF_ERROR(CheckRange(params.temperature, 0, kAny, "temperature"));
  EPIC_RETURN_IF_ERROR(CheckRange(params.min_p, 0, 1, "min_p"));
  EPIC_RETURN_IF_ERROR(CheckRange(params.presence_penalty, -kAny, kAny, "presence_penalty"));
  EPIC_RETURN_IF_ERROR(CheckRange(params.frequency_penalty, -kAny, kAny, "frequency_penalty"));
  if (!(params.top_p > 0 && params.top_p <= 1))
    return Invalid("top_p must be above 0 and at most 1", "top_p");
  if (!(params.repetition_penalty > 0 && params.repetition_penalty <= kAny)) {
    return Invalid("repetition_penalty must be above 0", "repetition_penalty");
  }
  if (params.top_logprobs > kMaxTopLogprobs) return Invalid("top_logprobs must be in 0..20", "top_logprobs");
  for (const auto& [id, bias] : params.logit_bias) {
    const TokenId ids[] = {id};
    EPIC_RETURN_IF_ERROR(CheckIds(limits, ids, "logit_bias"));
    if (!std::isfinite(bias)) return Invalid("logit_bias values must be finite numbers", "logit_bias");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateLink(const RequestLimits& limits, const LinkRequest& request) {
  EPIC_ASSIGN_OR_RETURN(const uint64_t prompt, CheckPieces(limits, request.pieces, request.strategy));
  if (request.max_tokens == 0) return Invalid("max_tokens must be at least 1", "max_tokens");
  EPIC_RETURN_IF_ERROR(CheckLength(limits, prompt, request.max_tokens, "to generate"));
  if (request.choices == 0 || request.choices > limits.max_sequences) {
    return Invalid("n must be in 1.." + std::to_string(limits.max_sequences), "n");
  }
  return CheckSampling(limits, request.sampling);
}

absl::Status ValidateCompile(const RequestLimits& limits, const CompileRequest& request) {
  if (request.tokens.empty()) return Invalid("a context needs at least one token", "text");
  EPIC_RETURN_IF_ERROR(CheckIds(limits, request.tokens, "text"));
  EPIC_RETURN_IF_ERROR(CheckIds(limits, request.prefix_tokens, "compile_prefix"));
  return CheckLength(limits, request.tokens.size(), request.prefix_tokens.size(), "in its compile prefix");
}

absl::Status ValidateScore(const RequestLimits& limits, const ScoreRequest& request) {
  EPIC_ASSIGN_OR_RETURN(const uint64_t prompt, CheckPieces(limits, request.pieces, request.strategy));
  if (request.continuation.empty()) return Invalid("a score needs a continuation", "continuation");
  EPIC_RETURN_IF_ERROR(CheckIds(limits, request.continuation, "continuation"));
  return CheckLength(limits, prompt, request.continuation.size(), "in the continuation");
}

}  // namespace epic
