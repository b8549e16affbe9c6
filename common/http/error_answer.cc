#include "common/http/error_answer.h"

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "common/status/error.h"

namespace epic {
namespace {

// Clients that re-send by themselves do so on these; a final answer among them must say so.
bool ClientsRetry(int status) { return status == 408 || status == 409 || status == 429 || status >= 500; }

bool WantsRetryAfter(const ErrorInfo& info) {
  return info.retryable && (info.http_status == 429 || info.http_status == 503);
}

}  // namespace

std::string JsonString(std::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string ErrorBody(const absl::Status& status) {
  const ErrorInfo& info = InfoOf(CodeOf(status));
  const std::string param = ParamOf(status);
  std::string out = R"({"error":{"message":)";
  out += JsonString(PublicMessageOf(status));
  out += R"(,"type":)" + JsonString(info.type);
  out += R"(,"param":)" + (param.empty() ? std::string("null") : JsonString(param));
  out += R"(,"code":)" + JsonString(info.name) + "}}";
  return out;
}

HttpAnswer ErrorAnswer(const absl::Status& status, int64_t retry_after_ms) {
  const ErrorInfo& info = InfoOf(CodeOf(status));
  HttpAnswer answer;
  answer.status = info.http_status;
  answer.code = info.name;
  if (IsUnexpected(status)) answer.cause = MessageOf(status);
  answer.body = ErrorBody(status);
  if (WantsRetryAfter(info)) {
    const int64_t ms = std::max<int64_t>(1, RetryAfterMsOf(status).value_or(retry_after_ms));
    answer.headers.emplace_back("Retry-After", std::to_string((ms + 999) / 1000));
  }
  if (!MayRetry(status) && ClientsRetry(info.http_status)) {
    answer.headers.emplace_back("x-should-retry", "false");
  }
  return answer;
}

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 507:
      return "Insufficient Storage";
    default:
      return "Unknown";
  }
}

}  // namespace epic
