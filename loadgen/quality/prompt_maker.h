// Questions as token ids in the model's chat template: head, contexts, the user's own text. Pure.
#ifndef EPIC_LOADGEN_QUALITY_PROMPT_MAKER_H_
#define EPIC_LOADGEN_QUALITY_PROMPT_MAKER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/datasets/dataset.h"
#include "services/engine/engine.h"
#include "services/model/chat_template.h"
#include "services/model/tokenizer.h"

namespace epic::loadgen {

struct ChatPrompt {
  std::vector<TokenId> head;  // what the template prints before the first context, with BOS where it belongs
  std::vector<std::vector<TokenId>> chunks;  // each tokenised alone, as a compile does
  std::vector<TokenId> tail;                 // own text, and the template's end

  uint32_t tokens() const;
};

// One user message: the contexts, then question.text. Errors: those of template and tokenizer;
// kUnsupportedParameter for a template that prints something between two contexts of a message.
absl::StatusOr<ChatPrompt> MakePrompt(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                      const Question& question);

// The objects that a prompt reads in one variant of its contexts.
struct PromptObjects {
  std::shared_ptr<const KvObject> head;  // null where the prompt has no head
  std::vector<std::shared_ptr<const KvObject>> chunks;
  std::vector<TokenId> prefix_tokens;  // the compile prefix of `chunks`
};

// Pieces for the engine, contexts in `order`. REQUIRES: order is a permutation of the chunks; objects are
// those of the prompt.
std::vector<PromptPiece> PiecesOf(const ChatPrompt& prompt, std::span<const uint32_t> order,
                                  const PromptObjects& objects);

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_QUALITY_PROMPT_MAKER_H_
