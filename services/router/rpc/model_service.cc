#include "services/router/rpc/model_service.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/grpc_status.h"
#include "common/status/status_macros.h"
#include "services/router/rpc/convert.h"

namespace epic {
namespace {

template <typename Request>
std::optional<std::string> ModelOf(const Request& request) {
  return request.has_model() ? std::optional<std::string>(request.model()) : std::nullopt;
}

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* ModelRpcService::List(grpc::CallbackServerContext* context,
                                                const v1::ListModelsRequest* request,
                                                v1::ListModelsResponse* response) {
  for (const ModelInfo& model : models_->List()) *response->add_models() = ToProto(model);
  return Finish(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ModelRpcService::Get(grpc::CallbackServerContext* context,
                                               const v1::GetModelRequest* request, v1::Model* response) {
  const absl::StatusOr<ModelInfo> model = models_->Get(request->id());
  if (model.ok()) *response = ToProto(*model);
  return Finish(context, model.status());
}

grpc::ServerUnaryReactor* ModelRpcService::Tokenize(grpc::CallbackServerContext* context,
                                                    const v1::TokenizeRequest* request,
                                                    v1::TokenizeResponse* response) {
  const absl::StatusOr<std::vector<TokenPiece>> pieces =
      models_->Tokenize(ModelOf(*request), request->content());
  if (!pieces.ok()) return Finish(context, pieces.status());
  for (const TokenPiece& piece : *pieces) {
    v1::TokenizeResponse::Piece& token = *response->add_tokens();
    token.set_id(piece.id);
    token.set_piece(piece.bytes);
  }
  return Finish(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ModelRpcService::Detokenize(grpc::CallbackServerContext* context,
                                                      const v1::DetokenizeRequest* request,
                                                      v1::DetokenizeResponse* response) {
  const std::vector<int64_t> tokens(request->tokens().begin(), request->tokens().end());
  absl::StatusOr<std::string> text = models_->Detokenize(ModelOf(*request), tokens);
  if (text.ok()) response->set_content(std::move(text).value());
  return Finish(context, text.status());
}

grpc::ServerUnaryReactor* ModelRpcService::ApplyTemplate(grpc::CallbackServerContext* context,
                                                         const v1::ApplyTemplateRequest* request,
                                                         v1::ApplyTemplateResponse* response) {
  absl::StatusOr<std::vector<ChatMessage>> messages = FromProto(request->messages());
  if (!messages.ok()) return Finish(context, messages.status());
  absl::StatusOr<std::string> prompt = models_->ApplyTemplate(ModelOf(*request), *messages);
  if (prompt.ok()) response->set_prompt(std::move(prompt).value());
  return Finish(context, prompt.status());
}

}  // namespace epic
