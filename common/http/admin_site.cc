#include "common/http/admin_site.h"

#include <array>
#include <exception>
#include <utility>

#include "common/http/error_answer.h"
#include "common/status/error.h"

namespace epic {
namespace {

enum class Call : uint8_t { kHealth, kLive, kReady, kMetrics, kVersion, kPreflight };

struct Row {
  std::string_view path;
  std::string_view name;
  Call call;
  bool instant;
};
constexpr std::array kRows = {
    Row{"/health", "health", Call::kHealth, true}, Row{"/live", "live", Call::kLive, true},
    Row{"/ready", "ready", Call::kReady, true}, Row{"/metrics", "metrics", Call::kMetrics, false},
    Row{"/version", "version", Call::kVersion, true}};
constexpr std::string_view kAllow = "GET, HEAD, OPTIONS";

const Row* Find(std::string_view path) {
  for (const Row& row : kRows) {
    if (row.path == path) return &row;
  }
  return nullptr;
}

HttpAnswer Json(std::string body, int status = 200) {
  HttpAnswer answer;
  answer.status = status;
  answer.body = std::move(body);
  return answer;
}

std::string Print(const PartHealth& health) {
  std::string body = "{\"status\":" + JsonString(health.status) + ",\"causes\":[";
  for (const std::string& cause : health.causes) {
    body += (&cause == &health.causes.front() ? "" : ",") + JsonString(cause);
  }
  return body + "]}";
}

class AdminSite final : public HttpSite {
 public:
  explicit AdminSite(AdminSource source) : source_(std::move(source)) {}

  absl::StatusOr<HttpRoute> Match(std::string_view method, std::string_view path) const override {
    const Row* row = Find(path);
    if (row == nullptr) return Error(ErrorCode::kRouteNotFound, "there is no such path on this door");
    HttpRoute route{.call = static_cast<uint32_t>(row->call),
                    .name = row->name,
                    .allow = std::string(kAllow),
                    .instant = row->instant};
    if (method == "OPTIONS") {
      route = {.call = static_cast<uint32_t>(Call::kPreflight), .name = "preflight"};
      route.allow = kAllow;
      route.instant = route.preflight = true;
    } else if (method != "GET" && method != "HEAD") {
      return Error(ErrorCode::kMethodNotAllowed, "this path takes GET and HEAD only");
    }
    return route;
  }
  std::string Allow(std::string_view path) const override {
    return Find(path) == nullptr ? std::string() : std::string(kAllow);
  }
  void Handle(const HttpRoute& route, HttpRequest, std::shared_ptr<Exchange> exchange) const override {
    try {
      exchange->Answer(AnswerOf(static_cast<Call>(route.call)));
    } catch (const std::exception&) {  // out of memory
      exchange->Answer(ErrorAnswer(Error(ErrorCode::kInternal, "the answer could not be made")));
    }
  }

 private:
  HttpAnswer AnswerOf(Call call) const {
    switch (call) {
      case Call::kHealth:
      case Call::kReady: {
        const PartHealth health = source_.health();
        return Json(Print(health), health.able ? 200 : 503);
      }
      case Call::kMetrics: {
        HttpAnswer answer = Json(source_.metrics());
        answer.content_type = "text/plain; version=0.0.4; charset=utf-8";
        return answer;
      }
      case Call::kVersion:
        return Json("{\"version\":" + JsonString(source_.version) +
                    ",\"build\":" + JsonString(source_.build) + "}");
      case Call::kLive:
      case Call::kPreflight:
        break;
    }
    return Json(R"({"status":"ok"})");
  }

  const AdminSource source_;
};

}  // namespace

std::unique_ptr<const HttpSite> MakeAdminSite(AdminSource source) {
  return std::make_unique<AdminSite>(std::move(source));
}

}  // namespace epic
