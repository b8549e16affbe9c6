// What every answer carries besides its body: the printed head, request ids, cross-origin headers. Pure
// functions over plain values.
#ifndef EPIC_COMMON_HTTP_HTTP_HEAD_H_
#define EPIC_COMMON_HTTP_HTTP_HEAD_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "common/http/http_message.h"
#include "common/http/http_options.h"

namespace epic {

// version 00 of W3C trace context: 55 characters, lower-case hexadecimal.
bool IsTraceparent(std::string_view text);
// application/json or application/*+json, with any parameters, in any case; an absent type counts as JSON.
bool IsJsonContentType(std::string_view content_type);

// Whether a body is sent as it is: no Content-Encoding, or identity.
bool IsIdentityEncoding(std::string_view content_encoding);

// Whether a page of `origin` may call. An empty origin is no browser's cross-origin call: true.
bool OriginAllowed(const HttpOptions& options, std::string_view origin);
// Empty when the origin is empty or not allowed.
HttpHeaders CorsHeaders(const HttpOptions& options, std::string_view origin);
// The additional headers of an answer to OPTIONS.
HttpHeaders PreflightHeaders(const HttpOptions& options, std::string_view origin, std::string_view allow);

struct HeadContext {
  std::string_view request_id;
  std::string_view traceparent;
  std::string_view origin;
  bool keep_alive = true;
  bool http11 = true;
  bool streamed = false;  // chunked for HTTP/1.1, else ended by the close
  int64_t unix_ms = 0;    // for Date
};

// The status line and the header lines with the empty line. Line breaks inside a value become spaces.
std::string PrintHead(const HttpOptions& options, const HttpAnswer& answer, const HeadContext& context);

// `bytes` as one chunk of chunked coding. REQUIRES: not empty.
std::string PrintChunk(std::string_view bytes);

}  // namespace epic

#endif  // EPIC_COMMON_HTTP_HTTP_HEAD_H_
