// Every limit and setting of the HTTP doors, with its default. The composition fills one per door from the
// configuration. A plain value.
#ifndef EPIC_COMMON_HTTP_HTTP_OPTIONS_H_
#define EPIC_COMMON_HTTP_HTTP_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace epic {

// Which set of routes a listener serves.
enum class HttpDoor : uint8_t { kPublic, kAdmin };

struct HttpOptions {
  HttpDoor door = HttpDoor::kPublic;
  std::string host = "127.0.0.1";  // an IP address or localhost
  uint16_t port = 0;               // 0: any free port
  uint32_t io_threads = 2;
  uint32_t worker_threads = 4;
  uint32_t worker_queue = 256;  // requests waiting for a worker; beyond it 429 queue_full
  uint32_t max_connections = 1024;

  size_t max_header_bytes = 32 * 1024;
  size_t max_body_bytes = 32ull << 20;
  size_t max_total_body_bytes = 256ull << 20;  // over all requests that are being received or answered
  uint32_t max_json_depth = 64;
  uint32_t max_json_values = 2'000'000;
  // Read ahead of a pipelining client while its earlier request runs; beyond it the socket is left unread.
  size_t read_ahead_bytes = 64 * 1024;
  // Unsent bytes of one stream; more and the reader is cut off.
  size_t stream_buffer_bytes = 4ull << 20;

  int64_t header_timeout_ms = 15'000;  // from the first byte of a request, or from the connection's start
  int64_t body_timeout_ms = 60'000;    // longer by one second for every min_body_bytes_per_s received
  int64_t min_body_bytes_per_s = 16 * 1024;
  int64_t idle_timeout_ms = 120'000;  // between two requests of a connection
  int64_t write_timeout_ms = 10'000;  // without one byte taken by the reader
  int64_t linger_timeout_ms = 2'000;  // reading on after an early refusal, so that it arrives
  // A client that half-closes is asked, after this time, whether it still listens (see README.md).
  int64_t half_close_probe_ms = 200;
  int64_t heartbeat_ms = 1'000;           // ": ping" on a silent stream; 0: none
  int64_t request_deadline_ms = 600'000;  // of RequestScope; 0: none
  int64_t retry_after_ms = 1'000;         // advice where an error carries none of its own

  // Origins that browsers may call from, exactly as they send them, or "*" for all. Empty: none; then a
  // request with an Origin header is refused unless it is a GET or HEAD, which browsers cannot read.
  std::vector<std::string> allowed_origins;

  std::string version = "0.0.0";
  std::string build;  // for /version: a commit or a date
};

}  // namespace epic

#endif  // EPIC_COMMON_HTTP_HTTP_OPTIONS_H_
