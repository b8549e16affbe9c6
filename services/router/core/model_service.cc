#include "services/router/core/model_service.h"

#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/model/utf8.h"
#include "services/router/core/checks.h"
#include "services/router/core/prompt.h"

namespace epic {

std::vector<ModelInfo> ModelService::List() const {
  const ServedModel& model = *parts_.model;
  const ModelConfig& config = model.engine->config();
  ModelInfo info;
  info.id = model.alias;
  info.created = model.created_unix;
  info.max_model_len = config.context_length;
  info.identity = model.identity.Hex();
  info.architecture = model.architecture;
  info.parameters = model.parameters;
  info.vocab = config.vocab;
  info.compute = model.engine->compute() == ComputeFormat::kBf16 ? "bf16" : "f32";
  info.default_linking = parts_.default_strategy;
  return {std::move(info)};
}

absl::StatusOr<ModelInfo> ModelService::Get(const std::string& id) const {
  EPIC_RETURN_IF_ERROR(CheckModel(id, *parts_.model));
  return List().front();
}

absl::StatusOr<std::vector<TokenPiece>> ModelService::Tokenize(const std::optional<std::string>& model,
                                                               const std::string& content) const {
  EPIC_RETURN_IF_ERROR(CheckModel(model, *parts_.model));
  if (FindInvalidUtf8(content).has_value()) {
    return Error(ErrorCode::kInvalidRequest, "content must be UTF-8", "content");
  }
  EPIC_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, parts_.model->tokenizer->Encode(content));
  std::vector<TokenPiece> pieces;
  pieces.reserve(ids.size());
  for (const TokenId id : ids) pieces.push_back({id, parts_.model->tokenizer->TokenBytes(id)});
  return pieces;
}

absl::StatusOr<std::string> ModelService::Detokenize(const std::optional<std::string>& model,
                                                     const std::vector<int64_t>& tokens) const {
  EPIC_RETURN_IF_ERROR(CheckModel(model, *parts_.model));
  EPIC_ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                        CheckTokens(tokens, parts_.model->tokenizer->vocab_size(), "tokens"));
  return parts_.model->tokenizer->Decode(ids, /*with_special=*/true);
}

absl::StatusOr<std::string> ModelService::ApplyTemplate(const std::optional<std::string>& model,
                                                        const std::vector<ChatMessage>& messages) const {
  EPIC_RETURN_IF_ERROR(CheckModel(model, *parts_.model));
  EPIC_RETURN_IF_ERROR(CheckMessages(messages, parts_.limits));
  const TemplateInput input = ToTemplateInput(messages);
  if (!input.references.empty()) {
    return Error(ErrorCode::kInvalidRequest, "a context has no text to show: send text parts",
                 input.references.front().place);
  }
  EPIC_ASSIGN_OR_RETURN(const std::vector<RenderedPiece> pieces,
                        parts_.model->chat_template->Render(input.messages, /*add_generation_prompt=*/true));
  std::string text;
  for (const RenderedPiece& piece : pieces) text += piece.text;
  return text;
}

}  // namespace epic
