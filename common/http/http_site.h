// What an HTTP server serves: which requests it knows, and how they are answered. Implemented by a service;
// used by the server (http_server.h) from any of its threads. No sockets here.
#ifndef EPIC_COMMON_HTTP_HTTP_SITE_H_
#define EPIC_COMMON_HTTP_HTTP_SITE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/http/exchange.h"
#include "common/http/http_message.h"

namespace epic {

// A request that a site knows, as its method and path say.
struct HttpRoute {
  uint32_t call = 0;        // of the site's own list
  std::string_view name;    // in logs and metrics; a constant
  std::string id;           // the decoded {id} of the path; empty where the route has none
  std::string allow;        // the methods of the path, for Allow
  bool instant = false;     // never blocks: answered on the I/O thread, also when every worker is busy
  bool takes_body = false;  // has a JSON body
  bool preflight = false;   // OPTIONS: answered by the server
};

class HttpSite {
 public:
  virtual ~HttpSite() = default;
  // `path` is still percent-encoded. HEAD matches where GET does. Errors: NotFound (kRouteNotFound);
  // Unimplemented (kMethodNotAllowed; the answer's Allow is Allow(path)).
  virtual absl::StatusOr<HttpRoute> Match(std::string_view method, std::string_view path) const = 0;
  // The methods of `path`, as in "GET, HEAD, OPTIONS"; empty when there is no such path.
  virtual std::string Allow(std::string_view path) const = 0;
  // Answers through `exchange`, now or later, exactly once. Never throws. May block unless route.instant.
  virtual void Handle(const HttpRoute& route, HttpRequest request,
                      std::shared_ptr<Exchange> exchange) const = 0;
};

}  // namespace epic

#endif  // EPIC_COMMON_HTTP_HTTP_SITE_H_
