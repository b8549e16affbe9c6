#include "common/rpc/tls_probe.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>

#include "common/rpc/openssl_handles.h"

namespace epic {
namespace {

using openssl::Bio;
using openssl::Certificate;
using openssl::Context;
using openssl::Key;
using openssl::Session;
using Addresses = std::unique_ptr<addrinfo, openssl::Free<freeaddrinfo>>;

constexpr int kAlerts = SSL_AD_REASON_OFFSET;  // reasons from here on came from the other side

class Deadline {
 public:
  explicit Deadline(int64_t ms) : end_(Now() + std::chrono::milliseconds(ms)) {}
  int left_ms() const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Now()).count();
    return static_cast<int>(std::max<int64_t>(left, 0));
  }

 private:
  static std::chrono::steady_clock::time_point Now() { return std::chrono::steady_clock::now(); }
  const std::chrono::steady_clock::time_point end_;
};

bool WaitFor(int fd, short events, const Deadline& deadline) {
  pollfd wait{.fd = fd, .events = events, .revents = 0};
  return poll(&wait, 1, deadline.left_ms()) > 0;
}

class Socket {
 public:
  Socket() = default;
  ~Socket() { Close(); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  bool Connect(const std::string& host, const std::string& port, const Deadline& deadline) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return false;
    const Addresses addresses(found);
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      Close();
      fd_ = socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      if (fd_ < 0) continue;
      if (connect(fd_, one->ai_addr, one->ai_addrlen) == 0) return true;
      if (errno != EINPROGRESS || !WaitFor(fd_, POLLOUT, deadline)) continue;
      int error = 0;
      socklen_t size = sizeof(error);
      if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) return true;
    }
    return false;
  }
  int fd() const { return fd_; }

 private:
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  int fd_ = -1;
};

// What LoadTlsMaterial has checked, so nothing fails here that matters.
void UseMaterial(const TlsMaterial& material, SSL_CTX* context) {
  const Bio chain = openssl::Reader(material.cert_pem);
  bool first = true;
  for (;; first = false) {
    const Certificate one(PEM_read_bio_X509(chain.get(), nullptr, nullptr, nullptr));
    if (one == nullptr) break;
    if (first) {
      SSL_CTX_use_certificate(context, one.get());
    } else {
      SSL_CTX_add1_chain_cert(context, one.get());
    }
  }
  if (!first) {
    const Bio secret = openssl::Reader(material.key_pem);
    const Key key(PEM_read_bio_PrivateKey(secret.get(), nullptr, nullptr, nullptr));
    if (key != nullptr) SSL_CTX_use_PrivateKey(context, key.get());
  }
  const Bio authorities = openssl::Reader(material.ca_pem);
  for (;;) {
    const Certificate one(PEM_read_bio_X509(authorities.get(), nullptr, nullptr, nullptr));
    if (one == nullptr) break;
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), one.get());
  }
  ERR_clear_error();
}

void ExpectName(const std::string& name, SSL* session) {
  X509_VERIFY_PARAM* const rules = SSL_get0_param(session);
  if (X509_VERIFY_PARAM_set1_ip_asc(rules, name.c_str()) == 1) return;
  ERR_clear_error();
  SSL_set1_host(session, name.c_str());
  SSL_set_tlsext_host_name(session, name.c_str());
}

enum class Step : uint8_t { kDone, kFailed, kClosed, kLate };

// Runs `call` on a socket that does not block until it is over.
template <typename Call>
Step Run(SSL* session, const Deadline& deadline, Call call) {
  for (;;) {
    ERR_clear_error();
    const int result = call();
    if (result > 0) return Step::kDone;
    switch (SSL_get_error(session, result)) {
      case SSL_ERROR_WANT_READ:
        if (!WaitFor(SSL_get_fd(session), POLLIN, deadline)) return Step::kLate;
        break;
      case SSL_ERROR_WANT_WRITE:
        if (!WaitFor(SSL_get_fd(session), POLLOUT, deadline)) return Step::kLate;
        break;
      case SSL_ERROR_SSL:
        return ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING ? Step::kClosed
                                                                                      : Step::kFailed;
      default:
        return Step::kClosed;
    }
  }
}

// What the other side said last; empty when it did not.
std::string TakeAlert() {
  const unsigned long error = ERR_peek_error();
  const char* reason = ERR_GET_REASON(error) > kAlerts ? ERR_reason_error_string(error) : nullptr;
  std::string text = reason == nullptr ? "" : reason;
  ERR_clear_error();
  return text;
}

std::string JudgeHandshake(Step step) {
  const std::string alert = TakeAlert();
  if (!alert.empty()) return "ends the TLS handshake: " + alert;
  switch (step) {
    case Step::kFailed:
      return "does not speak TLS: turn TLS on there, or off here (tls.cert_file)";
    case Step::kClosed:
      return "closes the connection amid the TLS handshake: see whether it has a certificate that is in "
             "order, and "
             "takes the one of this process";
    case Step::kLate:
      return "does not answer the TLS handshake in time";
    case Step::kDone:
      break;
  }
  return {};
}

// It has taken our certificate when it goes on to talk HTTP/2.
std::string JudgeClient(SSL* session, const TlsMaterial& material, const Deadline& deadline) {
  char byte = 0;
  const Step step = Run(session, deadline, [&] { return SSL_read(session, &byte, 1); });
  if (step == Step::kDone || step == Step::kLate) return {};
  const std::string alert = TakeAlert();
  const std::string because = alert.empty() ? "" : " (" + alert + ")";
  if (material.cert_pem.empty()) return "asks for a client certificate, and this process has none" + because;
  return "does not take the certificate of this process" + because +
         ": its tls.ca_file must vouch for it, it must not have expired, and bear the name of tls.peer_name "
         "there if that is set";
}

}  // namespace

std::string FindTlsFault(const TlsProbe& probe) {
  const size_t colon = probe.address.rfind(':');
  if (colon == std::string::npos || probe.address.starts_with("unix:")) return {};
  std::string host = probe.address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const Deadline deadline(probe.timeout_ms);
  Socket socket;
  if (!socket.Connect(host, probe.address.substr(colon + 1), deadline)) return {};
  const Context context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return {};
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context.get(), kHttp2, sizeof(kHttp2));
  if (probe.material != nullptr) UseMaterial(*probe.material, context.get());
  const Session session(SSL_new(context.get()));
  if (session == nullptr || SSL_set_fd(session.get(), socket.fd()) != 1) return {};
  const std::string name = probe.expected_name.empty() ? host : probe.expected_name;
  ExpectName(name, session.get());
  const Step step = Run(session.get(), deadline, [&] { return SSL_connect(session.get()); });
  if (probe.material == nullptr) {
    const bool speaks_tls = step == Step::kDone || !TakeAlert().empty();
    return speaks_tls
               ? "speaks TLS, and this process does not: set tls.cert_file, tls.key_file and tls.ca_file"
               : "";
  }
  if (step != Step::kDone) return JudgeHandshake(step);
  const long verified = SSL_get_verify_result(session.get());
  if (verified != X509_V_OK) {
    return std::string("has a certificate that this process does not take: ") +
           X509_verify_cert_error_string(verified) + " (asked for the name " + name + ")";
  }
  return JudgeClient(session.get(), *probe.material, deadline);
}

}  // namespace epic
