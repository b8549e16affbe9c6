// From a chat's messages to the pieces of a prompt: contexts resolved, the template rendered, text tokenised.
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
#include "services/router/core/api.h"
#include "services/router/core/checks.h"
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

// REQUIRES: `chat` is what CheckChat made of `request`.
// Errors about a context name its place: kContextNotFound and its kin, kContextModelMismatch. And
// kTemplateRefused; kInvalidRequest (context_ids without a user message; the word `system` where the prompt
// has no head of its own); kContextLengthExceeded where a context does not fit behind the compile prefix.
absl::StatusOr<Prompt> BuildPrompt(const RouterParts& parts, const std::string& tenant,
                                   const ChatRequest& request, const CheckedChat& chat);

// A context that a request names.
struct ContextReference {
  ContentPart part;
  std::string place;  // context_ids[0], messages[2].content[1].id
};

// Messages as the template takes them; `developer` is `system`. The index of a context part is that of its
// reference.
struct TemplateInput {
  std::vector<Message> messages;
  std::vector<ContextReference> references;
};
// REQUIRES: CheckMessages passed.
TemplateInput ToTemplateInput(const std::vector<ChatMessage>& messages);

// The pieces' text as token ids, tokenised as one string. REQUIRES: no piece is a context.
absl::StatusOr<std::vector<TokenId>> EncodePieces(const Tokenizer& tokenizer,
                                                  std::span<const RenderedPiece> pieces);

// The compile that a record's own state speaks of.
CompileJob PrimaryCompile(const ServedModel& model, const ContextRecord& record, std::vector<TokenId> tokens);

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_CORE_PROMPT_H_
