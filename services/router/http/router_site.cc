#include "services/router/http/router_site.h"

#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/http/http_site.h"
#include "common/status/status_macros.h"
#include "services/router/http/handlers.h"
#include "services/router/http/routes.h"

namespace epic {
namespace {

class RouterSite final : public HttpSite {
 public:
  RouterSite(const HttpOptions& options, Apis apis) : door_(options.door), handlers_(apis, options) {}

  absl::StatusOr<HttpRoute> Match(std::string_view method, std::string_view path) const override {
    EPIC_ASSIGN_OR_RETURN(RouteMatch match, MatchRoute(door_, method, path));
    return HttpRoute{.call = static_cast<uint32_t>(match.call),
                     .name = NameOf(match.call),
                     .id = std::move(match.id),
                     .allow = std::move(match.allow),
                     .instant = IsInstant(match.call),
                     .takes_body = TakesBody(match.call),
                     .preflight = match.call == HttpCall::kPreflight};
  }
  std::string Allow(std::string_view path) const override { return AllowOf(door_, path); }
  void Handle(const HttpRoute& route, HttpRequest request,
              std::shared_ptr<Exchange> exchange) const override {
    const RouteMatch match{static_cast<HttpCall>(route.call), route.id, route.allow};
    handlers_.Handle(match, std::move(request), std::move(exchange));
  }

 private:
  const HttpDoor door_;
  const HttpHandlers handlers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> StartHttpDoor(HttpOptions options, Apis apis, Clock* clock,
                                                          uint64_t id_seed, HttpObserver observer) {
  EPIC_CHECK(apis.node != nullptr);
  if (options.door == HttpDoor::kPublic) {
    EPIC_CHECK(apis.contexts != nullptr && apis.chat != nullptr && apis.models != nullptr);
  }
  auto site = std::make_unique<RouterSite>(options, apis);
  return HttpServer::Start(std::move(options), std::move(site), clock, id_seed, std::move(observer));
}

}  // namespace epic
