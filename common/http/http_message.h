// One request and one answer of HTTP as plain values, without any of Beast. No threads.
#ifndef EPIC_COMMON_HTTP_HTTP_MESSAGE_H_
#define EPIC_COMMON_HTTP_HTTP_MESSAGE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace epic {

struct HttpRequest {
  std::string method;  // upper case, as sent
  std::string path;    // still percent-encoded, begins with '/'
  std::string query;   // without the '?'
  std::string content_type;
  std::string content_encoding;
  std::string origin;
  std::string request_id;  // taken from the client or generated
  std::string traceparent;
  std::string body;
  int64_t received_steady_ns = 0;
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpAnswer {
  int status = 200;
  std::string_view code = "ok";  // for the log and the metrics: ok, or the name of the error; a constant
  std::string cause;             // of an unexpected error, for the log; never sent
  std::string content_type = "application/json";
  HttpHeaders headers;
  std::string body;
};

}  // namespace epic

#endif  // EPIC_COMMON_HTTP_HTTP_MESSAGE_H_
