#include "common/transport/ucx/ucx_settings.h"

#include <arpa/inet.h>

#include <algorithm>
#include <string>

#include "common/base/absl_std.h"
#include "common/status/error.h"

namespace epic::transport {
namespace {

bool IsDeviceName(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == ':';
  }) && name != "all";
}

// 127.0.0.0/8 or ::1.
bool IsLoopback(const std::string& ip) {
  in_addr v4{};
  if (inet_pton(AF_INET, ip.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, ip.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool IsIp(const std::string& ip) {
  in6_addr any{};
  return inet_pton(AF_INET, ip.c_str(), &any) == 1 || inet_pton(AF_INET6, ip.c_str(), &any) == 1;
}

absl::Status Wrong(std::string_view param, std::string_view message) {
  return Error(ErrorCode::kInvalidRequest, message, param);
}

}  // namespace

absl::Status CheckUcxSettings(const UcxSettings& settings) {
  if (settings.net_devices.empty()) return Wrong("net_devices", "name at least one network device");
  for (const std::string& device : settings.net_devices) {
    if (!IsDeviceName(device))
      return Wrong("net_devices", "write network devices one by one, by UCX's names");
    if (device != "lo" && !settings.trusted_network) {
      return Wrong("net_devices",
                   "UCX encrypts nothing: a device other than lo needs trusted_network: true beside it");
    }
  }
  if (!settings.listen_ip.empty()) {
    if (!IsIp(settings.listen_ip)) return Wrong("listen_ip", "write a numeric address");
    if (!IsLoopback(settings.listen_ip) && !settings.trusted_network) {
      return Wrong("listen_ip",
                   "UCX encrypts nothing: an address beyond this host needs trusted_network: true beside it");
    }
  }
  if (settings.max_lanes == 0) return Wrong("max_lanes", "allow at least one lane");
  if (settings.poll_us < 0 || settings.poll_us > 1'000'000) {
    return Wrong("poll_us", "between 0 and 1000000 microseconds");
  }
  if (settings.max_commands == 0) return Wrong("max_commands", "allow at least one command");
  return absl::OkStatus();
}

}  // namespace epic::transport
