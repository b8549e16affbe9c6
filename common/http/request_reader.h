// The bytes of one connection into requests, one after another: the parser, the bytes that wait for it, and
// the bounds on a request's head and body. The byte parser is Beast's.
//
// Owned by its HttpConnection, on whose strand it runs. No sockets, no timers; what a request means is not
// here (routes.h, handlers.h), nor when it must have arrived (connection.h).
#ifndef EPIC_COMMON_HTTP_REQUEST_READER_H_
#define EPIC_COMMON_HTTP_REQUEST_READER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "absl/status/status.h"
#include "common/http/http_options.h"

namespace epic {

// The head of a request as the client sent it; views into the reader, good until its next call.
struct RequestHead {
  std::string_view method, target, content_type, content_encoding, origin, request_id, traceparent;
  bool http11 = true;
  bool keep_alive = true;
  bool expects_continue = false;
};

class RequestReader {
 public:
  // The most bytes that Append takes at once.
  static constexpr size_t kBlockBytes = 16 * 1024;

  enum class Step : uint8_t {
    kNeedsBytes,  // Append, or End, and ask again
    kEnded,       // the client ended its side between two requests
    kBegins,      // the first byte of a request is there
    kHead,        // head() is complete
    kBody,        // more of the body is there
    kComplete,    // the whole request is there: TakeBody
    kRefused,     // failure() says why; nothing more can be read
  };

  // `options` outlive the reader.
  explicit RequestReader(const HttpOptions* options);

  // A new request; bytes that came ahead of it stay.
  void Begin();
  // REQUIRES: bytes.size() <= kBlockBytes, and no more than read_ahead_bytes buffered while no request is
  // read.
  void Append(std::string_view bytes);
  // The client has ended its side: no Append follows.
  void End() { ended_ = true; }
  Step Next();

  // What is known of the head so far; empty before Begin.
  RequestHead head() const;
  const absl::Status& failure() const { return failure_; }
  // The larger of what came of the body and what its head announced.
  uint64_t body_bytes() const;
  uint64_t received_body_bytes() const;
  // REQUIRES: Next said kComplete. Begin comes next.
  std::string TakeBody();

  bool begun() const { return begun_; }  // of the request that is being read
  size_t buffered() const { return buffer_.size(); }
  uint64_t bytes_used() const { return used_; }  // by the request that is being read

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using BeastError = boost::system::error_code;

  void SkipEmptyLines();
  Step Parse();
  Step Refuse(absl::Status status);
  absl::Status StatusOf(const BeastError& ec) const;
  absl::Status CheckHead() const;

  const HttpOptions* const options_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  absl::Status failure_;
  uint64_t used_ = 0;
  uint64_t head_bytes_ = 0;
  bool begun_ = false;
  bool head_done_ = false;
  bool body_news_ = false;  // kBody is due
  bool ended_ = false;
};

}  // namespace epic

#endif  // EPIC_COMMON_HTTP_REQUEST_READER_H_
