#include "services/router/http/handlers.h"

#include <exception>
#include <utility>

#include "common/http/error_answer.h"
#include "common/status/error.h"
#include "services/router/http/chat_sinks.h"
#include "services/router/http/json_answers.h"
#include "services/router/http/json_requests.h"

namespace epic {
namespace {

HttpAnswer Json(std::string body, int status = 200) {
  HttpAnswer answer;
  answer.status = status;
  answer.body = std::move(body);
  return answer;
}

HttpAnswer PlainText(std::string body, std::string content_type) {
  HttpAnswer answer;
  answer.content_type = std::move(content_type);
  answer.body = std::move(body);
  return answer;
}

JsonRequestLimits LimitsOf(const HttpOptions& options) {
  return {options.max_json_depth, options.max_json_values};
}

HttpAnswer CreatedAnswer(const CreateContextResult& result) {
  switch (result.outcome) {
    case CreateContextResult::Outcome::kCreated:
      return Json(PrintContext(result.record), 201);
    case CreateContextResult::Outcome::kExisted:
      return Json(PrintContext(result.record), 200);
    case CreateContextResult::Outcome::kAccepted:
      break;
  }
  HttpAnswer answer = Json(PrintContext(result.record), 202);
  answer.headers.emplace_back("Location", "/v1/contexts/" + result.record.id.text());
  return answer;
}

}  // namespace

void HttpHandlers::Handle(const RouteMatch& match, HttpRequest request,
                          std::shared_ptr<Exchange> exchange) const {
  try {
    Dispatch(match, request, exchange);
  } catch (const std::exception&) {
    // The JSON library or an allocation. What it says may hold user text, so it is not passed on.
    Fail(Error(ErrorCode::kInternal, "the request could not be handled; try a smaller one"), exchange);
  }
}

void HttpHandlers::Dispatch(const RouteMatch& match, HttpRequest& request,
                            const SharedExchange& exchange) const {
  switch (match.call) {
    case HttpCall::kCreateContext:
      return CreateContext(request, exchange);
    case HttpCall::kListContexts:
      return ListContexts(request, exchange);
    case HttpCall::kGetContext:
      return GetContext(match.id, request, exchange);
    case HttpCall::kPatchContext:
      return PatchContext(match.id, request, exchange);
    case HttpCall::kDeleteContext:
      return DeleteContext(match.id, request, exchange);
    case HttpCall::kChat:
      return Chat(request, exchange);
    case HttpCall::kListModels:
      return exchange->Answer(Json(PrintModels(apis_.models->List())));
    case HttpCall::kGetModel:
      return GetModel(match.id, exchange);
    case HttpCall::kTokenize:
      return Tokenize(request, exchange);
    case HttpCall::kDetokenize:
      return Detokenize(request, exchange);
    case HttpCall::kApplyTemplate:
      return ApplyTemplate(request, exchange);
    case HttpCall::kHealth:
    case HttpCall::kReady:
      return Health(exchange);
    case HttpCall::kVersion:
      return exchange->Answer(Json(PrintVersion(options_.version, options_.build)));
    case HttpCall::kLive:
      return exchange->Answer(Json(R"({"status":"ok"})"));
    case HttpCall::kMetrics:
      return exchange->Answer(
          PlainText(apis_.node->MetricsText(), "text/plain; version=0.0.4; charset=utf-8"));
    case HttpCall::kDebugRequests:
      return exchange->Answer(Json(PrintInFlight(apis_.node->InFlight())));
    case HttpCall::kDebugQuality:
      return Quality(request, exchange);
    case HttpCall::kPreflight:
      return Fail(Error(ErrorCode::kInternal, "a preflight request is answered by the connection"), exchange);
  }
}

void HttpHandlers::CreateContext(const HttpRequest& request, const SharedExchange& exchange) const {
  absl::StatusOr<CreateContextRequest> parsed = ParseCreateContext(request.body, LimitsOf(options_));
  if (!parsed.ok()) return Fail(parsed.status(), exchange);
  apis_.contexts->Create(
      ScopeOf(request, exchange), *std::move(parsed),
      [exchange, retry_after_ms = options_.retry_after_ms](absl::StatusOr<CreateContextResult> result) {
        exchange->Answer(result.ok() ? CreatedAnswer(*result) : ErrorAnswer(result.status(), retry_after_ms));
      });
}

void HttpHandlers::ListContexts(const HttpRequest& request, const SharedExchange& exchange) const {
  const absl::StatusOr<ListContextsRequest> parsed = ParseListContexts(request.query);
  if (!parsed.ok()) return Fail(parsed.status(), exchange);
  const absl::StatusOr<ContextPage> page = apis_.contexts->List(ScopeOf(request, exchange), *parsed);
  if (!page.ok()) return Fail(page.status(), exchange);
  exchange->Answer(Json(PrintContextPage(*page)));
}

void HttpHandlers::GetContext(const std::string& id, const HttpRequest& request,
                              const SharedExchange& exchange) const {
  const absl::StatusOr<ContextRecord> record = apis_.contexts->Get(ScopeOf(request, exchange), id);
  if (!record.ok()) return Fail(record.status(), exchange);
  exchange->Answer(Json(PrintContext(*record)));
}

void HttpHandlers::PatchContext(const std::string& id, const HttpRequest& request,
                                const SharedExchange& exchange) const {
  const absl::StatusOr<PatchContextRequest> parsed = ParsePatchContext(request.body, LimitsOf(options_));
  if (!parsed.ok()) return Fail(parsed.status(), exchange);
  const absl::StatusOr<ContextRecord> record = apis_.contexts->Patch(ScopeOf(request, exchange), id, *parsed);
  if (!record.ok()) return Fail(record.status(), exchange);
  exchange->Answer(Json(PrintContext(*record)));
}

void HttpHandlers::DeleteContext(const std::string& id, const HttpRequest& request,
                                 const SharedExchange& exchange) const {
  const absl::StatusOr<bool> erase = ParseDeleteContext(request.query);
  if (!erase.ok()) return Fail(erase.status(), exchange);
  if (!*erase) {
    const absl::Status status = apis_.contexts->Delete(ScopeOf(request, exchange), id);
    if (!status.ok()) return Fail(status, exchange);
    return exchange->Answer(Json(PrintDeleted(id, {})));
  }
  apis_.contexts->Erase(
      ScopeOf(request, exchange), id,
      [exchange, id,
       retry_after_ms = options_.retry_after_ms](const absl::StatusOr<std::vector<std::string>>& pending) {
        exchange->Answer(pending.ok() ? Json(PrintDeleted(id, *pending), pending->empty() ? 200 : 202)
                                      : ErrorAnswer(pending.status(), retry_after_ms));
      });
}

void HttpHandlers::Chat(const HttpRequest& request, const SharedExchange& exchange) const {
  absl::StatusOr<ParsedChat> parsed = ParseChat(request.body, LimitsOf(options_));
  if (!parsed.ok()) return Fail(parsed.status(), exchange);
  const ChatSinkOptions options{parsed->include_usage, parsed->request.logprobs, options_.retry_after_ms};
  std::shared_ptr<ChatSink> sink;
  if (parsed->request.stream) {
    sink = std::make_shared<StreamChatSink>(exchange, options);
  } else {
    sink = std::make_shared<WholeChatSink>(exchange, options);
  }
  apis_.chat->Complete(ScopeOf(request, exchange), std::move(parsed->request), std::move(sink));
}

void HttpHandlers::GetModel(const std::string& id, const SharedExchange& exchange) const {
  const absl::StatusOr<ModelInfo> model = apis_.models->Get(id);
  if (!model.ok()) return Fail(model.status(), exchange);
  exchange->Answer(Json(PrintModel(*model)));
}

void HttpHandlers::Tokenize(const HttpRequest& request, const SharedExchange& exchange) const {
  const absl::StatusOr<TokenizeRequest> parsed = ParseTokenize(request.body, LimitsOf(options_));
  if (!parsed.ok()) return Fail(parsed.status(), exchange);
  const auto pieces = apis_.models->Tokenize(parsed->model, parsed->content);
  if (!pieces.ok()) return Fail(pieces.status(), exchange);
  exchange->Answer(Json(PrintTokens(*pieces, parsed->with_pieces)));
}

void HttpHandlers::Detokenize(const HttpRequest& request, const SharedExchange& exchange) const {
  const absl::StatusOr<DetokenizeRequest> parsed = ParseDetokenize(request.body, LimitsOf(options_));
  if (!parsed.ok()) return Fail(parsed.status(), exchange);
  const absl::StatusOr<std::string> content = apis_.models->Detokenize(parsed->model, parsed->tokens);
  if (!content.ok()) return Fail(content.status(), exchange);
  exchange->Answer(Json(PrintContent(*content)));
}

void HttpHandlers::ApplyTemplate(const HttpRequest& request, const SharedExchange& exchange) const {
  const absl::StatusOr<ApplyTemplateRequest> parsed = ParseApplyTemplate(request.body, LimitsOf(options_));
  if (!parsed.ok()) return Fail(parsed.status(), exchange);
  const absl::StatusOr<std::string> prompt = apis_.models->ApplyTemplate(parsed->model, parsed->messages);
  if (!prompt.ok()) return Fail(prompt.status(), exchange);
  exchange->Answer(Json(PrintPrompt(*prompt)));
}

void HttpHandlers::Quality(const HttpRequest& request, const SharedExchange& exchange) const {
  const absl::StatusOr<ParsedChat> parsed = ParseChat(request.body, LimitsOf(options_));
  if (!parsed.ok()) return Fail(parsed.status(), exchange);
  const absl::StatusOr<ChatQuality> quality =
      apis_.quality->Compare(ScopeOf(request, exchange), parsed->request);
  if (!quality.ok()) return Fail(quality.status(), exchange);
  exchange->Answer(Json(PrintQuality(*quality)));
}

void HttpHandlers::Health(const SharedExchange& exchange) const {
  const HealthReport report = apis_.node->Health();
  HttpAnswer answer = Json(PrintHealth(report), report.able ? 200 : 503);
  if (!report.able) answer.headers.emplace_back("Retry-After", "1");
  exchange->Answer(std::move(answer));
}

RequestScope HttpHandlers::ScopeOf(const HttpRequest& request, const SharedExchange& exchange) const {
  RequestScope scope;
  scope.request_id = request.request_id;
  scope.cancel = exchange->cancel_token();
  scope.received_steady_ns = request.received_steady_ns;
  if (options_.request_deadline_ms > 0) {
    scope.deadline_steady_ns = request.received_steady_ns + options_.request_deadline_ms * 1'000'000;
  }
  return scope;
}

void HttpHandlers::Fail(const absl::Status& status, const SharedExchange& exchange) const {
  exchange->Answer(ErrorAnswer(status, options_.retry_after_ms));
}

}  // namespace epic
