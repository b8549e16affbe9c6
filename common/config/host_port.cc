#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

#include "common/config/config.h"

namespace epic {

std::string HostPort::ToString() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return (ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool HostPort::IsLoopback() const {
  if (host == "localhost" || host == "::1") return true;
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127;
}

absl::StatusOr<HostPort> ParseHostPort(std::string_view text) {
  const auto bad = [&](const char* what) {
    return absl::InvalidArgumentError("is '" + std::string(text) + "'; " + what);
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad("write HOST:PORT, such as 127.0.0.1:8080");
  HostPort out;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    in6_addr address{};
    if (inet_pton(AF_INET6, std::string(host).c_str(), &address) != 1) {
      return bad("the brackets must hold an IPv6 address");
    }
  } else if (host.find(':') != std::string_view::npos) {
    return bad("write an IPv6 address in brackets, such as [::1]:8080");
  }
  if (host.empty()) return bad("name the host, such as 127.0.0.1 (or 0.0.0.0 for every interface)");
  if (host.find_first_of(" \t/@") != std::string_view::npos)
    return bad("the host has a character it cannot have");
  out.host = std::string(host);
  const std::string_view port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (error != std::errc{} || end != port.data() + port.size()) return bad("the port must be 0 to 65535");
  return out;
}

absl::StatusOr<std::vector<std::string>> ParseAddresses(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const absl::StatusOr<HostPort> address = ParseHostPort(text.substr(0, comma));
    if (!address.ok()) return address.status();
    if (address->port == 0) {
      return absl::InvalidArgumentError("has no port to connect to in '" + address->ToString() + "'");
    }
    out.push_back(address->ToString());
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return out;
}

absl::StatusOr<std::vector<std::string>> ParseNames(std::string_view text) {
  std::vector<std::string> out;
  while (true) {
    const size_t comma = text.find(',');
    const std::string name(text.substr(0, comma));
    if (name.empty() || name.find_first_of(" \t") != std::string::npos) {
      return absl::InvalidArgumentError("must be names with commas between them, and no spaces");
    }
    if (std::find(out.begin(), out.end(), name) != out.end()) {
      return absl::InvalidArgumentError("names '" + name + "' twice");
    }
    out.push_back(name);
    if (comma == std::string_view::npos) return out;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace epic
