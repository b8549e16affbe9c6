#include "common/coordination/coordination_settings.h"

#include <algorithm>

#include "common/config/config.h"
#include "common/coordination/coordinator.h"
#include "common/coordination/member_record.h"
#include "common/status/error.h"

namespace epic {
namespace {

constexpr int64_t kMinLeaseMs = 2'000;
constexpr int64_t kMaxLeaseMs = 60'000;
constexpr int64_t kMinStaleMs = 1'000;
constexpr int64_t kMaxStaleMs = 86'400'000;
constexpr int64_t kMaxGraceMs = 3'600'000;
constexpr size_t kMaxPrefixBytes = CoordinationLimits::kKeyBytes - 2 * NodeInfo::kIdBytes;

}  // namespace

absl::Status ValidateCoordination(const CoordinationSettings& settings) {
  std::string faults;
  const auto check = [&](bool good, const std::string& what) {
    if (!good) faults += (faults.empty() ? "" : "\n") + what;
  };
  check(!settings.endpoints.empty(), "endpoints: name the members of etcd as HOST:PORT");
  for (const std::string& endpoint : settings.endpoints) {
    const auto address = ParseHostPort(endpoint);
    check(address.ok() && address->port != 0, "endpoints: " + endpoint + " is not HOST:PORT");
  }
  check(settings.prefix.ends_with('/') && settings.prefix.size() <= kMaxPrefixBytes &&
            std::all_of(settings.prefix.begin(), settings.prefix.end(),
                        [](char c) { return c > ' ' && c <= '~'; }),
        "prefix: printable characters without spaces, the last one a slash, at most " +
            std::to_string(kMaxPrefixBytes));
  check(settings.lease_ms >= kMinLeaseMs && settings.lease_ms <= kMaxLeaseMs, "lease: 2 s to 60 s");
  check(settings.stale_ms >= kMinStaleMs && settings.stale_ms <= kMaxStaleMs, "stale age: 1 s to a day");
  check(settings.grace_ms >= 2 * settings.lease_ms && settings.grace_ms <= kMaxGraceMs,
        "grace: at least two leases, at most an hour");
  return faults.empty() ? absl::OkStatus() : Error(ErrorCode::kInvalidRequest, faults);
}

}  // namespace epic
