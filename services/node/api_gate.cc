#include "services/node/api_gate.h"

#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic {

void ApiGate::Open(ContextApi* contexts, ChatApi* chat, ModelApi* models, QualityApi* quality) {
  contexts_ = contexts;
  chat_ = chat;
  models_ = models;
  quality_ = quality;
  NodeState loading = NodeState::kLoading;
  state_.compare_exchange_strong(loading, NodeState::kServing);  // a node that drains already stays so
}

absl::Status ApiGate::Pass() const {
  switch (state_.load()) {
    case NodeState::kServing:
      return absl::OkStatus();
    case NodeState::kLoading:
      return RetryLater(ErrorCode::kLoading, "the model is being loaded: try again later", 2000);
    case NodeState::kDraining:
      break;
  }
  return RetryLater(ErrorCode::kDraining, "the server is stopping: send the request elsewhere", 2000);
}

void ApiGate::Create(const RequestScope& scope, CreateContextRequest request, CreateDone done) {
  if (const absl::Status closed = Pass(); !closed.ok()) return done(closed);
  contexts_->Create(scope, std::move(request), std::move(done));
}
absl::StatusOr<ContextRecord> ApiGate::Get(const RequestScope& scope, const std::string& id) {
  EPIC_RETURN_IF_ERROR(Pass());
  return contexts_->Get(scope, id);
}
absl::StatusOr<ContextPage> ApiGate::List(const RequestScope& scope, const ListContextsRequest& request) {
  EPIC_RETURN_IF_ERROR(Pass());
  return contexts_->List(scope, request);
}
absl::StatusOr<ContextRecord> ApiGate::Patch(const RequestScope& scope, const std::string& id,
                                             const PatchContextRequest& request) {
  EPIC_RETURN_IF_ERROR(Pass());
  return contexts_->Patch(scope, id, request);
}
absl::Status ApiGate::Delete(const RequestScope& scope, const std::string& id) {
  EPIC_RETURN_IF_ERROR(Pass());
  return contexts_->Delete(scope, id);
}
void ApiGate::Erase(const RequestScope& scope, const std::string& id, EraseDone done) {
  if (const absl::Status closed = Pass(); !closed.ok()) return done(closed);
  contexts_->Erase(scope, id, std::move(done));
}
void ApiGate::Complete(const RequestScope& scope, ChatRequest request, std::shared_ptr<ChatSink> sink) {
  if (const absl::Status closed = Pass(); !closed.ok()) return sink->OnDone(closed, {}, {});
  chat_->Complete(scope, std::move(request), std::move(sink));
}
std::vector<ModelInfo> ApiGate::List() const {
  return Pass().ok() ? models_->List() : std::vector<ModelInfo>();
}
absl::StatusOr<ModelInfo> ApiGate::Get(const std::string& id) const {
  EPIC_RETURN_IF_ERROR(Pass());
  return models_->Get(id);
}
absl::StatusOr<std::vector<TokenPiece>> ApiGate::Tokenize(const std::optional<std::string>& model,
                                                          const std::string& content) const {
  EPIC_RETURN_IF_ERROR(Pass());
  return models_->Tokenize(model, content);
}
absl::StatusOr<std::string> ApiGate::Detokenize(const std::optional<std::string>& model,
                                                const std::vector<int64_t>& tokens) const {
  EPIC_RETURN_IF_ERROR(Pass());
  return models_->Detokenize(model, tokens);
}
absl::StatusOr<std::string> ApiGate::ApplyTemplate(const std::optional<std::string>& model,
                                                   const std::vector<ChatMessage>& messages) const {
  EPIC_RETURN_IF_ERROR(Pass());
  return models_->ApplyTemplate(model, messages);
}
absl::StatusOr<ChatQuality> ApiGate::Compare(const RequestScope& scope, const ChatRequest& request) {
  EPIC_RETURN_IF_ERROR(Pass());
  return quality_->Compare(scope, request);
}

}  // namespace epic
