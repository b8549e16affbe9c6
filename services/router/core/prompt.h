// From messages to the pieces of a prompt: contexts resolved, the template rendered, text tokenised.
//
// Text of users is never parsed for control tokens; template text is. Runs between two contexts are tokenised
// as one string. May block on the disk (records and token ids come from the store).
#ifndef EPIC_SERVICES_ROUTER_CORE_PROMPT_H_
#define EPIC_SERVICES_ROUTER_CORE_PROMPT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/storage/context_record.h"
#include "services/engine/strategy.h"
#include "services/router/core/api.h"
#include "services/router/core/router_parts.h"
#include "services/worker_api/compiler.h"
#include "services/worker_api/linker.h"

namespace epic {

struct Prompt {
  std::vector<LinkPiece> pieces;
  uint32_t tokens = 0;
  uint32_t contexts = 0;           // pieces that are contexts
  bool waits_for_compile = false;  // a context of it is still `compiling`
};

// Errors: kContextNotFound and its kin, kContextModelMismatch, kTemplateRefused, kInvalidRequest (context_ids
// without a user message; a `system` prefix where the prompt has no head of its own).
absl::StatusOr<Prompt> BuildPrompt(const RouterParts& parts, const std::string& tenant,
                                   const std::vector<ChatMessage>& messages,
                                   const std::vector<std::string>& context_ids, const LinkStrategy& strategy,
                                   OnMissing on_missing);

// The messages as the template takes them; `developer` becomes `system`. Context parts get the index of their
// order; `references`, if not null, receives them. REQUIRES: CheckMessages passed.
std::vector<Message> ToTemplateMessages(const std::vector<ChatMessage>& messages,
                                        std::vector<ContentPart>* references);

// The pieces' text as token ids, tokenised as one string. REQUIRES: no piece is a context.
absl::StatusOr<std::vector<TokenId>> EncodePieces(const Tokenizer& tokenizer,
                                                  std::span<const RenderedPiece> pieces);

// The compile that a record's own state speaks of.
CompileJob PrimaryCompile(const ServedModel& model, const ContextRecord& record, std::vector<TokenId> tokens);

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_CORE_PROMPT_H_
