// Who this process is and whom it believes, for gRPC: TLS of servers and of channels, mutual between the
// parts of EPIC, with certificates that are taken anew when their files change.
//
// Made at the start from files that must be good then; a thread of its own looks at them ever after. What is
// new and good (tls_material.h) counts for connections that begin later, in at most reload_ms and a second;
// what is new and bad is refused and told, and what was there before goes on. TLS 1.2 or newer, ciphers with
// forward secrecy only (gRPC's list). Thread-safe; outlives the servers and channels that it made.
#ifndef EPIC_COMMON_RPC_CREDENTIALS_H_
#define EPIC_COMMON_RPC_CREDENTIALS_H_

#include <grpcpp/channel.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/rpc/tls_material.h"

namespace epic {

struct CredentialsOptions {
  TlsPaths paths;
  // A DNS name that the certificate of every peer must bear. Empty: a client asks for the host that it calls,
  // a server takes whomever tls.ca_file vouches for.
  std::string peer_name;
  bool client_certificates = true;  // servers: whoever has none is refused
  int64_t reload_ms = 5'000;        // between two looks at the files
  const Clock* clock = SystemClock::Get();
  // Hears of every change: OK, and what is new is in use; else why it is not, once for each reason. Called on
  // any thread; must not block.
  std::function<void(const absl::Status&)> on_change;
};

class Credentials {
 public:
  virtual ~Credentials() = default;
  // Errors: those of LoadTlsMaterial; FailedPrecondition when client certificates are asked for and nobody
  // vouches for them.
  static absl::StatusOr<std::shared_ptr<Credentials>> Load(CredentialsOptions options);

  // REQUIRES: there is a certificate.
  virtual std::shared_ptr<grpc::ServerCredentials> ForServer() const = 0;
  virtual std::shared_ptr<grpc::Channel> Connect(const std::string& address,
                                                 grpc::ChannelArguments arguments) const = 0;
  // Why a server at `address` cannot be talked to, as FindTlsFault says it. Blocks, a second at most.
  virtual std::string FindFault(const std::string& address) const = 0;
  // Of the certificate in use; 0: none.
  virtual int64_t expires_unix_s() const = 0;
  // OK unless the files are such that they would not be taken now, be it only that they expired.
  virtual absl::Status status() const = 0;
};

// Plain where there are no credentials.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const Credentials* credentials);
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const Credentials* credentials,
                                           const grpc::ChannelArguments& arguments);
std::string FindConnectionFault(const std::string& address, const Credentials* credentials);

}  // namespace epic

#endif  // EPIC_COMMON_RPC_CREDENTIALS_H_
