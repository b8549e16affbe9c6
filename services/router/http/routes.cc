#include "services/router/http/routes.h"

#include <array>

#include "common/status/error.h"

namespace epic {
namespace {

constexpr uint8_t kPublicOnly = 1;
constexpr uint8_t kAdminOnly = 2;
constexpr uint8_t kBothDoors = kPublicOnly | kAdminOnly;

struct Route {
  std::string_view method;
  std::string_view path;  // a trailing "{id}" stands for one segment that is not empty
  HttpCall call;
  uint8_t doors;
};

// Methods of one path stand together, in the order of its Allow header.
constexpr std::array kRoutes = {
    Route{"GET", "/v1/contexts", HttpCall::kListContexts, kPublicOnly},
    Route{"POST", "/v1/contexts", HttpCall::kCreateContext, kPublicOnly},
    Route{"GET", "/v1/contexts/{id}", HttpCall::kGetContext, kPublicOnly},
    Route{"PATCH", "/v1/contexts/{id}", HttpCall::kPatchContext, kPublicOnly},
    Route{"DELETE", "/v1/contexts/{id}", HttpCall::kDeleteContext, kPublicOnly},
    Route{"POST", "/v1/chat/completions", HttpCall::kChat, kPublicOnly},
    Route{"GET", "/v1/models", HttpCall::kListModels, kPublicOnly},
    Route{"GET", "/v1/models/{id}", HttpCall::kGetModel, kPublicOnly},
    Route{"POST", "/tokenize", HttpCall::kTokenize, kPublicOnly},
    Route{"POST", "/detokenize", HttpCall::kDetokenize, kPublicOnly},
    Route{"POST", "/apply-template", HttpCall::kApplyTemplate, kPublicOnly},
    Route{"GET", "/health", HttpCall::kHealth, kBothDoors},
    Route{"GET", "/version", HttpCall::kVersion, kBothDoors},
    Route{"GET", "/live", HttpCall::kLive, kAdminOnly},
    Route{"GET", "/ready", HttpCall::kReady, kAdminOnly},
    Route{"GET", "/metrics", HttpCall::kMetrics, kAdminOnly},
    Route{"GET", "/debug/requests", HttpCall::kDebugRequests, kAdminOnly},
    Route{"POST", "/debug/quality", HttpCall::kDebugQuality, kAdminOnly},
};

constexpr std::string_view kIdSuffix = "{id}";
constexpr size_t kMaxIdBytes = 512;

bool Serves(const Route& route, HttpDoor door) {
  return (route.doors & (door == HttpDoor::kPublic ? kPublicOnly : kAdminOnly)) != 0;
}

// The encoded id when `path` fits the route; empty for a route without one.
std::optional<std::string_view> Fit(const Route& route, std::string_view path) {
  if (!route.path.ends_with(kIdSuffix)) {
    return path == route.path ? std::optional<std::string_view>("") : std::nullopt;
  }
  const std::string_view prefix = route.path.substr(0, route.path.size() - kIdSuffix.size());
  if (!path.starts_with(prefix)) return std::nullopt;
  const std::string_view id = path.substr(prefix.size());
  // Model names may hold slashes (org/model); Cache IDs never do.
  const bool slashes_allowed = route.call == HttpCall::kGetModel;
  if (id.empty() || id.size() > kMaxIdBytes) return std::nullopt;
  if (!slashes_allowed && id.find('/') != std::string_view::npos) return std::nullopt;
  return id;
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::optional<std::string> PercentDecode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = HexValue(text[i + 1]);
      const int low = HexValue(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      out.push_back(static_cast<char>(high * 16 + low));
      i += 2;
    } else {
      out.push_back(plus_is_space && text[i] == '+' ? ' ' : text[i]);
    }
  }
  return out;
}

std::string AllowOf(HttpDoor door, std::string_view path) {
  std::string allow;
  for (const Route& route : kRoutes) {
    if (!Serves(route, door) || !Fit(route, path).has_value()) continue;
    allow += std::string(route.method) + ", ";
    if (route.method == "GET") allow += "HEAD, ";
  }
  return allow.empty() ? allow : allow + "OPTIONS";
}

absl::StatusOr<RouteMatch> MatchRoute(HttpDoor door, std::string_view method, std::string_view path) {
  if (method == "OPTIONS") {
    const std::string allow = path == "*" ? "GET, HEAD, POST, PATCH, DELETE, OPTIONS" : AllowOf(door, path);
    if (!allow.empty()) return RouteMatch{HttpCall::kPreflight, "", allow};
  }
  bool path_exists = false;
  for (const Route& route : kRoutes) {
    if (!Serves(route, door)) continue;
    const std::optional<std::string_view> id = Fit(route, path);
    if (!id.has_value()) continue;
    path_exists = true;
    if (route.method != method && !(method == "HEAD" && route.method == "GET")) continue;
    std::optional<std::string> decoded = PercentDecode(*id, /*plus_is_space=*/false);
    if (!decoded.has_value()) {
      return Error(ErrorCode::kInvalidRequest, "the path has a broken percent escape", "id");
    }
    return RouteMatch{route.call, *std::move(decoded), AllowOf(door, path)};
  }
  if (path_exists) {
    return Error(ErrorCode::kMethodNotAllowed,
                 "this path does not take this method; use one of: " + AllowOf(door, path));
  }
  return Error(ErrorCode::kRouteNotFound, "there is no such path; see README.md for the paths served");
}

std::string_view NameOf(HttpCall call) {
  switch (call) {
    case HttpCall::kCreateContext:
      return "create_context";
    case HttpCall::kListContexts:
      return "list_contexts";
    case HttpCall::kGetContext:
      return "get_context";
    case HttpCall::kPatchContext:
      return "patch_context";
    case HttpCall::kDeleteContext:
      return "delete_context";
    case HttpCall::kChat:
      return "chat";
    case HttpCall::kListModels:
      return "list_models";
    case HttpCall::kGetModel:
      return "get_model";
    case HttpCall::kTokenize:
      return "tokenize";
    case HttpCall::kDetokenize:
      return "detokenize";
    case HttpCall::kApplyTemplate:
      return "apply_template";
    case HttpCall::kHealth:
      return "health";
    case HttpCall::kVersion:
      return "version";
    case HttpCall::kLive:
      return "live";
    case HttpCall::kReady:
      return "ready";
    case HttpCall::kMetrics:
      return "metrics";
    case HttpCall::kDebugRequests:
      return "debug_requests";
    case HttpCall::kDebugQuality:
      return "debug_quality";
    case HttpCall::kPreflight:
      return "preflight";
  }
  return "unknown";
}

bool IsInstant(HttpCall call) {
  switch (call) {
    case HttpCall::kHealth:
    case HttpCall::kVersion:
    case HttpCall::kLive:
    case HttpCall::kReady:
    case HttpCall::kPreflight:
      return true;
    default:
      return false;
  }
}

bool TakesBody(HttpCall call) {
  switch (call) {
    case HttpCall::kCreateContext:
    case HttpCall::kPatchContext:
    case HttpCall::kChat:
    case HttpCall::kTokenize:
    case HttpCall::kDetokenize:
    case HttpCall::kApplyTemplate:
    case HttpCall::kDebugQuality:
      return true;
    default:
      return false;
  }
}

}  // namespace epic
