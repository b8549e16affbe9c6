#include "common/http/request_reader.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>

#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>

#include "common/status/error.h"

namespace epic {
namespace {

namespace http = boost::beast::http;

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
         });
}

}  // namespace

RequestReader::RequestReader(const HttpOptions* options)
    : options_(options), buffer_(options->max_header_bytes + options->read_ahead_bytes + 2 * kBlockBytes) {}

void RequestReader::Begin() {
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(options_->max_header_bytes));
  parser_->body_limit(options_->max_body_bytes);
  used_ = head_bytes_ = 0;
  begun_ = head_done_ = body_news_ = false;
}

void RequestReader::Append(std::string_view bytes) {
  const auto space = buffer_.prepare(bytes.size());
  std::memcpy(space.data(), bytes.data(), bytes.size());
  buffer_.commit(bytes.size());
}

RequestReader::Step RequestReader::Next() {
  if (std::exchange(body_news_, false)) return Step::kBody;
  if (head_done_ && parser_->is_done()) return Step::kComplete;
  if (!begun_) SkipEmptyLines();
  if (buffer_.size() == 0) {
    if (!ended_) return Step::kNeedsBytes;
    return begun_ ? Refuse(StatusOf(http::error::partial_message)) : Step::kEnded;
  }
  if (!std::exchange(begun_, true)) return Step::kBegins;
  return Parse();
}

// Empty lines before a request line.
void RequestReader::SkipEmptyLines() {
  while (buffer_.size() > 0) {
    const char c = *static_cast<const char*>(buffer_.data().data());
    if (c != '\r' && c != '\n') return;
    buffer_.consume(1);
  }
}

RequestReader::Step RequestReader::Parse() {
  BeastError ec;
  const size_t used = parser_->put(buffer_.data(), ec);
  buffer_.consume(used);
  used_ += used;
  if (used == 0 && !ec && !parser_->is_done()) ec = http::error::need_more;
  if (!head_done_) {
    head_bytes_ += used;
    const size_t pending = ec == http::error::need_more ? buffer_.size() : 0;
    if (head_bytes_ + pending > options_->max_header_bytes) ec = http::error::header_limit;
  }
  if (ec == http::error::need_more) {
    if (!ended_ && buffer_.size() + kBlockBytes <= buffer_.max_size()) return Step::kNeedsBytes;
    ec = ended_ ? http::error::partial_message : http::error::buffer_overflow;
  }
  if (ec) return Refuse(StatusOf(ec));
  if (head_done_) return Step::kBody;
  if (!parser_->is_header_done()) return Next();
  head_done_ = body_news_ = true;
  parser_->eager(true);
  if (absl::Status status = CheckHead(); !status.ok()) return Refuse(std::move(status));
  return Step::kHead;
}

RequestReader::Step RequestReader::Refuse(absl::Status status) {
  failure_ = std::move(status);
  return Step::kRefused;
}

// A parser's failure as a user can act on it.
absl::Status RequestReader::StatusOf(const BeastError& ec) const {
  if (ec == http::error::body_limit) {
    return Error(ErrorCode::kBodyTooLarge,
                 "the body is larger than " + std::to_string(options_->max_body_bytes) + " bytes; send less");
  }
  if (ec == http::error::header_limit || ec == http::error::buffer_overflow) {
    return Error(ErrorCode::kHeaderTooLarge, "the request line and headers are larger than " +
                                                 std::to_string(options_->max_header_bytes) + " bytes");
  }
  if (ec == http::error::partial_message) {
    return Error(ErrorCode::kInvalidRequest, "the connection was closed before the request was complete");
  }
  return Error(ErrorCode::kInvalidRequest, "malformed HTTP request: " + ec.message());
}

// What makes the rest of the connection unreadable.
absl::Status RequestReader::CheckHead() const {
  const auto& message = parser_->get();
  if (message.version() >= 11 && message.count(http::field::host) != 1) {
    return Error(ErrorCode::kInvalidRequest, "an HTTP/1.1 request needs exactly one Host header");
  }
  if (message.count(http::field::transfer_encoding) > 0 &&
      !EqualsIgnoringCase(View(message[http::field::transfer_encoding]), "chunked")) {
    return Error(ErrorCode::kInvalidRequest, "the only Transfer-Encoding taken is chunked");
  }
  return absl::OkStatus();
}

RequestHead RequestReader::head() const {
  RequestHead head;
  if (!parser_.has_value()) return head;
  const auto& message = parser_->get();
  head.method = View(message.method_string());
  head.target = View(message.target());
  head.content_type = View(message[http::field::content_type]);
  head.content_encoding = View(message[http::field::content_encoding]);
  head.origin = View(message[http::field::origin]);
  head.request_id = View(message["X-Request-Id"]);
  head.traceparent = View(message["traceparent"]);
  head.http11 = message.version() >= 11;
  if (!head_done_) return head;
  head.keep_alive = parser_->keep_alive();
  head.expects_continue = head.http11 && !parser_->is_done() &&
                          EqualsIgnoringCase(View(message[http::field::expect]), "100-continue");
  return head;
}

uint64_t RequestReader::received_body_bytes() const { return parser_->get().body().size(); }

uint64_t RequestReader::body_bytes() const {
  const auto declared = parser_->content_length();
  return std::max<uint64_t>(received_body_bytes(), declared ? *declared : 0);
}

std::string RequestReader::TakeBody() {
  std::string body = std::move(parser_->get().body());
  parser_.reset();
  return body;
}

}  // namespace epic
