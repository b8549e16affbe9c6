#include "services/router/http/testing/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <charconv>
#include <utility>

namespace epic::testing {
namespace {

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

RawAnswer ParseHead(std::string_view head) {
  RawAnswer answer;
  const size_t space = head.find(' ');
  if (space != std::string_view::npos && space + 4 <= head.size()) {
    std::from_chars(head.data() + space + 1, head.data() + space + 4, answer.status);
  }
  size_t line = head.find("\r\n");
  while (line != std::string_view::npos && line + 2 < head.size()) {
    const size_t end = head.find("\r\n", line + 2);
    const std::string_view field = head.substr(line + 2, end - line - 2);
    if (const size_t colon = field.find(": "); colon != std::string_view::npos) {
      std::string& value = answer.headers[Lower(std::string(field.substr(0, colon)))];
      if (!value.empty()) value += ", ";
      value += std::string(field.substr(colon + 2));
    }
    line = end;
  }
  answer.chunked = answer.headers["transfer-encoding"] == "chunked";
  return answer;
}

}  // namespace

RawClient::RawClient(uint16_t port, int timeout_ms, int receive_buffer_bytes) {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd_ < 0) return;
  const timeval limit{timeout_ms / 1000, (timeout_ms % 1000) * 1000};
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  if (receive_buffer_bytes > 0) {
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(receive_buffer_bytes));
  }
  const int one = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) Close();
}

RawClient::~RawClient() { Close(); }

void RawClient::Close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void RawClient::ShutdownWrite() { ::shutdown(fd_, SHUT_WR); }

bool RawClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool RawClient::Request(std::string_view method, std::string_view path, std::string_view body,
                        std::string_view headers) {
  std::string text;
  text.append(method).append(" ").append(path).append(" HTTP/1.1\r\nHost: localhost\r\n");
  if (!body.empty()) {
    if (Lower(std::string(headers)).find("content-type:") == std::string::npos) {
      text += "Content-Type: application/json\r\n";
    }
    text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  }
  text.append(headers).append("\r\n").append(body);
  return Send(text);
}

bool RawClient::Fill() {
  char block[65536];
  const ssize_t got = ::recv(fd_, block, sizeof(block), 0);
  if (got <= 0) return false;
  buffer_.append(block, static_cast<size_t>(got));
  return true;
}

std::optional<std::string> RawClient::ReadUntil(std::string_view mark) {
  size_t at = buffer_.find(mark);
  while (at == std::string::npos) {
    if (!Fill()) return std::nullopt;
    at = buffer_.find(mark);
  }
  std::string out = buffer_.substr(0, at + mark.size());
  buffer_.erase(0, at + mark.size());
  return out;
}

std::optional<std::string> RawClient::ReadBytes(size_t size) {
  while (buffer_.size() < size) {
    if (!Fill()) return std::nullopt;
  }
  std::string out = buffer_.substr(0, size);
  buffer_.erase(0, size);
  return out;
}

std::optional<RawAnswer> RawClient::ReadHead() {
  for (;;) {
    const std::optional<std::string> head = ReadUntil("\r\n\r\n");
    if (!head.has_value()) return std::nullopt;
    RawAnswer answer = ParseHead(*head);
    if (answer.status < 100 || answer.status >= 200) return answer;
    ++interim_;
  }
}

std::optional<std::string> RawClient::ReadChunked() {
  std::string out;
  for (;;) {
    const std::optional<std::string> line = ReadUntil("\r\n");
    if (!line.has_value()) return std::nullopt;
    size_t size = 0;
    std::from_chars(line->data(), line->data() + line->size() - 2, size, 16);
    const std::optional<std::string> data = ReadBytes(size + 2);
    if (!data.has_value()) return std::nullopt;
    if (size == 0) return out;
    out.append(*data, 0, size);
  }
}

std::optional<RawAnswer> RawClient::Read(bool head_only) {
  std::optional<RawAnswer> answer = ReadHead();
  if (!answer.has_value() || head_only || answer->status == 204) return answer;
  std::optional<std::string> body;
  if (answer->chunked) {
    body = ReadChunked();
  } else if (answer->headers.contains("content-length")) {
    body = ReadBytes(std::stoul(answer->headers["content-length"]));
  } else {
    while (Fill()) {
    }
    body = std::exchange(buffer_, std::string());
  }
  if (!body.has_value()) return std::nullopt;
  answer->body = *std::move(body);
  return answer;
}

bool RawClient::ReadsEnd() {
  errno = 0;
  return buffer_.empty() && !Fill() && errno != EAGAIN && errno != EWOULDBLOCK;
}

bool RawClient::DiscardsToEnd() {
  char block[65536];
  for (;;) {
    errno = 0;
    const ssize_t got = ::recv(fd_, block, sizeof(block), 0);
    if (got == 0) return true;
    if (got < 0) return errno != EAGAIN && errno != EWOULDBLOCK;
  }
}

std::optional<RawAnswer> Ask(uint16_t port, std::string_view method, std::string_view path,
                             std::string_view body, std::string_view headers) {
  RawClient client(port);
  if (!client.connected() || !client.Request(method, path, body, headers)) return std::nullopt;
  return client.Read(method == "HEAD");
}

}  // namespace epic::testing
