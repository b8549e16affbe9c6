// The credentials of a process as its settings say (tls.*), told to its log and its metrics. Free functions.
#ifndef EPIC_COMMON_RPC_PROCESS_CREDENTIALS_H_
#define EPIC_COMMON_RPC_PROCESS_CREDENTIALS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/config.h"
#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/rpc/credentials.h"

namespace epic {

// Null where there is no tls.cert_file: gRPC is plain then. `metrics` outlive the credentials. Errors: those
// of Credentials::Load.
absl::StatusOr<std::shared_ptr<Credentials>> CredentialsOf(const TlsSettings& settings, const Logger& log,
                                                           Metrics* metrics);
// The same for a part of EPIC, which knows its clients or talks to nobody but its own host. Errors: besides,
// FailedPrecondition for tls.client_certs: none.
absl::StatusOr<std::shared_ptr<Credentials>> PartCredentialsOf(const TlsSettings& settings, const Logger& log,
                                                               Metrics* metrics);

// For a collector of gauges. `credentials` may be null.
void ShowCredentials(const Credentials* credentials, Metrics* metrics);
// What health should say of them; nothing while all is well.
std::vector<std::string> CredentialsCauses(const Credentials* credentials);

}  // namespace epic

#endif  // EPIC_COMMON_RPC_PROCESS_CREDENTIALS_H_
