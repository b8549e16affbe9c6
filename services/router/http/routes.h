// The table of routes of both doors: which path and method is which call. Pure functions.
#ifndef EPIC_SERVICES_ROUTER_HTTP_ROUTES_H_
#define EPIC_SERVICES_ROUTER_HTTP_ROUTES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/http/http_options.h"

namespace epic {

enum class HttpCall : uint8_t {
  kCreateContext,
  kListContexts,
  kGetContext,
  kPatchContext,
  kDeleteContext,
  kChat,
  kListModels,
  kGetModel,
  kTokenize,
  kDetokenize,
  kApplyTemplate,
  kHealth,
  kVersion,
  kLive,
  kReady,
  kMetrics,
  kDebugRequests,
  kDebugQuality,
  kPreflight,  // OPTIONS on any path
};

struct RouteMatch {
  HttpCall call = HttpCall::kHealth;
  std::string id;     // the decoded {id} of the path; empty where the route has none
  std::string allow;  // the methods of the path, for Allow
};

// `path` is still percent-encoded. HEAD matches where GET does.
// Errors: NotFound (kRouteNotFound); Unimplemented (kMethodNotAllowed; the answer's Allow is AllowOf(path)).
absl::StatusOr<RouteMatch> MatchRoute(HttpDoor door, std::string_view method, std::string_view path);

// The methods of `path`, as in "GET, HEAD, OPTIONS"; empty when there is no such path.
std::string AllowOf(HttpDoor door, std::string_view path);

// The name of a call in logs and metrics.
std::string_view NameOf(HttpCall call);
// Calls that never block and are answered on the I/O thread, also when every worker is busy.
bool IsInstant(HttpCall call);
// Calls with a JSON body.
bool TakesBody(HttpCall call);

// Percent-decoding; '+' is a space when `plus_is_space`. nullopt on a broken escape.
std::optional<std::string> PercentDecode(std::string_view text, bool plus_is_space);

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_HTTP_ROUTES_H_
