#include "common/http/connection.h"

#include <algorithm>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>

#include "common/http/error_answer.h"
#include "common/http/http_head.h"
#include "common/http/target.h"
#include "common/status/error.h"

namespace epic {
namespace {

namespace asio = boost::asio;
using Timer = asio::steady_timer;
using std::chrono::milliseconds;

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::string_view kPing = ": ping\n\n";

}  // namespace

HttpConnection::HttpConnection(asio::ip::tcp::socket socket, HttpDoorState* door, uint64_t id)
    : door_(door),
      id_(id),
      socket_(std::move(socket)),
      read_timer_(socket_.get_executor()),
      write_timer_(socket_.get_executor()),
      heartbeat_timer_(socket_.get_executor()),
      block_(RequestReader::kBlockBytes),
      reader_(&door->options),
      match_(absl::UnknownError("no request yet")) {}

HttpConnection::~HttpConnection() {
  ReleaseBody();
  door_->on_closed(id_);
}

template <typename Method>
void HttpConnection::Post(Method method) {
  asio::post(socket_.get_executor(), [self = shared_from_this(), method] { (self.get()->*method)(); });
}

void HttpConnection::Start() {
  asio::post(socket_.get_executor(),
             [self = shared_from_this()] { self->BeginRequest(self->door_->options.header_timeout_ms); });
}

void HttpConnection::StartRefused() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->Refuse(RetryLater(ErrorCode::kQueueFull, "too many connections; try again soon",
                            self->door_->options.retry_after_ms));
  });
}

void HttpConnection::Drain() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    const RequestReader& reader = self->reader_;
    if (self->state_ == State::kReading && !reader.begun() && reader.buffered() == 0) self->Close();
  });
}

void HttpConnection::Abort() { Post(&HttpConnection::OnClientGone); }

// --- reading

void HttpConnection::BeginRequest(int64_t timeout_ms) {
  if (state_ == State::kClosed) return;
  state_ = State::kReading;
  reader_.Begin();
  request_ = HttpRequest();
  match_ = absl::UnknownError("no request yet");
  head_taken_ = head_only_ = head_sent_ = streaming_ = complete_ = false;
  http11_ = keep_alive_ = true;
  status_ = 0;
  bytes_out_ = 0;
  ArmReadIn(timeout_ms);
  ReadRequest();
}

void HttpConnection::ReadMore() {
  if (reading_ || peer_eof_ || state_ == State::kClosed) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(block_), [self = shared_from_this()](AsioError ec, size_t bytes) {
    self->OnRead(ec, bytes);
  });
}

void HttpConnection::OnRead(AsioError ec, size_t bytes) {
  reading_ = false;
  if (state_ == State::kClosed) return;
  if (ec == asio::error::eof) return OnEof();
  if (ec) return OnClientGone();
  if (state_ == State::kLingering || state_ == State::kClosing) return ReadMore();
  reader_.Append({block_.data(), bytes});
  if (state_ == State::kReading) return ReadRequest();
  // A request runs: what came belongs to the next one. Beyond the bound the socket stays unread.
  if (reader_.buffered() < door_->options.read_ahead_bytes) {
    ReadMore();
  } else {
    WatchForReset();
  }
}

void HttpConnection::OnEof() {
  peer_eof_ = true;
  reader_.End();
  switch (state_) {
    case State::kReading:
      return ReadRequest();
    case State::kBusy:
      // Half-closed or gone: only an answer from the other side can tell.
      WatchForReset();
      return ArmReadIn(door_->options.half_close_probe_ms);
    case State::kClosing:
      return WatchForReset();
    case State::kLingering:
    case State::kClosed:
      return Close();
  }
}

void HttpConnection::WatchForReset() {
  if (watching_reset_ || state_ == State::kClosed) return;
  watching_reset_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_error, [self = shared_from_this()](AsioError ec) {
    self->watching_reset_ = false;
    if (!ec) self->OnClientGone();
  });
}

void HttpConnection::ReadRequest() {
  while (state_ == State::kReading && ReadStep()) {
  }
}

bool HttpConnection::ReadStep() {
  switch (reader_.Next()) {
    case RequestReader::Step::kNeedsBytes:
      ReadMore();
      return false;
    case RequestReader::Step::kEnded:
      Close();
      return false;
    case RequestReader::Step::kBegins:
      request_.received_steady_ns = door_->clock->SteadyNs();
      ArmReadIn(door_->options.header_timeout_ms);
      return true;
    case RequestReader::Step::kHead:
      OnHead();
      return true;
    case RequestReader::Step::kBody:
      OnBody();
      return true;
    case RequestReader::Step::kComplete:
      Dispatch();
      return false;
    case RequestReader::Step::kRefused:
      Refuse(reader_.failure());
      return false;
  }
  return false;
}

void HttpConnection::OnHead() {
  TakeHead();
  if (reader_.head().expects_continue) {
    // A refusal now spares the client its body.
    if (const absl::Status status = CheckRequest(); !status.ok()) return Refuse(status);
    next_out_ += kContinue;
    Pump();
  }
  body_started_ = Timer::clock_type::now();
  ArmReadIn(door_->options.body_timeout_ms);
}

// Keeps the sum of all bodies under its bound and gives a body that keeps coming more time.
void HttpConnection::OnBody() {
  const HttpOptions& options = door_->options;
  const uint64_t need = reader_.body_bytes();
  if (need > accounted_body_bytes_) {
    const uint64_t more = need - accounted_body_bytes_;
    accounted_body_bytes_ = need;
    if (door_->body_bytes.fetch_add(more) + more > options.max_total_body_bytes) {
      return Refuse(RetryLater(ErrorCode::kQueueFull, "too many large bodies at once; try again soon",
                               options.retry_after_ms));
    }
  }
  const uint64_t received = reader_.received_body_bytes();
  if (received > 0 && options.min_body_bytes_per_s > 0) {
    const int64_t earned_ms = static_cast<int64_t>(received) * 1000 / options.min_body_bytes_per_s;
    ArmRead(body_started_ + milliseconds(options.body_timeout_ms + earned_ms));
  }
}

// Answers without running anything and closes: the rest of the input cannot be trusted or is not wanted.
void HttpConnection::Refuse(const absl::Status& status) {
  if (state_ == State::kClosed) return;
  if (!head_taken_) TakeHead();
  keep_alive_ = false;
  unread_input_ = true;
  const HttpAnswer answer = RefusalAnswer(status);
  state_ = State::kClosing;
  AppendHead(answer, /*streamed=*/false);
  if (!head_only_) next_out_ += answer.body;
  Report(answer.status, answer.code);
  ReadMore();
  Pump();
}

// --- one request

void HttpConnection::TakeHead() {
  head_taken_ = true;
  const RequestHead head = reader_.head();
  request_.method = std::string(head.method);
  head_only_ = head.method == "HEAD";
  http11_ = head.http11;
  keep_alive_ = head.keep_alive;
  request_.content_type = std::string(head.content_type);
  request_.content_encoding = std::string(head.content_encoding);
  request_.origin = std::string(head.origin);
  request_.request_id = door_->request_ids.TakeOrMake(head.request_id);
  if (IsTraceparent(head.traceparent)) request_.traceparent = std::string(head.traceparent);
  if (head.method.empty()) return;
  absl::StatusOr<Target> target = SplitTarget(head.target);
  if (!target.ok()) {
    match_ = target.status();
    return;
  }
  request_.path = std::move(target->path);
  request_.query = std::move(target->query);
  match_ = door_->site->Match(request_.method, request_.path);
}

// What is wrong with the request before its body matters.
absl::Status HttpConnection::CheckRequest() const {
  if (!match_.ok()) return match_.status();
  const bool reads_only =
      request_.method == "GET" || request_.method == "HEAD" || request_.method == "OPTIONS";
  if (!reads_only && !OriginAllowed(door_->options, request_.origin)) {
    return Error(ErrorCode::kPermissionDenied,
                 "pages of this origin may not call; add it to the allowed origins of the HTTP door");
  }
  if (!match_->takes_body) return absl::OkStatus();
  if (!IsJsonContentType(request_.content_type)) {
    return Error(ErrorCode::kUnsupportedMediaType, "send the body with Content-Type: application/json");
  }
  if (!IsIdentityEncoding(request_.content_encoding)) {
    return Error(ErrorCode::kUnsupportedMediaType, "send the body without Content-Encoding");
  }
  return absl::OkStatus();
}

void HttpConnection::Dispatch() {
  request_.body = reader_.TakeBody();
  state_ = State::kBusy;
  read_timer_.cancel();
  exchange_ = NewExchange();
  if (const absl::Status status = CheckRequest(); !status.ok()) {
    exchange_->Answer(RefusalAnswer(status));
  } else if (match_->preflight) {
    HttpAnswer answer;
    answer.status = 204;
    answer.headers = PreflightHeaders(door_->options, request_.origin, match_->allow);
    exchange_->Answer(std::move(answer));
  } else if (match_->instant) {
    door_->site->Handle(*match_, request_, exchange_);
  } else {
    RunOnWorker();
  }
  // Watch the socket while the request runs.
  if (peer_eof_) return OnEof();
  if (reader_.buffered() < door_->options.read_ahead_bytes) return ReadMore();
  WatchForReset();
}

void HttpConnection::RunOnWorker() {
  HttpRequest request = request_;
  request.body = std::move(request_.body);
  const bool taken = door_->workers->TrySubmit(
      [site = door_->site, match = *match_, request = std::move(request), exchange = exchange_]() mutable {
        // A call whose client went while it waited is not run.
        if (exchange->cancel_token().cancelled()) return;
        site->Handle(match, std::move(request), std::move(exchange));
      });
  if (taken) return;
  exchange_->Answer(RefusalAnswer(RetryLater(ErrorCode::kQueueFull, "too many requests wait; try again soon",
                                             door_->options.retry_after_ms)));
}

std::shared_ptr<Exchange> HttpConnection::NewExchange() {
  return std::make_shared<Exchange>(door_->options.stream_buffer_bytes,
                                    [self = shared_from_this(), executor = socket_.get_executor()] {
                                      asio::post(executor, [self] { self->Pump(); });
                                    });
}

HttpAnswer HttpConnection::RefusalAnswer(const absl::Status& status) const {
  HttpAnswer answer = ErrorAnswer(status, door_->options.retry_after_ms);
  if (answer.status == 405) {
    answer.headers.emplace_back("Allow", door_->site->Allow(request_.path));
  }
  return answer;
}

void HttpConnection::OnClientGone() {
  if (state_ == State::kClosed) return;
  if (exchange_ != nullptr) {
    exchange_->Cancel();
    Report(InfoOf(ErrorCode::kClientGone).http_status, InfoOf(ErrorCode::kClientGone).name);
  }
  Close();
}

void HttpConnection::EndStreaming() {
  if (streaming_) door_->streams.fetch_sub(1);
  streaming_ = false;
}

void HttpConnection::FinishRequest() {
  EndStreaming();
  Report(status_, code_);
  exchange_->Detach();
  exchange_.reset();
  heartbeat_timer_.cancel();
  read_timer_.cancel();
  ReleaseBody();
  if (keep_alive_ && !door_->draining.load()) return BeginRequest(door_->options.idle_timeout_ms);
  unread_input_ = reader_.buffered() > 0;
  state_ = State::kClosing;
  CloseAfterWrites();
}

void HttpConnection::Report(int status, std::string_view code) {
  if (!door_->observer) return;
  HttpEvent event;
  event.call = match_.ok() ? match_->name : "none";
  event.status = status;
  event.code = code;
  event.cause = std::exchange(cause_, std::string());
  event.request_id = request_.request_id;
  event.traceparent = request_.traceparent;
  if (request_.received_steady_ns > 0) {
    event.duration_us = (door_->clock->SteadyNs() - request_.received_steady_ns) / 1000;
  }
  event.bytes_in = reader_.bytes_used();
  event.bytes_out = bytes_out_;
  door_->observer(event);
}

// --- writing

void HttpConnection::AppendHead(const HttpAnswer& answer, bool streamed) {
  HeadContext context;
  context.request_id = request_.request_id;
  context.traceparent = request_.traceparent;
  context.origin = request_.origin;
  context.keep_alive = keep_alive_ && !door_->draining.load();
  context.http11 = http11_;
  context.streamed = streamed;
  context.unix_ms = door_->clock->UnixMs();
  next_out_ += PrintHead(door_->options, answer, context);
}

// Moves what the exchange holds into next_out_. False when the connection was closed instead.
bool HttpConnection::AppendOutput() {
  Exchange::Output output = exchange_->Take();
  if (output.overflowed) {
    OnClientGone();
    return false;
  }
  if (output.head.has_value()) {
    head_sent_ = true;
    status_ = output.head->status;
    code_ = output.head->code;
    cause_ = output.head->cause;
    streaming_ = output.streamed;
    if (streaming_) door_->streams.fetch_add(1);
    if (streaming_ && !http11_) keep_alive_ = false;
    AppendHead(*output.head, streaming_);
    if (!streaming_ && !head_only_) next_out_ += output.head->body;
    if (streaming_ && door_->options.heartbeat_ms > 0) {
      ArmHeartbeat(Timer::clock_type::now() + milliseconds(door_->options.heartbeat_ms));
    }
  }
  if (!output.bytes.empty()) next_out_ += http11_ ? PrintChunk(output.bytes) : output.bytes;
  if (output.complete) {
    complete_ = true;
    if (streaming_) {
      code_ = output.code;
      cause_ = output.cause;
    }
    if (streaming_ && http11_) next_out_ += "0\r\n\r\n";
  }
  return true;
}

void HttpConnection::AppendPing() { next_out_ += http11_ ? PrintChunk(kPing) : std::string(kPing); }

void HttpConnection::Pump() {
  if (state_ == State::kClosed) return;
  if (writing_) {
    // A reader that has stopped is not waited for.
    if (exchange_ != nullptr && exchange_->overflowed()) OnClientGone();
    return;
  }
  if (exchange_ != nullptr && !complete_ && !AppendOutput()) return;
  if (next_out_.empty()) {
    if (state_ == State::kBusy && complete_) {
      FinishRequest();
    } else if (state_ == State::kClosing) {
      CloseAfterWrites();
    }
    return;
  }
  out_.clear();
  out_.swap(next_out_);
  out_sent_ = 0;
  writing_ = true;
  last_output_ = Timer::clock_type::now();
  WriteSome();
}

void HttpConnection::WriteSome() {
  ArmWrite();
  socket_.async_write_some(
      asio::buffer(out_.data() + out_sent_, out_.size() - out_sent_),
      [self = shared_from_this()](AsioError ec, size_t bytes) { self->OnWritten(ec, bytes); });
}

void HttpConnection::OnWritten(AsioError ec, size_t bytes) {
  if (state_ == State::kClosed) return;
  if (ec) return OnClientGone();
  out_sent_ += bytes;
  bytes_out_ += bytes;
  if (out_sent_ < out_.size()) return WriteSome();
  writing_ = false;
  write_timer_.cancel();
  if (out_.capacity() > (1u << 20)) out_ = std::string();
  Pump();
}

void HttpConnection::CloseAfterWrites() {
  if (!unread_input_ || peer_eof_) return Close();
  // Closing now would make the kernel send a reset for the input that nobody read, and the client could lose
  // the answer: end our side and read on for a while.
  state_ = State::kLingering;
  AsioError ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  ArmReadIn(door_->options.linger_timeout_ms);
  ReadMore();
}

// --- timers and the end

void HttpConnection::ArmReadIn(int64_t timeout_ms) {
  ArmRead(Timer::clock_type::now() + milliseconds(timeout_ms));
}

void HttpConnection::ArmRead(SteadyTime when) {
  read_timer_.expires_at(when);
  read_timer_.async_wait([self = shared_from_this()](AsioError ec) {
    // A timer that was set anew may still deliver its old expiry.
    if (!ec && self->read_timer_.expiry() <= Timer::clock_type::now()) self->OnReadDeadline();
  });
}

void HttpConnection::OnReadDeadline() {
  switch (state_) {
    case State::kReading:
      if (!reader_.begun()) return Close();
      return Refuse(Error(ErrorCode::kRequestTimeout, "the request did not arrive in time; send it faster"));
    case State::kBusy:
      return ProbeHalfClosed();
    case State::kClosing:  // the write deadline rules
      return;
    case State::kLingering:
    case State::kClosed:
      return Close();
  }
}

// The client has ended its side while its request runs. If it only half-closed it reads these bytes as
// nothing; if it is gone its kernel answers them with a reset, which WatchForReset sees.
void HttpConnection::ProbeHalfClosed() {
  if (!peer_eof_ || complete_) return;
  if (streaming_) {
    AppendPing();
  } else if (!http11_) {
    return OnClientGone();  // HTTP/1.0 knows no interim answer to ask with
  } else if (!head_sent_) {
    next_out_ += kContinue;
  }
  Pump();
}

void HttpConnection::ArmWrite() {
  write_timer_.expires_after(milliseconds(door_->options.write_timeout_ms));
  write_timer_.async_wait([self = shared_from_this()](AsioError ec) {
    if (ec || !self->writing_ || self->write_timer_.expiry() > Timer::clock_type::now()) return;
    self->OnClientGone();
  });
}

void HttpConnection::ArmHeartbeat(SteadyTime when) {
  heartbeat_timer_.expires_at(when);
  heartbeat_timer_.async_wait([self = shared_from_this()](AsioError ec) {
    if (!ec) self->OnHeartbeat();
  });
}

void HttpConnection::OnHeartbeat() {
  if (state_ != State::kBusy || !streaming_ || complete_) return;
  const milliseconds interval(door_->options.heartbeat_ms);
  const SteadyTime now = Timer::clock_type::now();
  if (!writing_ && now - last_output_ >= interval) {
    AppendPing();
    Pump();
    if (state_ == State::kClosed) return;
  }
  const SteadyTime due = last_output_ + interval;
  ArmHeartbeat(due > now ? due : now + interval);
}

void HttpConnection::ReleaseBody() {
  door_->body_bytes.fetch_sub(accounted_body_bytes_);
  accounted_body_bytes_ = 0;
}

void HttpConnection::Close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  EndStreaming();
  if (exchange_ != nullptr) {
    exchange_->Cancel();
    exchange_->Detach();
    exchange_.reset();
  }
  read_timer_.cancel();
  write_timer_.cancel();
  heartbeat_timer_.cancel();
  ReleaseBody();
  AsioError ignored;
  socket_.close(ignored);
}

}  // namespace epic
