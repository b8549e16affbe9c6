#include "services/router/core/create_context.h"

#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/model/utf8.h"
#include "services/router/core/checks.h"
#include "services/router/core/prompt.h"

namespace epic {
namespace {

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

absl::Status CheckPrefix(const CompilePrefixRequest& prefix) {
  EPIC_ASSIGN_OR_RETURN(const CompilePrefixKind kind, ParseCompilePrefix(prefix.type, "compile_prefix.type"));
  const int given = prefix.text.has_value() + prefix.context_id.has_value();
  if (kind != CompilePrefixKind::kSystem && given > 0) {
    return Invalid("text and context_id belong to the type system", "compile_prefix");
  }
  if (kind == CompilePrefixKind::kSystem && given != 1) {
    return Invalid("the type system needs exactly one of text and context_id", "compile_prefix");
  }
  if (prefix.text.has_value() && (prefix.text->empty() || FindInvalidUtf8(*prefix.text).has_value())) {
    return Invalid("the prefix's text must be UTF-8 and not empty", "compile_prefix.text");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenId>> TokensOf(const CreateContextRequest& request, const RouterParts& parts) {
  const Tokenizer& tokenizer = *parts.model->tokenizer;
  if (request.tokens.has_value()) return CheckTokens(*request.tokens, tokenizer.vocab_size(), "tokens");
  if (request.text.has_value()) return tokenizer.Encode(*request.text);
  std::vector<ContentPart> references;
  const std::vector<Message> messages = ToTemplateMessages(*request.messages, &references);
  if (!references.empty()) return Invalid("a context is made of text: it cannot hold contexts", "messages");
  EPIC_ASSIGN_OR_RETURN(const std::vector<RenderedPiece> pieces,
                        parts.model->chat_template->Render(messages, /*add_generation_prompt=*/false));
  EPIC_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, EncodePieces(tokenizer, pieces));
  // BOS belongs to the head of a prompt, also where the template writes it itself.
  if (!tokens.empty() && tokenizer.add_bos() && tokens.front() == tokenizer.bos())
    tokens.erase(tokens.begin());
  return tokens;
}

absl::StatusOr<CompilePrefixSpec> PrefixOf(const RequestScope& scope, const CompilePrefixRequest& request,
                                           const RouterParts& parts) {
  CompilePrefixSpec spec;
  EPIC_ASSIGN_OR_RETURN(spec.kind, ParseCompilePrefix(request.type, "compile_prefix.type"));
  if (request.text.has_value()) {
    EPIC_ASSIGN_OR_RETURN(spec.tokens, parts.model->tokenizer->Encode(*request.text));
  } else if (request.context_id.has_value()) {
    EPIC_ASSIGN_OR_RETURN(spec.context_id, ParseCacheId(*request.context_id, "compile_prefix.context_id"));
    EPIC_ASSIGN_OR_RETURN(const ContextRecord head, parts.store->GetContext(scope.tenant, spec.context_id));
    if (head.model_identity != parts.model->identity) {
      return Error(ErrorCode::kContextModelMismatch, "the prefix's context was compiled for another model",
                   "compile_prefix.context_id");
    }
    EPIC_ASSIGN_OR_RETURN(spec.tokens, parts.store->GetTokens(scope.tenant, spec.context_id));
  }
  if (spec.kind != CompilePrefixKind::kNone &&
      CompilePrefixTokens(*parts.model->tokenizer, spec.kind, spec.tokens).empty()) {
    return Error(ErrorCode::kUnsupportedParameter,
                 "this model has no token for that compile prefix: use none or system",
                 "compile_prefix.type");
  }
  return spec;
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
  if (request.compile_prefix.has_value()) EPIC_RETURN_IF_ERROR(CheckPrefix(*request.compile_prefix));
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
    EPIC_ASSIGN_OR_RETURN(context.compile_prefix, PrefixOf(scope, *request.compile_prefix, parts));
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
