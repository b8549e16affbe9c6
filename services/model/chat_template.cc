#include "services/model/chat_template.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "services/model/jinja/interpreter.h"
#include "services/model/jinja/parser.h"
#include "services/model/utf8.h"

namespace epic {
namespace {

constexpr std::string_view kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// Roles that the doors accept count as the template's text; any other is a user's.
constexpr std::array<std::string_view, 6> kKnownRoles = {"system", "user",      "assistant",
                                                         "tool",   "developer", "function"};

// All strings that a run may make, in multiples of what it may print and of what it is given.
constexpr uint64_t kTextBudgetFactor = 8;

class ChatTemplateImpl final : public ChatTemplate {
 public:
  ChatTemplateImpl(jinja::Body body, std::string_view bos_token, std::string_view eos_token,
                   TemplateLimits limits)
      : body_(std::move(body)), bos_token_(bos_token), eos_token_(eos_token), limits_(limits) {}

  absl::StatusOr<std::vector<RenderedPiece>> Render(std::span<const Message> messages,
                                                    bool add_generation_prompt) const override;

 private:
  const jinja::Body body_;
  const std::string bos_token_;
  const std::string eos_token_;
  const TemplateLimits limits_;
};

// The contexts of all messages, numbered in order, so that the same one may stand in two places.
using ContextPlaces = std::vector<uint32_t>;

absl::StatusOr<jinja::MarkedText> ContentOf(const Message& message, size_t index, ContextPlaces& places) {
  jinja::MarkedText content;
  for (const MessagePart& part : message.parts) {
    if (part.kind == MessagePart::Kind::kContext) {
      content.Append(jinja::MarkedText::Context(static_cast<uint32_t>(places.size())));
      places.push_back(part.context_index);
    } else if (FindInvalidUtf8(part.text)) {
      return absl::InvalidArgumentError(absl::StrCat("messages[", index, "].content is not UTF-8"));
    } else {
      content.Append(part.text, jinja::Origin::kUser);
    }
  }
  return content;
}

absl::StatusOr<jinja::Value> ValueOf(std::span<const Message> messages, ContextPlaces& places,
                                     jinja::Budget& budget) {
  std::vector<jinja::Value> items;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (FindInvalidUtf8(role))
      return absl::InvalidArgumentError(absl::StrCat("messages[", i, "].role is not UTF-8"));
    const bool known = std::find(kKnownRoles.begin(), kKnownRoles.end(), role) != kKnownRoles.end();
    EPIC_ASSIGN_OR_RETURN(jinja::MarkedText content, ContentOf(messages[i], i, places));
    const jinja::MarkedText marked_role(role, known ? jinja::Origin::kTemplate : jinja::Origin::kUser);
    EPIC_ASSIGN_OR_RETURN(
        jinja::Value item,
        jinja::MakeDict({{jinja::Value::Of("role"), jinja::Value::Of(marked_role)},
                         {jinja::Value::Of("content"), jinja::Value::Of(std::move(content))}},
                        budget));
    items.push_back(std::move(item));
  }
  return jinja::MakeList(std::move(items), false, budget);
}

absl::Status MisplacedContext(uint32_t context, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the chat template of this model ", std::string(what), " context ", context,
                   " of the messages; move it to a message that the template prints once"));
}

absl::StatusOr<std::vector<RenderedPiece>> PiecesOf(const jinja::MarkedText& text,
                                                    const ContextPlaces& places) {
  std::vector<RenderedPiece> pieces;
  std::vector<bool> printed(places.size());
  size_t begin = 0;
  for (const jinja::MarkedText::Span& span : text.spans()) {
    RenderedPiece piece;
    if (span.origin == jinja::Origin::kContext) {
      piece.kind = RenderedPiece::Kind::kContext;
      piece.context_index = places[span.context];
      if (printed[span.context]) return MisplacedContext(piece.context_index, "repeats");
      printed[span.context] = true;
    } else {
      piece.kind =
          span.origin == jinja::Origin::kUser ? RenderedPiece::Kind::kUser : RenderedPiece::Kind::kTemplate;
      piece.text = text.bytes().substr(begin, span.end - begin);
    }
    pieces.push_back(std::move(piece));
    begin = span.end;
  }
  if (text.spans().empty() && !text.empty())
    pieces.push_back({RenderedPiece::Kind::kTemplate, text.bytes(), 0});
  for (size_t i = 0; i < places.size(); ++i) {
    if (!printed[i]) return MisplacedContext(places[i], "leaves out");
  }
  return pieces;
}

absl::StatusOr<std::vector<RenderedPiece>> ChatTemplateImpl::Render(std::span<const Message> messages,
                                                                    bool add_generation_prompt) const {
  uint64_t input_bytes = 0;
  for (const Message& message : messages) {
    for (const MessagePart& part : message.parts) input_bytes += part.text.size();
  }
  jinja::Budget budget(limits_.max_steps, kTextBudgetFactor * (limits_.max_output_bytes + input_bytes));
  ContextPlaces places;
  EPIC_ASSIGN_OR_RETURN(jinja::Value list, ValueOf(messages, places, budget));
  jinja::Interpreter::Variables variables = {
      {"messages", std::move(list)},
      {"add_generation_prompt", jinja::Value::Bool(add_generation_prompt)},
      {"bos_token", jinja::Value::Of(bos_token_)},
      {"eos_token", jinja::Value::Of(eos_token_)},
      {"tools", jinja::Value(jinja::None{})},
      {"documents", jinja::Value(jinja::None{})}};
  jinja::Interpreter interpreter(std::move(variables), limits_.max_output_bytes, budget);
  EPIC_ASSIGN_OR_RETURN(const jinja::MarkedText text, interpreter.Run(body_));
  return PiecesOf(text, places);
}

}  // namespace

absl::StatusOr<std::unique_ptr<const ChatTemplate>> ChatTemplate::Create(std::string_view source,
                                                                         std::string_view bos_token,
                                                                         std::string_view eos_token,
                                                                         TemplateLimits limits) {
  if (const std::optional<size_t> bad = FindInvalidUtf8(source)) {
    return absl::InvalidArgumentError(absl::StrCat("chat template: not UTF-8 at byte ", *bad));
  }
  if (FindInvalidUtf8(bos_token))
    return absl::InvalidArgumentError("chat template: the BOS token is not UTF-8");
  if (FindInvalidUtf8(eos_token))
    return absl::InvalidArgumentError("chat template: the EOS token is not UTF-8");
  EPIC_ASSIGN_OR_RETURN(jinja::Body body, jinja::Parse(source.empty() ? kChatMl : source));
  return std::unique_ptr<const ChatTemplate>(
      std::make_unique<ChatTemplateImpl>(std::move(body), bos_token, eos_token, limits));
}

}  // namespace epic
