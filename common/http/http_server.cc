#include "common/http/http_server.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "common/base/check.h"
#include "common/base/executor.h"
#include "common/base/mutex.h"
#include "common/http/connection.h"
#include "common/status/error.h"

namespace epic {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {
// Connections beyond the limit that are told so; further ones are closed without a word.
constexpr size_t kMaxRefusedAtOnce = 128;
constexpr std::chrono::milliseconds kAcceptRetry(50);
}  // namespace

class HttpServer::Impl {
 public:
  Impl(HttpOptions options, std::unique_ptr<const HttpSite> site, Clock* clock, uint64_t id_seed,
       HttpObserver observer)
      : site_(std::move(site)),
        door_(id_seed),
        workers_(std::max<uint32_t>(1, options.worker_threads), options.worker_queue),
        io_(static_cast<int>(std::max<uint32_t>(1, options.io_threads))),
        work_(io_.get_executor()),
        acceptor_(asio::make_strand(io_)),
        retry_(acceptor_.get_executor()) {
    door_.options = std::move(options);
    door_.clock = clock;
    door_.site = site_.get();
    door_.workers = &workers_;
    door_.observer = std::move(observer);
    door_.on_closed = [this](uint64_t id) { Unregister(id); };
  }
  ~Impl() { Stop(); }

  absl::Status Listen();
  void Run();
  bool Drain(int64_t timeout_ms) ABSL_LOCKS_EXCLUDED(mu_);
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t connections() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return connections_.size();
  }
  uint64_t streams() const { return door_.streams.load(); }
  const tcp::endpoint& endpoint() const { return endpoint_; }

 private:
  void Accept();
  void OnAccepted(boost::system::error_code ec, tcp::socket socket);
  void Admit(tcp::socket socket) ABSL_LOCKS_EXCLUDED(mu_);
  void Unregister(uint64_t id) ABSL_LOCKS_EXCLUDED(mu_);
  void CloseAcceptor();
  // Tells the observer of a connection that an exception ended.
  void ReportLost(std::string cause);
  std::vector<std::shared_ptr<HttpConnection>> Snapshot() ABSL_LOCKS_EXCLUDED(mu_);

  // Constant after Listen.
  const std::unique_ptr<const HttpSite> site_;
  tcp::endpoint endpoint_;
  // Guarded by mu_. Connections unregister from their destructors, so this outlives io_.
  mutable Mutex mu_;
  CondVar closed_;  // a connection has left
  absl::flat_hash_map<uint64_t, std::weak_ptr<HttpConnection>> connections_ ABSL_GUARDED_BY(mu_);
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // Synchronise themselves.
  HttpDoorState door_;
  ThreadExecutor workers_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  // One thread only: the acceptor's strand.
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  // Touched by the owner's thread only.
  std::vector<std::thread> threads_;
};

absl::Status HttpServer::Impl::Listen() {
  const std::string host = door_.options.host == "localhost" ? "127.0.0.1" : door_.options.host;
  boost::system::error_code ec;
  const asio::ip::address address = asio::ip::make_address(host, ec);
  if (ec) {
    return absl::InvalidArgumentError("the HTTP host '" + host +
                                      "' is not an IP address; use one, or localhost");
  }
  const tcp::endpoint wanted(address, door_.options.port);
  const auto failed = [&](const char* what) {
    return absl::UnavailableError(std::string("cannot ") + what + " " + host + ":" +
                                  std::to_string(door_.options.port) + ": " + ec.message() +
                                  "; choose another address or stop what uses it");
  };
  acceptor_.open(wanted.protocol(), ec);
  if (ec) return failed("open a socket for");
  acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
  acceptor_.bind(wanted, ec);
  if (ec) return failed("bind");
  acceptor_.listen(asio::socket_base::max_listen_connections, ec);
  if (ec) return failed("listen on");
  endpoint_ = acceptor_.local_endpoint(ec);
  if (ec) return failed("read the address of");
  return absl::OkStatus();
}

void HttpServer::Impl::Run() {
  asio::post(acceptor_.get_executor(), [this] { Accept(); });
  const uint32_t count = std::max<uint32_t>(1, door_.options.io_threads);
  for (uint32_t i = 0; i < count; ++i) {
    threads_.emplace_back([this] {
      for (;;) {
        // Out of memory amid one connection's handler: that connection dies with it, the door lives on.
        try {
          io_.run();
          return;
        } catch (const std::exception& error) {
          ReportLost(error.what());
        } catch (...) {
          ReportLost("an exception of an unknown type");
        }
      }
    });
  }
}

void HttpServer::Impl::ReportLost(std::string cause) {
  if (!door_.observer) return;
  const ErrorInfo& info = InfoOf(ErrorCode::kInternal);
  HttpEvent event;
  event.call = "none";
  event.status = info.http_status;
  event.code = info.name;
  event.cause = std::move(cause);
  door_.observer(event);
}

void HttpServer::Impl::Accept() {
  if (!acceptor_.is_open()) return;
  acceptor_.async_accept(
      asio::make_strand(io_),
      asio::bind_executor(acceptor_.get_executor(), [this](boost::system::error_code ec, tcp::socket socket) {
        OnAccepted(ec, std::move(socket));
      }));
}

void HttpServer::Impl::OnAccepted(boost::system::error_code ec, tcp::socket socket) {
  if (ec == asio::error::operation_aborted || !acceptor_.is_open()) return;
  if (ec) {
    // Out of descriptors, most likely: others must close first.
    retry_.expires_after(kAcceptRetry);
    retry_.async_wait([this](boost::system::error_code aborted) {
      if (!aborted) Accept();
    });
    return;
  }
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  Accept();  // first: what Admit may fail at must not end the accepting
  Admit(std::move(socket));
}

void HttpServer::Impl::Admit(tcp::socket socket) {
  std::shared_ptr<HttpConnection> connection;
  bool refused = false;
  {
    MutexLock lock(&mu_);
    const size_t open = connections_.size();
    if (stopping_ || door_.draining.load() || open >= door_.options.max_connections + kMaxRefusedAtOnce)
      return;
    refused = open >= door_.options.max_connections;
    const uint64_t id = next_id_++;
    connection = std::make_shared<HttpConnection>(std::move(socket), &door_, id);
    connections_.emplace(id, connection);
  }
  if (refused) {
    connection->StartRefused();
  } else {
    connection->Start();
  }
}

void HttpServer::Impl::Unregister(uint64_t id) {
  MutexLock lock(&mu_);
  connections_.erase(id);
  closed_.SignalAll();
}

void HttpServer::Impl::CloseAcceptor() {
  asio::post(acceptor_.get_executor(), [this] {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    retry_.cancel();
  });
}

std::vector<std::shared_ptr<HttpConnection>> HttpServer::Impl::Snapshot() {
  std::vector<std::shared_ptr<HttpConnection>> out;
  MutexLock lock(&mu_);
  for (const auto& [id, weak] : connections_) {
    if (std::shared_ptr<HttpConnection> connection = weak.lock()) out.push_back(std::move(connection));
  }
  return out;
}

bool HttpServer::Impl::Drain(int64_t timeout_ms) {
  door_.draining.store(true);
  CloseAcceptor();
  for (const std::shared_ptr<HttpConnection>& connection : Snapshot()) connection->Drain();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  MutexLock lock(&mu_);
  while (!connections_.empty()) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left.count() <= 0) return false;
    closed_.WaitForMs(&mu_, std::chrono::duration_cast<std::chrono::milliseconds>(left).count() + 1);
  }
  return true;
}

void HttpServer::Impl::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (threads_.empty()) return;
  door_.draining.store(true);
  CloseAcceptor();
  for (const std::shared_ptr<HttpConnection>& connection : Snapshot()) connection->Abort();
  workers_.Stop();
  work_.reset();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpOptions options,
                                                              std::unique_ptr<const HttpSite> site,
                                                              Clock* clock, uint64_t id_seed,
                                                              HttpObserver observer) {
  EPIC_CHECK(clock != nullptr && site != nullptr);
  // A body that is allowed must also fit into the sum of all.
  options.max_total_body_bytes = std::max(options.max_total_body_bytes, options.max_body_bytes);
  auto impl =
      std::make_unique<Impl>(std::move(options), std::move(site), clock, id_seed, std::move(observer));
  if (absl::Status status = impl->Listen(); !status.ok()) return status;
  impl->Run();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

uint16_t HttpServer::port() const { return impl_->endpoint().port(); }

std::string HttpServer::address() const {
  const asio::ip::address address = impl_->endpoint().address();
  std::string out = address.to_string();
  if (address.is_v6()) {
    out.insert(out.begin(), '[');
    out += "]";
  }
  out += ":";
  out += std::to_string(port());
  return out;
}

bool HttpServer::Drain(int64_t timeout_ms) { return impl_->Drain(timeout_ms); }
void HttpServer::Stop() { impl_->Stop(); }
uint64_t HttpServer::connections() const { return impl_->connections(); }
uint64_t HttpServer::streams() const { return impl_->streams(); }

}  // namespace epic
