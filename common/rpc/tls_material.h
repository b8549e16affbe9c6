// The certificates and the key of a process as files, read whole and checked before anybody uses them:
// whether they can be read and by whom, are PEM, belong together, are of today, and are strong enough for
// TLS.
//
// A plain value and a free function; thread-safe. What gRPC makes of it is in credentials.h. Nothing of
// OpenSSL is in this header.
#ifndef EPIC_COMMON_RPC_TLS_MATERIAL_H_
#define EPIC_COMMON_RPC_TLS_MATERIAL_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace epic {

// PEM files. Certificate and key: both or none. A chain has the certificate of this process first.
struct TlsPaths {
  std::string cert_file;
  std::string key_file;
  std::string ca_file;  // whom peers are trusted by; empty: none
};

struct TlsMaterial {
  std::string cert_pem;
  std::string key_pem;  // secret
  std::string ca_pem;
  int64_t expires_unix_s = 0;  // when the first certificate of the chain does; 0: there is no chain
  bool operator==(const TlsMaterial&) const = default;
};

// Errors: FailedPrecondition that names the setting, the file, what is wrong and what to do. Never quotes
// what is in a file.
absl::StatusOr<TlsMaterial> LoadTlsMaterial(const TlsPaths& paths, int64_t now_unix_s);

}  // namespace epic

#endif  // EPIC_COMMON_RPC_TLS_MATERIAL_H_
