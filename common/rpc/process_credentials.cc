#include "common/rpc/process_credentials.h"

#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic {

absl::StatusOr<std::shared_ptr<Credentials>> CredentialsOf(const TlsSettings& settings, const Logger& log,
                                                           Metrics* metrics) {
  if (settings.cert_file.empty()) return std::shared_ptr<Credentials>();
  CredentialsOptions options;
  options.paths = {settings.cert_file, settings.key_file, settings.ca_file};
  options.peer_name = settings.peer_name;
  options.client_certificates = settings.client_certs == "required";
  options.reload_ms = settings.reload_ms;
  options.on_change =
      [log, taken = metrics->GetCounter(MetricId::kTlsReloadsTotal, {"taken"}),
       refused = metrics->GetCounter(MetricId::kTlsReloadsTotal, {"refused"})](const absl::Status& status) {
        if (status.ok()) {
          taken.Add();
          log.Info("new certificates are in use");
        } else {
          refused.Add();
          log.Error("certificates are not taken; those of before stay in use", {{"why", MessageOf(status)}});
        }
      };
  return Credentials::Load(std::move(options));
}

absl::StatusOr<std::shared_ptr<Credentials>> PartCredentialsOf(const TlsSettings& settings, const Logger& log,
                                                               Metrics* metrics) {
  if (!settings.cert_file.empty() && settings.client_certs != "required") {
    return absl::FailedPreconditionError(
        "between parts both sides have certificates: leave tls.client_certs at required");
  }
  return CredentialsOf(settings, log, metrics);
}

void ShowCredentials(const Credentials* credentials, Metrics* metrics) {
  const int64_t expires = credentials == nullptr ? 0 : credentials->expires_unix_s();
  metrics->GetGauge(MetricId::kTlsCertificateExpirySeconds).Set(static_cast<double>(expires));
}

std::vector<std::string> CredentialsCauses(const Credentials* credentials) {
  const absl::Status status = credentials == nullptr ? absl::OkStatus() : credentials->status();
  if (status.ok()) return {};
  return {"certificates are not taken, those of before stay in use: " + MessageOf(status)};
}

}  // namespace epic
