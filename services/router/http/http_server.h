// One HTTP listener: the public door or the admin door, over the Apis.
//
// Owns its I/O threads, its worker threads and its connections. Start, Drain and Stop are called by the
// owner; the Apis, the clock and the observer outlive it. No Beast in this header. TLS is not here.
#ifndef EPIC_SERVICES_ROUTER_HTTP_HTTP_SERVER_H_
#define EPIC_SERVICES_ROUTER_HTTP_HTTP_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "services/router/core/api.h"
#include "services/router/http/http_event.h"
#include "services/router/http/http_options.h"

namespace epic {

class HttpServer {
 public:
  // Listens when it returns. `id_seed` makes the generated request ids of two processes differ.
  // REQUIRES: the Apis that the door's routes need are set; clock is not null.
  // Errors: InvalidArgument when the host is not an address; Unavailable when it cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpOptions options, Apis apis, Clock* clock,
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

#endif  // EPIC_SERVICES_ROUTER_HTTP_HTTP_SERVER_H_
