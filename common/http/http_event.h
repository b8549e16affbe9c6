// What a door tells about each request when it is over, for the log and the metrics. A plain value; no text
// of users in it.
#ifndef EPIC_COMMON_HTTP_HTTP_EVENT_H_
#define EPIC_COMMON_HTTP_HTTP_EVENT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace epic {

struct HttpEvent {
  std::string_view call;         // create_context, chat, …; "none" when no route was found
  int status = 0;                // 499: the client went away first
  std::string_view code = "ok";  // ok, or the name of the error, also of one in a stream after its 200
  std::string cause;             // of an unexpected error, for the log
  std::string request_id;
  std::string traceparent;  // empty: none
  int64_t duration_us = 0;
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
};

// Called on an I/O thread; must not block. May be empty.
using HttpObserver = std::function<void(const HttpEvent&)>;

}  // namespace epic

#endif  // EPIC_COMMON_HTTP_HTTP_EVENT_H_
