// What a UCX fabric is allowed to do, and its bounds. Plain values; UCX itself is told by its configuration
// calls, never by the environment.
#ifndef EPIC_COMMON_TRANSPORT_UCX_UCX_SETTINGS_H_
#define EPIC_COMMON_TRANSPORT_UCX_UCX_SETTINGS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace epic::transport {

struct UcxSettings {
  // Network devices by UCX's names: "lo", "eth0", "mlx5_0:1". UCX authenticates and encrypts nothing, so any
  // other than "lo" asks for trusted_network.
  std::vector<std::string> net_devices = {"lo"};
  // The numeric address that others connect to, of one of these devices; port 0 takes a free one. Empty: no
  // listener, this side only fetches.
  std::string listen_ip = "127.0.0.1";
  uint16_t listen_port = 0;
  // Whoever can reach these devices may be given, and may read, what this process holds.
  bool trusted_network = false;
  // Lanes at a time, of both directions.
  uint32_t max_lanes = 256;
  // How long the progress thread goes on looking after something has happened before it sleeps. At most 1 s.
  int64_t poll_us = 50;
  // New commands of other threads that may wait for the progress thread.
  size_t max_commands = 4096;
  // Registered memory that is not an arena and that no fetch uses now: bytes and pieces at most, the least
  // recently used go. 0 until whoever gives buffers back to the system calls UcxFabric::ForgetMemory first:
  // what is mapped there later would be read by the registration of before.
  uint64_t registration_cache_bytes = uint64_t{1} << 30;
  size_t registration_cache_entries = 0;
};

// Errors: InvalidArgument, naming the setting and what it would need.
absl::Status CheckUcxSettings(const UcxSettings& settings);

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_UCX_SETTINGS_H_
