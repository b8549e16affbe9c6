#include "loadgen/quality/prompt_maker.h"

#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic::loadgen {
namespace {

Message UserMessage(const Question& question) {
  Message message;
  message.role = "user";
  for (uint32_t i = 0; i < question.chunks.size(); ++i) {
    message.parts.push_back({.kind = MessagePart::Kind::kContext, .text = {}, .context_index = i});
  }
  message.parts.push_back({.kind = MessagePart::Kind::kText, .text = question.text, .context_index = 0});
  return message;
}

absl::StatusOr<std::vector<TokenId>> Encode(const Tokenizer& tokenizer,
                                            std::span<const RenderedPiece> pieces) {
  std::vector<TextRun> runs;
  for (const RenderedPiece& piece : pieces) {
    runs.push_back({piece.text, piece.kind == RenderedPiece::Kind::kTemplate});
  }
  return tokenizer.Encode(std::span<const TextRun>(runs));
}

void AddBos(const Tokenizer& tokenizer, std::vector<TokenId>* head) {
  const std::optional<TokenId> bos = tokenizer.bos();
  if (!tokenizer.add_bos() || !bos.has_value()) return;
  if (head->empty() || head->front() != *bos) head->insert(head->begin(), *bos);
}

}  // namespace

uint32_t ChatPrompt::tokens() const {
  size_t tokens = head.size() + tail.size();
  for (const std::vector<TokenId>& chunk : chunks) tokens += chunk.size();
  return static_cast<uint32_t>(tokens);
}

absl::StatusOr<ChatPrompt> MakePrompt(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                      const Question& question) {
  const Message message = UserMessage(question);
  EPIC_ASSIGN_OR_RETURN(const std::vector<RenderedPiece> rendered,
                        chat_template.Render(std::span(&message, 1), /*add_generation_prompt=*/true));
  const auto is_context = [&](size_t i) { return rendered[i].kind == RenderedPiece::Kind::kContext; };
  size_t first = 0;
  while (first < rendered.size() && !is_context(first)) ++first;
  size_t last = first;
  while (last < rendered.size() && is_context(last)) ++last;
  ChatPrompt prompt;
  for (size_t i = first; i < last; ++i) {
    EPIC_ASSIGN_OR_RETURN(std::vector<TokenId> chunk,
                          tokenizer.Encode(question.chunks[rendered[i].context_index]));
    if (chunk.empty()) return absl::InvalidArgumentError("a context of the question has no token");
    prompt.chunks.push_back(std::move(chunk));
  }
  if (prompt.chunks.size() != question.chunks.size()) {
    return Error(ErrorCode::kUnsupportedParameter,
                 "the model's chat template prints text between two contexts of one message");
  }
  const std::span<const RenderedPiece> pieces(rendered);
  EPIC_ASSIGN_OR_RETURN(prompt.head, Encode(tokenizer, pieces.first(first)));
  AddBos(tokenizer, &prompt.head);
  EPIC_ASSIGN_OR_RETURN(prompt.tail, Encode(tokenizer, pieces.subspan(last)));
  return prompt;
}

std::vector<PromptPiece> PiecesOf(const ChatPrompt& prompt, std::span<const uint32_t> order,
                                  const PromptObjects& objects) {
  EPIC_CHECK(order.size() == prompt.chunks.size() && objects.chunks.size() == prompt.chunks.size());
  std::vector<PromptPiece> pieces;
  const auto add = [&pieces](const std::vector<TokenId>& tokens) -> PromptPiece& {
    PromptPiece& piece = pieces.emplace_back();
    piece.tokens = tokens;
    return piece;
  };
  if (!prompt.head.empty()) {
    PromptPiece& head = add(prompt.head);
    head.object = objects.head;
    head.is_context = false;
  }
  for (const uint32_t index : order) {
    PromptPiece& chunk = add(prompt.chunks[index]);
    chunk.object = objects.chunks[index];
    chunk.prefix_tokens = objects.prefix_tokens;
  }
  if (!prompt.tail.empty()) add(prompt.tail);
  return pieces;
}

}  // namespace epic::loadgen
