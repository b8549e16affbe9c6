#include "services/cli/http_client.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <exception>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

namespace epic {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

constexpr uint64_t kMaxBodyBytes = 256ull << 20;

struct Exchange {
  std::string host, port, method, target, body;
  std::chrono::milliseconds timeout{0};
  const std::function<void(std::string_view)>* on_line = nullptr;
};

// Hands complete lines of `pending` to the callback and keeps the rest.
void TakeLines(std::string* pending, const std::function<void(std::string_view)>& on_line) {
  size_t begin = 0;
  for (size_t end; (end = pending->find('\n', begin)) != std::string::npos; begin = end + 1) {
    std::string_view line(pending->data() + begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    on_line(line);
  }
  pending->erase(0, begin);
}

http::request<http::string_body> MakeRequest(const Exchange& exchange) {
  http::request<http::string_body> request;
  request.method_string({exchange.method.data(), exchange.method.size()});
  request.target({exchange.target.data(), exchange.target.size()});
  request.version(11);
  request.set(http::field::host, exchange.host + ":" + exchange.port);
  request.set(http::field::user_agent, "epic");
  request.keep_alive(false);
  if (!exchange.body.empty()) {
    request.set(http::field::content_type, "application/json");
    request.body() = exchange.body;
  }
  request.prepare_payload();
  return request;
}

// One connection whose operations are asynchronous, so that each has a time limit, and waited for in turn.
class Connection {
 public:
  explicit Connection(const Exchange& exchange) : exchange_(exchange), stream_(io_) {}

  beast::error_code Open() {
    asio::ip::tcp::resolver resolver(io_);
    beast::error_code error;
    const auto endpoints = resolver.resolve(exchange_.host, exchange_.port, error);
    if (error) return error;
    return Wait([&](auto done) {
      stream_.async_connect(endpoints, [done](beast::error_code error, const auto&) { done(error); });
    });
  }

  beast::error_code Send() {
    const http::request<http::string_body> request = MakeRequest(exchange_);
    return Wait([&](auto done) {
      http::async_write(stream_, request, [done](beast::error_code error, size_t) { done(error); });
    });
  }

  beast::error_code Receive(HttpReply* answer) {
    parser_.body_limit(kMaxBodyBytes);
    const beast::error_code error = Wait([&](auto done) {
      http::async_read_header(stream_, buffer_, parser_,
                              [done](beast::error_code error, size_t) { done(error); });
    });
    if (error) return error;
    answer->status = static_cast<int>(parser_.get().result_int());
    for (const auto& field : parser_.get()) {
      std::string name(field.name_string().data(), field.name_string().size());
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      answer->headers[name] = std::string(field.value().data(), field.value().size());
    }
    return ReceiveBody(answer);
  }

 private:
  template <typename Start>
  beast::error_code Wait(Start start) {
    beast::error_code result;
    stream_.expires_after(exchange_.timeout);
    start([&result](beast::error_code error) { result = error; });
    io_.restart();
    io_.run();
    return result;
  }

  beast::error_code ReceiveBody(HttpReply* answer) {
    const bool lines = exchange_.on_line != nullptr && answer->status == 200;
    std::string pending;
    char piece[16 << 10];
    while (!parser_.is_done()) {
      parser_.get().body().data = piece;
      parser_.get().body().size = sizeof(piece);
      const beast::error_code error = Wait([&](auto done) {
        http::async_read_some(stream_, buffer_, parser_,
                              [done](beast::error_code error, size_t) { done(error); });
      });
      if (error && error != http::error::need_buffer) return error;
      std::string& into = lines ? pending : answer->body;
      into.append(piece, sizeof(piece) - parser_.get().body().size);
      if (lines) TakeLines(&pending, *exchange_.on_line);
    }
    if (lines && !pending.empty()) (*exchange_.on_line)(pending);
    return {};
  }

  const Exchange& exchange_;
  asio::io_context io_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  http::response_parser<http::buffer_body> parser_;
};

absl::Status Explain(const std::string& address, const beast::error_code& error) {
  if (error == beast::error::timeout) {
    return absl::DeadlineExceededError("no answer from " + address +
                                       " in time; is the server busy? See `epic status`");
  }
  if (error == asio::error::connection_refused || error == asio::error::host_not_found) {
    return absl::UnavailableError("no EPIC server at " + address +
                                  "; start one with `epic serve`, or name another with --http HOST:PORT");
  }
  return absl::UnavailableError("talking to " + address + " failed: " + error.message());
}

absl::StatusOr<HttpReply> Perform(const std::string& address, const Exchange& exchange) {
  try {
    Connection connection(exchange);
    HttpReply answer;
    beast::error_code error = connection.Open();
    if (!error) error = connection.Send();
    if (!error) error = connection.Receive(&answer);
    if (error) return Explain(address, error);
    return answer;
  } catch (const std::exception& error) {
    return absl::InternalError("talking to " + address + " failed: " + error.what());
  }
}

Exchange Prepare(const std::string& address, std::string_view method, std::string_view target,
                 std::string_view body, int64_t timeout_ms) {
  Exchange exchange;
  const size_t colon = address.rfind(':');
  exchange.host = address.substr(0, colon);
  exchange.port = colon == std::string::npos ? "80" : address.substr(colon + 1);
  if (exchange.host.starts_with('[') && exchange.host.ends_with(']')) {
    exchange.host = exchange.host.substr(1, exchange.host.size() - 2);
  }
  exchange.method = method;
  exchange.target = target;
  exchange.body = body;
  exchange.timeout = std::chrono::milliseconds(timeout_ms);
  return exchange;
}

}  // namespace

absl::StatusOr<HttpReply> HttpClient::Call(std::string_view method, std::string_view target,
                                           std::string_view body, int64_t timeout_ms) const {
  return Perform(address_, Prepare(address_, method, target, body, timeout_ms));
}

absl::StatusOr<HttpReply> HttpClient::Stream(std::string_view method, std::string_view target,
                                             std::string_view body,
                                             const std::function<void(std::string_view line)>& on_line,
                                             int64_t timeout_ms) const {
  Exchange exchange = Prepare(address_, method, target, body, timeout_ms);
  exchange.on_line = &on_line;
  return Perform(address_, exchange);
}

}  // namespace epic
