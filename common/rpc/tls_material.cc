#include "common/rpc/tls_material.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "common/rpc/openssl_handles.h"
#include "common/status/status_macros.h"

namespace epic {
namespace {

constexpr int64_t kFileLimitBytes = 1 << 20;
constexpr mode_t kOthers = S_IRWXO;

using openssl::Bio;
using openssl::Certificate;
using openssl::Context;
using openssl::Key;

// One file of the settings, for messages.
struct Source {
  const char* setting;
  const std::string& path;
};

absl::Status Bad(const Source& source, const std::string& what) {
  return absl::FailedPreconditionError(std::string(source.setting) + " " + source.path + " " + what);
}

// What OpenSSL says of its last failure, and forgets it.
std::string TakeReason() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  std::string text = reason == nullptr ? "it is not well formed" : reason;
  ERR_clear_error();
  return text;
}

class File {
 public:
  explicit File(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

// `secret`: refuses a file that every user of the machine may read or change.
absl::StatusOr<std::string> Read(const Source& source, bool secret) {
  const File file(source.path);
  struct stat about {};
  if (file.fd() < 0 || fstat(file.fd(), &about) != 0) {
    return Bad(source, std::string("cannot be read: ") + std::strerror(errno));
  }
  if (!S_ISREG(about.st_mode)) return Bad(source, "is not a file");
  if (secret && (about.st_mode & kOthers) != 0) {
    return Bad(source, "is open to every user of this machine: take that right away, as with chmod o= " +
                           source.path);
  }
  std::string text;
  char piece[4096];
  for (;;) {
    const ssize_t got = read(file.fd(), piece, sizeof(piece));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Bad(source, std::string("cannot be read: ") + std::strerror(errno));
    if (got == 0) break;
    text.append(piece, static_cast<size_t>(got));
    if (static_cast<int64_t>(text.size()) > kFileLimitBytes) return Bad(source, "is over 1 MiB");
  }
  if (text.empty()) return Bad(source, "is empty");
  return text;
}

absl::StatusOr<std::vector<Certificate>> ParseCertificates(const Source& source, const std::string& pem) {
  ERR_clear_error();
  const Bio bio = openssl::Reader(pem);
  std::vector<Certificate> certificates;
  for (;;) {
    Certificate one(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (one == nullptr) break;
    certificates.push_back(std::move(one));
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (certificates.empty() && at_end) {
    ERR_clear_error();
    return Bad(source, "has no certificate: it must be a PEM file with BEGIN CERTIFICATE in it");
  }
  if (!at_end) return Bad(source, "has a certificate that cannot be read: " + TakeReason());
  ERR_clear_error();
  return certificates;
}

// Asked for the passphrase of a key: there is nobody to ask.
int NoPassphrase(char*, int, int, void*) { return -1; }

absl::StatusOr<Key> ParseKey(const Source& source, const std::string& pem) {
  ERR_clear_error();
  const Bio bio = openssl::Reader(pem);
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, &NoPassphrase, nullptr));
  if (key != nullptr) return key;
  ERR_clear_error();
  if (pem.find("ENCRYPTED") != std::string::npos) {
    return Bad(source,
               "is encrypted: give a key without a passphrase, in a file that only its user may read");
  }
  return Bad(source, "has no private key: it must be a PEM file with BEGIN PRIVATE KEY in it");
}

int64_t UnixOf(const ASN1_TIME* time) {
  std::tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? static_cast<int64_t>(timegm(&parts)) : 0;
}

std::string DateOf(int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  const size_t size = std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return std::string(text, size);
}

absl::Status CheckDates(const Source& source, const X509* certificate, int64_t now_unix_s) {
  const int64_t from = UnixOf(X509_get0_notBefore(certificate));
  const int64_t until = UnixOf(X509_get0_notAfter(certificate));
  if (until <= now_unix_s) {
    return Bad(source, "has a certificate that expired on " + DateOf(until) + ": renew it");
  }
  if (from > now_unix_s) {
    return Bad(source, "has a certificate that is not valid before " + DateOf(from) +
                           ": look whether the clock of this machine is right");
  }
  return absl::OkStatus();
}

// Everything that TLS itself will ask of the chain and its key, such as their strength.
absl::Status TryInTls(const Source& source, const std::vector<Certificate>& chain, EVP_PKEY* key) {
  ERR_clear_error();
  const Context context(SSL_CTX_new(TLS_method()));
  if (context == nullptr) return Bad(source, "cannot be tried: " + TakeReason());
  bool ok = SSL_CTX_use_certificate(context.get(), chain.front().get()) == 1;
  for (size_t i = 1; ok && i < chain.size(); ++i) {
    ok = SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) == 1;
  }
  ok = ok && SSL_CTX_use_PrivateKey(context.get(), key) == 1;
  if (!ok) return Bad(source, "is not fit for TLS: " + TakeReason());
  return absl::OkStatus();
}

absl::Status LoadIdentity(const TlsPaths& paths, int64_t now_unix_s, TlsMaterial* out) {
  const Source cert{"tls.cert_file", paths.cert_file};
  const Source secret{"tls.key_file", paths.key_file};
  EPIC_ASSIGN_OR_RETURN(out->cert_pem, Read(cert, /*secret=*/false));
  EPIC_ASSIGN_OR_RETURN(out->key_pem, Read(secret, /*secret=*/true));
  EPIC_ASSIGN_OR_RETURN(const std::vector<Certificate> chain, ParseCertificates(cert, out->cert_pem));
  EPIC_ASSIGN_OR_RETURN(const Key key, ParseKey(secret, out->key_pem));
  if (X509_check_private_key(chain.front().get(), key.get()) != 1) {
    ERR_clear_error();
    return Bad(secret, "is not the key of the first certificate in " + paths.cert_file);
  }
  for (const Certificate& one : chain) EPIC_RETURN_IF_ERROR(CheckDates(cert, one.get(), now_unix_s));
  EPIC_RETURN_IF_ERROR(TryInTls(cert, chain, key.get()));
  out->expires_unix_s = UnixOf(X509_get0_notAfter(chain.front().get()));
  return absl::OkStatus();
}

// One that is expired does not harm while another one is good: that is how they are replaced.
absl::Status LoadAuthorities(const std::string& path, int64_t now_unix_s, TlsMaterial* out) {
  const Source source{"tls.ca_file", path};
  EPIC_ASSIGN_OR_RETURN(out->ca_pem, Read(source, /*secret=*/false));
  EPIC_ASSIGN_OR_RETURN(const std::vector<Certificate> all, ParseCertificates(source, out->ca_pem));
  absl::Status last;
  for (const Certificate& one : all) {
    last = CheckDates(source, one.get(), now_unix_s);
    if (last.ok()) return last;
  }
  return last;
}

}  // namespace

absl::StatusOr<TlsMaterial> LoadTlsMaterial(const TlsPaths& paths, int64_t now_unix_s) {
  TlsMaterial material;
  if (paths.cert_file.empty() != paths.key_file.empty()) {
    return absl::FailedPreconditionError("tls.cert_file and tls.key_file go together: set both or none");
  }
  if (!paths.cert_file.empty()) EPIC_RETURN_IF_ERROR(LoadIdentity(paths, now_unix_s, &material));
  if (!paths.ca_file.empty()) EPIC_RETURN_IF_ERROR(LoadAuthorities(paths.ca_file, now_unix_s, &material));
  return material;
}

}  // namespace epic
