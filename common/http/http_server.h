// One HTTP listener over a site: what a door of a service is made of.
//
// Owns its I/O threads, its worker threads and its connections. Start, Drain and Stop are called by the
// owner; the clock and what the site uses outlive it. No Beast in this header. TLS is not here.
#ifndef EPIC_COMMON_HTTP_HTTP_SERVER_H_
#define EPIC_COMMON_HTTP_HTTP_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/http/http_event.h"
#include "common/http/http_options.h"
#include "common/http/http_site.h"

namespace epic {

class HttpServer {
 public:
  // Listens when it returns. `id_seed` makes the generated request ids of two processes differ.
  // REQUIRES: site and clock are not null.
  // Errors: InvalidArgument when the host is not an address; Unavailable when it cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpOptions options,
                                                           std::unique_ptr<const HttpSite> site, Clock* clock,
                                                           uint64_t id_seed, HttpObserver observer = {});
  ~HttpServer();  // stops
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  // HOST:PORT as bound.
  std::string address() const;

  // Stops accepting, closes idle connections, and waits until the running requests are answered, at most
  // `timeout_ms`. True when nothing is left. Call Stop afterwards.
  bool Drain(int64_t timeout_ms);
  // Cancels what runs, closes everything, waits for all threads. Idempotent.
  void Stop();

  // For gauges: open connections, answers being streamed.
  uint64_t connections() const;
  uint64_t streams() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace epic

#endif  // EPIC_COMMON_HTTP_HTTP_SERVER_H_
