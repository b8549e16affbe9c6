#include "common/rpc/credentials.h"

#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/rpc/grpc_runtime.h"
#include "common/rpc/tls_probe.h"
#include "common/status/errno_status.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic {
namespace {

namespace tls = grpc::experimental;

constexpr unsigned kGrpcRefreshSeconds = 1;  // its least

// A file without a name that is replaced as a whole. gRPC re-reads the files of its credentials, but takes
// what it finds: a certificate without its key locks everybody out, an empty file aborts the process. So it
// reads these, into which only what was checked comes.
//
// gRPC may read as long as any channel lives, on a thread of its own, so the descriptor is never closed.
class StagedFile {
 public:
  StagedFile() = default;
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  // Each version has a time of change of its own, in seconds, by which gRPC sees that two reads are of one.
  absl::Status Replace(const std::string& text, int64_t version) {
    const int fd = memfd_create("epic-tls", MFD_CLOEXEC);
    if (fd < 0) return FromErrno(errno, "memory for certificates");
    const absl::Status filled = Fill(fd, text, version);
    if (filled.ok() && fd_ < 0) {
      fd_ = fd;
      return filled;
    }
    const bool replaced = filled.ok() && dup3(fd, fd_, O_CLOEXEC) >= 0;
    const int error = errno;
    close(fd);
    EPIC_RETURN_IF_ERROR(filled);
    return replaced ? absl::OkStatus() : FromErrno(error, "replacing certificates");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  static absl::Status Fill(int fd, const std::string& text, int64_t version) {
    for (size_t at = 0; at < text.size();) {
      const ssize_t put = write(fd, text.data() + at, text.size() - at);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return FromErrno(errno, "memory for certificates");
      at += static_cast<size_t>(put);
    }
    const timespec time{.tv_sec = version, .tv_nsec = 0};
    const timespec times[] = {time, time};
    if (futimens(fd, times) != 0) return FromErrno(errno, "memory for certificates");
    return absl::OkStatus();
  }

  int fd_ = -1;
};

// Takes peers whose certificate bears the name; gRPC has checked the rest of it.
class PeerNameVerifier final : public tls::ExternalCertificateVerifier {
 public:
  explicit PeerNameVerifier(std::string name) : name_(std::move(name)) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    const auto names = request->dns_names();
    const bool has = std::any_of(names.begin(), names.end(), [this](const grpc::string_ref& name) {
      return std::string_view(name.data(), name.size()) == name_;
    });
    *status = has ? grpc::Status::OK
                  : grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                                 "the peer's certificate does not bear the name " + name_);
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::string name_;
};

class FileCredentials final : public Credentials {
 public:
  explicit FileCredentials(CredentialsOptions options) : options_(std::move(options)) {}
  ~FileCredentials() override {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      changed_.SignalAll();
    }
    if (watcher_.joinable()) watcher_.join();
  }

  absl::Status Begin() {
    EPIC_ASSIGN_OR_RETURN(TlsMaterial material, Read());
    const bool identity = !material.cert_pem.empty();
    const bool authorities = !material.ca_pem.empty();
    if (!identity && !authorities)
      return absl::FailedPreconditionError("no tls.cert_file and no tls.ca_file");
    if (identity && options_.client_certificates && !authorities) {
      return absl::FailedPreconditionError(
          "client certificates are asked for: name in tls.ca_file who vouches for them");
    }
    {
      MutexLock lock(&mu_);
      EPIC_RETURN_IF_ERROR(Take(std::move(material)));
    }
    if (identity && authorities) {
      provider_ = std::make_shared<tls::FileWatcherCertificateProvider>(
          identity_.path(), identity_.path(), authorities_.path(), kGrpcRefreshSeconds);
    } else if (identity) {
      provider_ = std::make_shared<tls::FileWatcherCertificateProvider>(identity_.path(), identity_.path(),
                                                                        kGrpcRefreshSeconds);
    } else {
      provider_ =
          std::make_shared<tls::FileWatcherCertificateProvider>(authorities_.path(), kGrpcRefreshSeconds);
    }
    has_identity_ = identity;
    has_authorities_ = authorities;
    watcher_ = std::thread([this] { Watch(); });
    return absl::OkStatus();
  }

  std::shared_ptr<grpc::ServerCredentials> ForServer() const override {
    EPIC_CHECK(has_identity_);
    tls::TlsServerCredentialsOptions tls_options(provider_);
    SetUp(&tls_options);
    tls_options.set_cert_request_type(options_.client_certificates
                                          ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                          : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
    if (options_.client_certificates && !options_.peer_name.empty()) {
      tls_options.set_certificate_verifier(
          tls::ExternalCertificateVerifier::Create<PeerNameVerifier>(options_.peer_name));
    } else {
      tls_options.set_certificate_verifier(std::make_shared<tls::NoOpCertificateVerifier>());
    }
    return tls::TlsServerCredentials(tls_options);
  }

  std::shared_ptr<grpc::Channel> Connect(const std::string& address,
                                         grpc::ChannelArguments arguments) const override {
    tls::TlsChannelCredentialsOptions tls_options;
    tls_options.set_certificate_provider(provider_);
    SetUp(&tls_options);
    tls_options.set_certificate_verifier(std::make_shared<tls::HostNameCertificateVerifier>());
    if (!options_.peer_name.empty()) arguments.SetSslTargetNameOverride(options_.peer_name);
    return grpc::CreateCustomChannel(address, tls::TlsCredentials(tls_options), arguments);
  }

  std::string FindFault(const std::string& address) const override {
    TlsMaterial material;
    {
      MutexLock lock(&mu_);
      material = material_;
    }
    return FindTlsFault({.address = address, .material = &material, .expected_name = options_.peer_name});
  }

  int64_t expires_unix_s() const override {
    MutexLock lock(&mu_);
    return material_.expires_unix_s;
  }
  absl::Status status() const override {
    MutexLock lock(&mu_);
    return refused_;
  }

 private:
  void SetUp(tls::TlsCredentialsOptions* tls_options) const {
    if (has_authorities_) tls_options->watch_root_certs();
    if (has_identity_) tls_options->watch_identity_key_cert_pairs();
  }

  absl::StatusOr<TlsMaterial> Read() const {
    return LoadTlsMaterial(options_.paths, options_.clock->UnixMs() / 1000);
  }

  // Key and chain are in one file, so that gRPC never has one of them without the other.
  absl::Status Take(TlsMaterial material) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ++version_;
    if (!material.ca_pem.empty()) EPIC_RETURN_IF_ERROR(authorities_.Replace(material.ca_pem, version_));
    if (!material.cert_pem.empty()) {
      EPIC_RETURN_IF_ERROR(identity_.Replace(material.cert_pem + "\n" + material.key_pem, version_));
    }
    material_ = std::move(material);
    return absl::OkStatus();
  }

  void Watch() {
    for (;;) {
      {
        MutexLock lock(&mu_);
        if (!stopping_) changed_.WaitForMs(&mu_, options_.reload_ms);
        if (stopping_) return;
      }
      const std::optional<absl::Status> news = Look();
      if (news.has_value() && options_.on_change) options_.on_change(*news);
    }
  }

  // What is to be told.
  std::optional<absl::Status> Look() {
    absl::StatusOr<TlsMaterial> material = Read();
    MutexLock lock(&mu_);
    absl::Status status = material.status();
    const bool is_new = status.ok() && *material != material_;
    if (is_new) status = Take(*std::move(material));
    if (status == refused_ && (!is_new || !status.ok())) return std::nullopt;
    refused_ = status;
    return status.ok() && !is_new ? std::nullopt : std::optional(status);
  }

  const CredentialsOptions options_;
  // Constant after Begin.
  std::shared_ptr<tls::FileWatcherCertificateProvider> provider_;
  bool has_identity_ = false;
  bool has_authorities_ = false;

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  TlsMaterial material_ ABSL_GUARDED_BY(mu_);
  absl::Status refused_ ABSL_GUARDED_BY(mu_);
  int64_t version_ ABSL_GUARDED_BY(mu_) = 0;
  StagedFile identity_, authorities_;  // written under mu_, read by gRPC

  std::thread watcher_;  // last: uses the above
};

}  // namespace

absl::StatusOr<std::shared_ptr<Credentials>> Credentials::Load(CredentialsOptions options) {
  auto credentials = std::make_shared<FileCredentials>(std::move(options));
  EPIC_RETURN_IF_ERROR(credentials->Begin());
  return credentials;
}

std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const Credentials* credentials) {
  return credentials == nullptr ? grpc::InsecureServerCredentials() : credentials->ForServer();
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const Credentials* credentials,
                                           const grpc::ChannelArguments& arguments) {
  KeepGrpcRunning();
  if (credentials != nullptr) return credentials->Connect(address, arguments);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

std::string FindConnectionFault(const std::string& address, const Credentials* credentials) {
  return credentials == nullptr ? FindTlsFault({.address = address}) : credentials->FindFault(address);
}

}  // namespace epic
