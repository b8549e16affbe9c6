// Whether an address can be listened on, asked of the kernel before gRPC is: gRPC tells a taken port only to
// its own log, as raw text, and returns no reason. Free function, any thread.
#ifndef EPIC_COMMON_RPC_PORT_PROBE_H_
#define EPIC_COMMON_RPC_PORT_PROBE_H_

#include <string>

#include "absl/status/status.h"

namespace epic {

// `address`: HOST:PORT or [IPV6]:PORT; port 0 is always free. A name may have several addresses: one that is
// not of this machine is passed over, unless all are such.
// Errors: Unavailable with the address, the reason and what to do; InvalidArgument when it is no address.
absl::Status CheckCanListen(const std::string& address);

}  // namespace epic

#endif  // EPIC_COMMON_RPC_PORT_PROBE_H_
