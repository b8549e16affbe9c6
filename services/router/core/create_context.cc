#include "services/router/core/create_context.h"

#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/model/utf8.h"
#include "services/router/core/checks.h"
#include "services/router/core/compile_prefix.h"
#include "services/router/core/prompt.h"

namespace epic {
namespace {

constexpr std::string_view kPrefixParam = "compile_prefix";

absl::Status Invalid(std::string_view message, std::string_view param) {
  return Error(ErrorCode::kInvalidRequest, message, param);
}

absl::Status CheckSource(const CreateContextRequest& request, const RouterParts& parts) {
  const int given = request.text.has_value() + request.tokens.has_value() + request.messages.has_value();
  if (given != 1) return Invalid("give exactly one of text, tokens and messages", "text");
  if (request.text.has_value() && request.text->empty()) return Invalid("text must not be empty", "text");
  if (request.text.has_value() && FindInvalidUtf8(*request.text).has_value()) {
    return Invalid("text must be UTF-8", "text");
  }
  if (request.tokens.has_value() && request.tokens->empty())
    return Invalid("tokens must not be empty", "tokens");
  if (request.messages.has_value()) EPIC_RETURN_IF_ERROR(CheckMessages(*request.messages, parts.limits));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenId>> TokensOf(const CreateContextRequest& request, const RouterParts& parts) {
  const Tokenizer& tokenizer = *parts.model->tokenizer;
  if (request.tokens.has_value()) return CheckTokens(*request.tokens, tokenizer.vocab_size(), "tokens");
  if (request.text.has_value()) return tokenizer.Encode(*request.text);
  const TemplateInput input = ToTemplateInput(*request.messages);
  if (!input.references.empty()) {
    return Invalid("a context is made of text: it cannot hold contexts", input.references.front().place);
  }
  EPIC_ASSIGN_OR_RETURN(const std::vector<RenderedPiece> pieces,
                        parts.model->chat_template->Render(input.messages, /*add_generation_prompt=*/false));
  EPIC_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, EncodePieces(tokenizer, pieces));
  // BOS belongs to the head of a prompt, also where the template writes it itself.
  if (!tokens.empty() && tokenizer.add_bos() && tokens.front() == tokenizer.bos())
    tokens.erase(tokens.begin());
  return tokens;
}

}  // namespace

absl::Status CheckCreate(const CreateContextRequest& request, const RouterParts& parts) {
  const RouterLimits& limits = parts.limits;
  EPIC_RETURN_IF_ERROR(CheckModel(request.model, *parts.model));
  EPIC_RETURN_IF_ERROR(CheckSource(request, parts));
  if (request.ttl.has_value()) {
    EPIC_RETURN_IF_ERROR(CheckRange(*request.ttl, int64_t{1}, limits.ttl_seconds, "ttl"));
  }
  const absl::StatusOr<Pin> pin = ParsePin(request.pin.value_or("none"));
  if (!pin.ok()) return pin.status();
  if (request.pin_until.has_value()) {
    if (*pin == Pin::kNone) return Invalid("pin_until needs a pin of soft or hard", "pin_until");
    const int64_t now = parts.clock->UnixMs() / 1000;
    EPIC_RETURN_IF_ERROR(CheckRange(*request.pin_until, now + 1, now + limits.ttl_seconds, "pin_until"));
  }
  EPIC_RETURN_IF_ERROR(CheckTags(request.tags, limits).status());
  if (request.name.has_value()) EPIC_RETURN_IF_ERROR(CheckName(*request.name, limits));
  EPIC_RETURN_IF_ERROR(ParseDurability(request.durability.value_or("replicas")).status());
  if (request.compile_prefix.has_value()) {
    EPIC_RETURN_IF_ERROR(CheckCompilePrefix(*request.compile_prefix, kPrefixParam).status());
  }
  if (request.wait.has_value()) EPIC_RETURN_IF_ERROR(CheckRange(*request.wait, 0, 55, "wait"));
  return absl::OkStatus();
}

absl::StatusOr<NewContext> MakeNewContext(const RequestScope& scope, const CreateContextRequest& request,
                                          const RouterParts& parts) {
  NewContext context;
  context.tenant = scope.tenant;
  context.model_identity = parts.model->identity;
  context.model = parts.model->alias;
  EPIC_ASSIGN_OR_RETURN(context.tokens, TokensOf(request, parts));
  if (context.tokens.empty()) return Invalid("the text has no tokens", "text");
  if (request.compile_prefix.has_value()) {
    EPIC_ASSIGN_OR_RETURN(context.compile_prefix,
                          ResolveCompilePrefix(parts, scope.tenant, *request.compile_prefix, kPrefixParam));
  }
  const size_t prefix =
      CompilePrefixTokens(*parts.model->tokenizer, context.compile_prefix.kind, context.compile_prefix.tokens)
          .size();
  const uint32_t window = parts.model->engine->config().context_length;
  if (context.tokens.size() + prefix > window) {
    return Error(ErrorCode::kContextLengthExceeded,
                 "the context has " + std::to_string(context.tokens.size() + prefix) +
                     " tokens with its compile prefix, but the model's window has " + std::to_string(window) +
                     ": split the text",
                 request.tokens.has_value() ? "tokens"
                 : request.text.has_value() ? "text"
                                            : "messages");
  }
  context.ttl_seconds = request.ttl;
  EPIC_ASSIGN_OR_RETURN(context.pin, ParsePin(request.pin.value_or("none")));
  if (request.pin_until.has_value()) context.pin_until_ms = *request.pin_until * 1000;
  EPIC_ASSIGN_OR_RETURN(context.tags, CheckTags(request.tags, parts.limits));
  context.name = request.name.value_or("");
  EPIC_ASSIGN_OR_RETURN(context.durability, ParseDurability(request.durability.value_or("replicas")));
  return context;
}

}  // namespace epic
