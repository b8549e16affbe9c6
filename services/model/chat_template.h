// Chat templates: a small Jinja subset, bounded in steps and output, that keeps user text apart from template
// text.
//
// Immutable after Create and thread-safe. What a template prints from a message's content stays marked as
// user text or as a context, through filters such as trim, so that the tokenizer can treat it as data.
#ifndef EPIC_SERVICES_MODEL_CHAT_TEMPLATE_H_
#define EPIC_SERVICES_MODEL_CHAT_TEMPLATE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace epic {

// A part of a message: text of the user, or the place of a context (index chosen by the caller).
struct MessagePart {
  enum class Kind : uint8_t { kText, kContext };
  Kind kind = Kind::kText;
  std::string text;            // kText
  uint32_t context_index = 0;  // kContext
};

struct Message {
  std::string role;
  std::vector<MessagePart> parts;
};

// A piece of the rendered prompt, in order. Adjacent pieces never have the same kind, kContext excepted.
struct RenderedPiece {
  enum class Kind : uint8_t { kTemplate, kUser, kContext };
  Kind kind = Kind::kTemplate;
  std::string text;            // kTemplate, kUser
  uint32_t context_index = 0;  // kContext
};

struct TemplateLimits {
  uint64_t max_steps = 1'000'000;
  uint64_t max_output_bytes = 64ull << 20;
};

class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  // Errors: InvalidArgument with line and construct for syntax outside the subset. An empty source gives
  // ChatML.
  static absl::StatusOr<std::unique_ptr<const ChatTemplate>> Create(std::string_view source,
                                                                    std::string_view bos_token,
                                                                    std::string_view eos_token,
                                                                    TemplateLimits limits = {});
  // Errors: kTemplateRefused with the template's own words when it raises an exception (roles out of order,
  // ...); ResourceExhausted past a limit.
  virtual absl::StatusOr<std::vector<RenderedPiece>> Render(std::span<const Message> messages,
                                                            bool add_generation_prompt) const = 0;
};

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_CHAT_TEMPLATE_H_
