// A tokenizer whose tokens are bytes, and a ChatML template: what tests of the cores need of a model's text
// side. Immutable; thread-safe.
//
// Ids 0..255 are bytes; 256 <|im_start|>, 257 <|im_end|> (ends a turn), 258 <|endoftext|> (BOS and EOS).
#ifndef EPIC_SERVICES_WORKER_API_TESTING_FAKE_TEXT_H_
#define EPIC_SERVICES_WORKER_API_TESTING_FAKE_TEXT_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/model/chat_template.h"
#include "services/model/tokenizer.h"

namespace epic::testing {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kImStart = 256, kImEnd = 257, kEndOfText = 258;
  explicit ByteTokenizer(bool add_bos = false) : add_bos_(add_bos) {}

  using Tokenizer::Encode;
  absl::StatusOr<std::vector<TokenId>> Encode(std::span<const TextRun> runs) const override;
  std::string TokenBytes(TokenId id, bool with_special) const override;
  std::string Decode(std::span<const TokenId> ids, bool with_special) const override;
  uint32_t vocab_size() const override { return 512; }
  bool IsControl(TokenId id) const override { return id >= kImStart && id <= kEndOfText; }
  bool IsEndOfGeneration(TokenId id) const override { return id == kImEnd || id == kEndOfText; }
  std::optional<TokenId> bos() const override { return kEndOfText; }
  std::optional<TokenId> eos() const override { return kEndOfText; }
  std::optional<TokenId> ControlToken(std::string_view text) const override;
  bool add_bos() const override { return add_bos_; }

 private:
  const bool add_bos_;
};

// <|im_start|>ROLE\nCONTENT<|im_end|>\n, then <|im_start|>assistant\n. Refuses two user messages in a row
// when `strict`.
class ChatMlTemplate final : public ChatTemplate {
 public:
  explicit ChatMlTemplate(bool strict = false) : strict_(strict) {}
  absl::StatusOr<std::vector<RenderedPiece>> Render(std::span<const Message> messages,
                                                    bool add_generation_prompt) const override;

 private:
  const bool strict_;
};

}  // namespace epic::testing

#endif  // EPIC_SERVICES_WORKER_API_TESTING_FAKE_TEXT_H_
