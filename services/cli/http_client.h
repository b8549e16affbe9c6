// A small HTTP/1.1 client for the `epic` command: one request per call, bodies as text or line by line.
//
// Blocking, one thread at a time, every call bounded by its timeout. Plain HTTP only. No Boost in this
// header.
#ifndef EPIC_SERVICES_CLI_HTTP_CLIENT_H_
#define EPIC_SERVICES_CLI_HTTP_CLIENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace epic {

struct HttpReply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

class HttpClient {
 public:
  // `address` is HOST:PORT (validated by the caller).
  explicit HttpClient(std::string address) : address_(std::move(address)) {}
  const std::string& address() const { return address_; }

  // Errors: Unavailable when nobody answers (the message says how to start a server), DeadlineExceeded past
  // `timeout_ms` of silence, Internal for an answer that is not HTTP. Any HTTP status is an answer, not an
  // error.
  absl::StatusOr<HttpReply> Call(std::string_view method, std::string_view target, std::string_view body = {},
                                 int64_t timeout_ms = 70'000) const;

  // Calls on_line for every line of the body as it arrives, without its end. The body of an answer whose
  // status is not 200 comes back whole instead.
  absl::StatusOr<HttpReply> Stream(std::string_view method, std::string_view target, std::string_view body,
                                   const std::function<void(std::string_view line)>& on_line,
                                   int64_t timeout_ms = 70'000) const;

 private:
  const std::string address_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_CLI_HTTP_CLIENT_H_
