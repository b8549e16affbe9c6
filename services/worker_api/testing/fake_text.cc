#include "services/worker_api/testing/fake_text.h"

#include <array>
#include <utility>

#include "common/status/error.h"
#include "services/model/utf8.h"

namespace epic::testing {
namespace {

constexpr std::array<std::pair<std::string_view, TokenId>, 3> kControls = {{
    {"<|im_start|>", ByteTokenizer::kImStart},
    {"<|im_end|>", ByteTokenizer::kImEnd},
    {"<|endoftext|>", ByteTokenizer::kEndOfText},
}};

void Append(RenderedPiece::Kind kind, std::string_view text, std::vector<RenderedPiece>* pieces) {
  if (text.empty()) return;
  if (pieces->empty() || pieces->back().kind != kind) {
    pieces->push_back({.kind = kind, .text = {}, .context_index = 0});
  }
  pieces->back().text += text;
}

}  // namespace

absl::StatusOr<std::vector<TokenId>> ByteTokenizer::Encode(std::span<const TextRun> runs) const {
  std::vector<TokenId> ids;
  for (const TextRun& run : runs) {
    if (FindInvalidUtf8(run.text).has_value()) return absl::InvalidArgumentError("text is not UTF-8");
    for (size_t i = 0; i < run.text.size();) {
      const TokenId* control = nullptr;
      size_t length = 1;
      for (const auto& [text, id] : kControls) {
        if (run.parse_special && run.text.substr(i).starts_with(text)) {
          control = &id;
          length = text.size();
        }
      }
      ids.push_back(control != nullptr ? *control : static_cast<unsigned char>(run.text[i]));
      i += length;
    }
  }
  return ids;
}

std::string ByteTokenizer::TokenBytes(TokenId id, bool with_special) const {
  if (id < 256) return std::string(1, static_cast<char>(id));
  if (!with_special) return {};
  for (const auto& [text, control] : kControls) {
    if (control == id) return std::string(text);
  }
  return {};
}

std::string ByteTokenizer::Decode(std::span<const TokenId> ids, bool with_special) const {
  std::string text;
  for (const TokenId id : ids) text += TokenBytes(id, with_special);
  return text;
}

std::optional<TokenId> ByteTokenizer::ControlToken(std::string_view text) const {
  for (const auto& [control, id] : kControls) {
    if (control == text) return id;
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<RenderedPiece>> ChatMlTemplate::Render(std::span<const Message> messages,
                                                                  bool add_generation_prompt) const {
  std::vector<RenderedPiece> pieces;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (strict_ && i > 0 && messages[i].role == messages[i - 1].role) {
      return Error(ErrorCode::kTemplateRefused, "roles must alternate", "messages");
    }
    Append(RenderedPiece::Kind::kTemplate, "<|im_start|>" + messages[i].role + "\n", &pieces);
    for (const MessagePart& part : messages[i].parts) {
      if (part.kind == MessagePart::Kind::kText) {
        Append(RenderedPiece::Kind::kUser, part.text, &pieces);
      } else {
        pieces.push_back(
            {.kind = RenderedPiece::Kind::kContext, .text = {}, .context_index = part.context_index});
      }
    }
    Append(RenderedPiece::Kind::kTemplate, "<|im_end|>\n", &pieces);
  }
  if (add_generation_prompt) Append(RenderedPiece::Kind::kTemplate, "<|im_start|>assistant\n", &pieces);
  return pieces;
}

}  // namespace epic::testing
