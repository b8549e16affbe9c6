#include "common/rpc/port_probe.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string_view>
#include <system_error>

namespace epic {
namespace {

absl::Status NoAddress(const std::string& address, std::string_view why) {
  return absl::InvalidArgumentError("the address '" + address + "' cannot be used: " + std::string(why) +
                                    "; give HOST:PORT");
}

// 0, or the errno of the step that failed.
int TryListen(const addrinfo& at) {
  const int fd = socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC, at.ai_protocol);
  if (fd < 0) return errno;
  const int on = 1;
  const bool ok = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                  bind(fd, at.ai_addr, at.ai_addrlen) == 0 && listen(fd, 1) == 0;
  const int error = ok ? 0 : errno;
  close(fd);
  return error;
}

bool IsNotOfThisMachine(int error) { return error == EADDRNOTAVAIL || error == EAFNOSUPPORT; }

}  // namespace

absl::Status CheckCanListen(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return NoAddress(address, "it has no port");
  std::string host = address.substr(0, colon);
  const std::string port = address.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return NoAddress(address, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  bool one_works = false;
  int error = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int refused = TryListen(*at);
    one_works = one_works || refused == 0;
    if (refused != 0) error = refused;
    if (refused != 0 && !IsNotOfThisMachine(refused)) break;
  }
  if (one_works && (error == 0 || IsNotOfThisMachine(error))) return absl::OkStatus();
  return absl::UnavailableError("cannot bind " + address + ": " + std::generic_category().message(error) +
                                "; choose another address or stop what uses it");
}

}  // namespace epic
