// A small HTTP client over a blocking socket with deadlines, for tests: it sends any bytes and reads answers
// exactly. Tests only; one thread.
#ifndef EPIC_SERVICES_ROUTER_HTTP_TESTING_RAW_CLIENT_H_
#define EPIC_SERVICES_ROUTER_HTTP_TESTING_RAW_CLIENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace epic::testing {

struct RawAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;  // lower-case names; repeated ones joined by ", "
  std::string body;                            // chunked coding undone
  bool chunked = false;
};

class RawClient {
 public:
  // Connects to 127.0.0.1. Every read and write fails after `timeout_ms`.
  explicit RawClient(uint16_t port, int timeout_ms = 10'000, int receive_buffer_bytes = 0);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return fd_ >= 0; }
  // False when the peer has closed or the time is over.
  bool Send(std::string_view bytes);
  // "METHOD path HTTP/1.1" with Host, Content-Type when there is a body, Content-Length and `headers` (each
  // with its line break).
  bool Request(std::string_view method, std::string_view path, std::string_view body = {},
               std::string_view headers = {});
  // Next answer; interim (1xx) ones are skipped and counted. nullopt when the connection ends or time is
  // over.
  std::optional<RawAnswer> Read(bool head_only = false);
  // The head of the next answer; its body is then read by ReadBytes or ReadUntil.
  std::optional<RawAnswer> ReadHead();
  // Bytes up to and with `mark`, undecoded; nullopt on the end or a timeout.
  std::optional<std::string> ReadUntil(std::string_view mark);
  // The next `size` bytes.
  std::optional<std::string> ReadBytes(size_t size);
  // True when the peer closes (or resets) before anything else arrives.
  bool ReadsEnd();
  // Discards all that comes; true when the peer closes within the timeout.
  bool DiscardsToEnd();
  void ShutdownWrite();
  void Close();
  int interim_answers() const { return interim_; }

 private:
  bool Fill();
  std::optional<std::string> ReadChunked();

  int fd_ = -1;
  std::string buffer_;
  int interim_ = 0;
};

// One request on a connection of its own.
std::optional<RawAnswer> Ask(uint16_t port, std::string_view method, std::string_view path,
                             std::string_view body = {}, std::string_view headers = {});

}  // namespace epic::testing

#endif  // EPIC_SERVICES_ROUTER_HTTP_TESTING_RAW_CLIENT_H_
