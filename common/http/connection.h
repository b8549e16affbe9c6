// One TCP connection of an HTTP door: reads requests one after another, hands each to the site with an
// Exchange, writes what the exchange holds, and notices a client that goes away while its request runs.
//
// Owned by its own pending operations; everything but the constructor runs on the connection's strand. How
// bytes become requests is not here (request_reader.h), nor what a request means (http_site.h), nor how
// answers look (http_head.h).
#ifndef EPIC_COMMON_HTTP_CONNECTION_H_
#define EPIC_COMMON_HTTP_CONNECTION_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/request_ids.h"
#include "common/http/exchange.h"
#include "common/http/http_event.h"
#include "common/http/http_message.h"
#include "common/http/http_options.h"
#include "common/http/http_site.h"
#include "common/http/request_reader.h"

namespace epic {

// What all connections of one door share. Outlives them.
struct HttpDoorState {
  explicit HttpDoorState(uint64_t id_seed) : request_ids(id_seed) {}

  // Constant after construction.
  HttpOptions options;
  Clock* clock = nullptr;
  const HttpSite* site = nullptr;
  Executor* workers = nullptr;  // for what may block
  HttpObserver observer;
  std::function<void(uint64_t connection_id)> on_closed;
  // Synchronise themselves.
  RequestIds request_ids;
  std::atomic<bool> draining{false};
  std::atomic<uint64_t> body_bytes{0};
  std::atomic<uint64_t> streams{0};  // answers being streamed
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(boost::asio::ip::tcp::socket socket, HttpDoorState* door, uint64_t id);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // Any thread; each posts to the strand.
  void Start();
  void StartRefused();  // too many connections: answers 429 and closes
  void Drain();         // closes when idle, else after the running request
  void Abort();         // cancels the running request and closes now

 private:
  using AsioError = boost::system::error_code;
  using SteadyTime = boost::asio::steady_timer::time_point;

  enum class State : uint8_t {
    kReading,    // waiting for a request or amid one
    kBusy,       // a request runs; the socket is watched
    kClosing,    // the last bytes are being written
    kLingering,  // nothing more to say; reading on until the client has closed
    kClosed,
  };

  template <typename Method>
  void Post(Method method);

  // --- reading
  void BeginRequest(int64_t timeout_ms);
  void ReadMore();
  void OnRead(AsioError ec, size_t bytes);
  void OnEof();
  void WatchForReset();
  void ReadRequest();
  // One step of the reader; false when the request is handed over, refused, or waits for bytes.
  bool ReadStep();
  void OnHead();
  void OnBody();
  void Refuse(const absl::Status& status);

  // --- one request
  void TakeHead();
  absl::Status CheckRequest() const;
  void Dispatch();
  void RunOnWorker();
  std::shared_ptr<Exchange> NewExchange();
  void OnClientGone();
  void EndStreaming();
  void FinishRequest();
  void Report(int status, std::string_view code);
  HttpAnswer RefusalAnswer(const absl::Status& status) const;

  // --- writing
  void AppendHead(const HttpAnswer& answer, bool streamed);
  bool AppendOutput();
  void AppendPing();
  void Pump();
  void WriteSome();
  void OnWritten(AsioError ec, size_t bytes);
  void CloseAfterWrites();

  // --- timers and the end
  void ArmRead(SteadyTime when);
  void ArmReadIn(int64_t timeout_ms);
  void OnReadDeadline();
  void ProbeHalfClosed();
  void ArmWrite();
  void ArmHeartbeat(SteadyTime when);
  void OnHeartbeat();
  void ReleaseBody();
  void Close();

  // Constant after construction.
  HttpDoorState* const door_;
  const uint64_t id_;
  // One thread only: the strand.
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer read_timer_;
  boost::asio::steady_timer write_timer_;
  boost::asio::steady_timer heartbeat_timer_;
  State state_ = State::kReading;

  // Reading.
  std::vector<char> block_;  // where the socket's next bytes land; at most one read is outstanding
  RequestReader reader_;
  bool reading_ = false;
  bool peer_eof_ = false;
  bool watching_reset_ = false;
  bool unread_input_ = false;  // the client may still be sending what nobody reads
  SteadyTime body_started_;
  uint64_t accounted_body_bytes_ = 0;

  // The request.
  HttpRequest request_;
  absl::StatusOr<HttpRoute> match_;
  bool head_taken_ = false;
  bool head_only_ = false;
  bool http11_ = true;
  bool keep_alive_ = true;
  std::shared_ptr<Exchange> exchange_;
  bool head_sent_ = false;
  bool streaming_ = false;
  bool complete_ = false;
  int status_ = 0;
  std::string_view code_ = "ok";
  std::string cause_;

  // Writing.
  std::string next_out_;  // to be written after out_
  std::string out_;
  size_t out_sent_ = 0;
  bool writing_ = false;
  uint64_t bytes_out_ = 0;
  SteadyTime last_output_;
};

}  // namespace epic

#endif  // EPIC_COMMON_HTTP_CONNECTION_H_
