#include "services/router/core/chat_job.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/engine/link_policy.h"
#include "services/router/core/checks.h"
#include "services/router/core/prompt.h"

namespace epic {
namespace {

absl::Status TooLong(uint32_t prompt, std::optional<uint32_t> max_tokens, uint32_t window,
                     const std::string& param) {
  std::string message = "the prompt has " + std::to_string(prompt) + " tokens";
  if (max_tokens.has_value()) message += " and " + param + " asks for " + std::to_string(*max_tokens);
  message += ", but the model's window has " + std::to_string(window) + ": shorten the one or the other";
  return Error(ErrorCode::kContextLengthExceeded, message, max_tokens.has_value() ? param : "messages");
}

Digest NamedPrefix(const ChatRequest& request, const std::vector<LinkPiece>& pieces) {
  if (!request.linking.compile_prefix_object.has_value()) return {};
  const auto context = std::find_if(pieces.begin(), pieces.end(), [](const LinkPiece& piece) {
    return piece.kind == LinkPiece::Kind::kContext;
  });
  return context == pieces.end() ? Digest() : context->variant.prefix_tokens;
}

}  // namespace

absl::StatusOr<ChatJob> MakeChatJob(const RouterParts& parts, const std::string& tenant,
                                    const ChatRequest& request) {
  EPIC_ASSIGN_OR_RETURN(CheckedChat chat, CheckChat(request, parts));
  EPIC_ASSIGN_OR_RETURN(Prompt prompt, BuildPrompt(parts, tenant, request, chat));
  const uint32_t window = parts.model->engine->config().context_length;
  if (prompt.tokens >= window || (chat.max_tokens.has_value() && *chat.max_tokens > window - prompt.tokens)) {
    return TooLong(prompt.tokens, chat.max_tokens, window, chat.max_tokens_param);
  }
  const bool reads = LinkPolicy::Make(chat.strategy)->reads_objects();
  const uint32_t left = window - prompt.tokens;
  ChatJob job;
  job.has_seed = chat.has_seed;
  job.named_prefix = NamedPrefix(request, prompt.pieces);
  job.waits_for_compile = reads && prompt.waits_for_compile;
  job.link.tenant = tenant;
  job.link.pieces = std::move(prompt.pieces);
  job.link.strategy = chat.strategy;
  job.link.sampling = std::move(chat.sampling);
  job.link.choices = chat.choices;
  job.link.max_tokens =
      chat.max_tokens.value_or(std::min(left, static_cast<uint32_t>(parts.limits.default_max_tokens)));
  job.link.stop_tokens = std::move(chat.stop_tokens);
  job.link.stop = request.stop;
  job.link.ignore_eos = request.ignore_eos;
  return job;
}

}  // namespace epic
