#include "services/router/rpc/model_service.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "services/router/rpc/convert.h"

namespace epic {
namespace {

template <typename Request>
std::optional<std::string> ModelOf(const Request& request) {
  return request.has_model() ? std::optional<std::string>(request.model()) : std::nullopt;
}

}  // namespace

grpc::ServerUnaryReactor* ModelRpcService::List(grpc::CallbackServerContext* context,
                                                const v1::ListModelsRequest* /*request*/,
                                                v1::ListModelsResponse* response) {
  return Answer(parts_, context, "list_models", response,
                [this](const RequestScope&) -> absl::StatusOr<v1::ListModelsResponse> {
                  v1::ListModelsResponse answer;
                  for (const ModelInfo& model : models_->List()) *answer.add_models() = ToProto(model);
                  return answer;
                });
}

grpc::ServerUnaryReactor* ModelRpcService::Get(grpc::CallbackServerContext* context,
                                               const v1::GetModelRequest* request, v1::Model* response) {
  return Answer(parts_, context, "get_model", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::Model> {
                  EPIC_ASSIGN_OR_RETURN(const ModelInfo model, models_->Get(request->id()));
                  return ToProto(model);
                });
}

grpc::ServerUnaryReactor* ModelRpcService::Tokenize(grpc::CallbackServerContext* context,
                                                    const v1::TokenizeRequest* request,
                                                    v1::TokenizeResponse* response) {
  return Answer(parts_, context, "tokenize", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::TokenizeResponse> {
                  EPIC_ASSIGN_OR_RETURN(const std::vector<TokenPiece> pieces,
                                        models_->Tokenize(ModelOf(*request), request->content()));
                  v1::TokenizeResponse answer;
                  for (const TokenPiece& piece : pieces) {
                    v1::TokenizeResponse::Piece& token = *answer.add_tokens();
                    token.set_id(piece.id);
                    token.set_piece(piece.bytes);
                  }
                  return answer;
                });
}

grpc::ServerUnaryReactor* ModelRpcService::Detokenize(grpc::CallbackServerContext* context,
                                                      const v1::DetokenizeRequest* request,
                                                      v1::DetokenizeResponse* response) {
  return Answer(parts_, context, "detokenize", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::DetokenizeResponse> {
                  const std::vector<int64_t> tokens(request->tokens().begin(), request->tokens().end());
                  EPIC_ASSIGN_OR_RETURN(std::string text, models_->Detokenize(ModelOf(*request), tokens));
                  v1::DetokenizeResponse answer;
                  answer.set_content(std::move(text));
                  return answer;
                });
}

grpc::ServerUnaryReactor* ModelRpcService::ApplyTemplate(grpc::CallbackServerContext* context,
                                                         const v1::ApplyTemplateRequest* request,
                                                         v1::ApplyTemplateResponse* response) {
  return Answer(
      parts_, context, "apply_template", response,
      [this, request](const RequestScope&) -> absl::StatusOr<v1::ApplyTemplateResponse> {
        EPIC_ASSIGN_OR_RETURN(const std::vector<ChatMessage> messages, FromProto(request->messages()));
        EPIC_ASSIGN_OR_RETURN(std::string prompt, models_->ApplyTemplate(ModelOf(*request), messages));
        v1::ApplyTemplateResponse answer;
        answer.set_prompt(std::move(prompt));
        return answer;
      });
}

}  // namespace epic
