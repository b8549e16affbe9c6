// ModelApi: the served model's card, its tokenizer and its template. Immutable; thread-safe; never blocks.
#ifndef EPIC_SERVICES_ROUTER_CORE_MODEL_SERVICE_H_
#define EPIC_SERVICES_ROUTER_CORE_MODEL_SERVICE_H_

#include <optional>
#include <string>
#include <vector>

#include "services/router/core/api.h"
#include "services/router/core/router_parts.h"

namespace epic {

class ModelService final : public ModelApi {
 public:
  explicit ModelService(const RouterParts& parts) : parts_(parts) {}
  std::vector<ModelInfo> List() const override;
  absl::StatusOr<ModelInfo> Get(const std::string& id) const override;
  absl::StatusOr<std::vector<TokenPiece>> Tokenize(const std::optional<std::string>& model,
                                                   const std::string& content) const override;
  absl::StatusOr<std::string> Detokenize(const std::optional<std::string>& model,
                                         const std::vector<int64_t>& tokens) const override;
  // Contexts in the messages are refused: they have no text here.
  absl::StatusOr<std::string> ApplyTemplate(const std::optional<std::string>& model,
                                            const std::vector<ChatMessage>& messages) const override;

 private:
  const RouterParts parts_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_CORE_MODEL_SERVICE_H_
