#include "services/router/core/compile_prefix.h"

#include <utility>

#include "common/status/context_place.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/router/core/checks.h"

namespace epic {
namespace {

std::string Field(std::string_view param, std::string_view name) {
  return std::string(param) + "." + std::string(name);
}

// The context whose tokens are the prefix. Errors name `place`.
absl::StatusOr<std::vector<TokenId>> TokensOfContext(const RouterParts& parts, const std::string& tenant,
                                                     const CacheId& id, const std::string& place) {
  const absl::StatusOr<ContextRecord> head = parts.store->GetContext(tenant, id);
  if (!head.ok()) return AtPlace(head.status(), place);
  if (head->hidden) return Error(ErrorCode::kContextNotFound, "no such context", place);
  if (head->model_identity != parts.model->identity) {
    return Error(ErrorCode::kContextModelMismatch, "the prefix's context was compiled for another model",
                 place);
  }
  absl::StatusOr<std::vector<TokenId>> tokens = parts.store->GetTokens(tenant, id);
  if (!tokens.ok()) return AtPlace(tokens.status(), place);
  return tokens;
}

}  // namespace

absl::StatusOr<CompilePrefixSpec> ResolveCompilePrefix(const RouterParts& parts, const std::string& tenant,
                                                       const CompilePrefixRequest& prefix,
                                                       std::string_view param) {
  CompilePrefixSpec spec;
  EPIC_ASSIGN_OR_RETURN(spec.kind, ParseCompilePrefix(prefix.type, Field(param, "type")));
  if (prefix.text.has_value()) {
    EPIC_ASSIGN_OR_RETURN(spec.tokens, parts.model->tokenizer->Encode(*prefix.text));
  } else if (prefix.context_id.has_value()) {
    const std::string place = Field(param, "context_id");
    EPIC_ASSIGN_OR_RETURN(spec.context_id, ParseCacheId(*prefix.context_id, place));
    EPIC_ASSIGN_OR_RETURN(spec.tokens, TokensOfContext(parts, tenant, spec.context_id, place));
  }
  if (spec.kind != CompilePrefixKind::kNone &&
      CompilePrefixTokens(*parts.model->tokenizer, spec.kind, spec.tokens).empty()) {
    return Error(ErrorCode::kUnsupportedParameter,
                 "this model has no token for that compile prefix: use none or system", Field(param, "type"));
  }
  return spec;
}

}  // namespace epic
