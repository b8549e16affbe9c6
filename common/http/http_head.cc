#include "common/http/http_head.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <ctime>

#include "common/http/error_answer.h"

namespace epic {
namespace {

constexpr std::string_view kAllowHeaders = "Authorization, Content-Type, X-Request-Id, traceparent";
constexpr std::string_view kExposeHeaders =
    "x-request-id, x-epic-linking, x-should-retry, retry-after, location, traceparent";

bool IsLowerHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

void AppendHeader(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  for (const char c : value) out.push_back(c == '\r' || c == '\n' || c == '\0' ? ' ' : c);
  out.append("\r\n");
}

std::string HttpDate(int64_t unix_ms) {
  const std::time_t seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  static constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%s, %02d %s %04d %02d:%02d:%02d GMT", kDays[utc.tm_wday],
                utc.tm_mday, kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
  return text.data();
}

}  // namespace

bool IsTraceparent(std::string_view text) {
  if (text.size() != 55 || !text.starts_with("00-") || text[35] != '-' || text[52] != '-') return false;
  return IsLowerHex(text.substr(3, 32)) && IsLowerHex(text.substr(36, 16)) && IsLowerHex(text.substr(53, 2));
}

bool IsJsonContentType(std::string_view content_type) {
  if (content_type.empty()) return true;
  std::string type = Lower(content_type.substr(0, content_type.find(';')));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.pop_back();
  return type == "application/json" || (type.starts_with("application/") && type.ends_with("+json"));
}

bool IsIdentityEncoding(std::string_view content_encoding) {
  return content_encoding.empty() || Lower(content_encoding) == "identity";
}

bool OriginAllowed(const HttpOptions& options, std::string_view origin) {
  if (origin.empty()) return true;
  return std::any_of(options.allowed_origins.begin(), options.allowed_origins.end(),
                     [&](const std::string& allowed) { return allowed == "*" || allowed == origin; });
}

HttpHeaders CorsHeaders(const HttpOptions& options, std::string_view origin) {
  if (origin.empty() || !OriginAllowed(options, origin)) return {};
  return {{"Access-Control-Allow-Origin", std::string(origin)},
          {"Vary", "Origin"},
          {"Access-Control-Expose-Headers", std::string(kExposeHeaders)}};
}

HttpHeaders PreflightHeaders(const HttpOptions& options, std::string_view origin, std::string_view allow) {
  HttpHeaders headers = {{"Allow", std::string(allow)}};
  if (origin.empty() || !OriginAllowed(options, origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Methods", std::string(allow));
  headers.emplace_back("Access-Control-Allow-Headers", std::string(kAllowHeaders));
  headers.emplace_back("Access-Control-Max-Age", "600");
  return headers;
}

std::string PrintHead(const HttpOptions& options, const HttpAnswer& answer, const HeadContext& context) {
  std::string out = context.http11 ? "HTTP/1.1 " : "HTTP/1.0 ";
  out += std::to_string(answer.status) + " ";
  out += std::string(ReasonPhrase(answer.status)) + "\r\n";
  AppendHeader(out, "Date", HttpDate(context.unix_ms));
  if (answer.status != 204) AppendHeader(out, "Content-Type", answer.content_type);
  if (context.streamed) {
    if (context.http11) AppendHeader(out, "Transfer-Encoding", "chunked");
  } else if (answer.status != 204) {
    AppendHeader(out, "Content-Length", std::to_string(answer.body.size()));
  }
  if (!context.keep_alive) {
    AppendHeader(out, "Connection", "close");
  } else if (!context.http11) {
    AppendHeader(out, "Connection", "keep-alive");
  }
  AppendHeader(out, "X-Content-Type-Options", "nosniff");
  if (!context.request_id.empty()) AppendHeader(out, "x-request-id", context.request_id);
  if (!context.traceparent.empty()) AppendHeader(out, "traceparent", context.traceparent);
  for (const auto& [name, value] : CorsHeaders(options, context.origin)) AppendHeader(out, name, value);
  for (const auto& [name, value] : answer.headers) AppendHeader(out, name, value);
  return out + "\r\n";
}

std::string PrintChunk(std::string_view bytes) {
  std::array<char, 20> size{};
  std::snprintf(size.data(), size.size(), "%zx\r\n", bytes.size());
  std::string out = size.data();
  out.append(bytes).append("\r\n");
  return out;
}

}  // namespace epic
