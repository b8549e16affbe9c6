// The handlers of both doors: parse the body, call the Api, print the result. They decide nothing and know
// neither sockets nor Beast.
//
// Owned by the HttpServer. Stateless: any thread. Handle may block on an Api call unless IsInstant(call).
#ifndef EPIC_SERVICES_ROUTER_HTTP_HANDLERS_H_
#define EPIC_SERVICES_ROUTER_HTTP_HANDLERS_H_

#include <memory>

#include "common/http/exchange.h"
#include "common/http/http_message.h"
#include "common/http/http_options.h"
#include "services/router/core/api.h"
#include "services/router/http/routes.h"

namespace epic {

class HttpHandlers {
 public:
  HttpHandlers(Apis apis, const HttpOptions& options) : apis_(apis), options_(options) {}

  // Answers through `exchange`, now or later, exactly once. Never throws.
  void Handle(const RouteMatch& match, HttpRequest request, std::shared_ptr<Exchange> exchange) const;

 private:
  using SharedExchange = std::shared_ptr<Exchange>;

  void Dispatch(const RouteMatch& match, HttpRequest& request, const SharedExchange& exchange) const;
  void CreateContext(const HttpRequest& request, const SharedExchange& exchange) const;
  void ListContexts(const HttpRequest& request, const SharedExchange& exchange) const;
  void GetContext(const std::string& id, const HttpRequest& request, const SharedExchange& exchange) const;
  void PatchContext(const std::string& id, const HttpRequest& request, const SharedExchange& exchange) const;
  void DeleteContext(const std::string& id, const HttpRequest& request, const SharedExchange& exchange) const;
  void Chat(const HttpRequest& request, const SharedExchange& exchange) const;
  void Tokenize(const HttpRequest& request, const SharedExchange& exchange) const;
  void Detokenize(const HttpRequest& request, const SharedExchange& exchange) const;
  void ApplyTemplate(const HttpRequest& request, const SharedExchange& exchange) const;
  void GetModel(const std::string& id, const SharedExchange& exchange) const;
  void Quality(const HttpRequest& request, const SharedExchange& exchange) const;
  void Health(const SharedExchange& exchange) const;

  RequestScope ScopeOf(const HttpRequest& request, const SharedExchange& exchange) const;
  void Fail(const absl::Status& status, const SharedExchange& exchange) const;

  const Apis apis_;
  const HttpOptions options_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_HTTP_HANDLERS_H_
