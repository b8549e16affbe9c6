// Networks of a test's own: namespaces without names, so that the kernel takes them and their devices away
// with the last process in them, whatever ends it. Needs root, and iproute2 and nftables; where these are
// missing the tests say so and are skipped. Tests and benches only.
#ifndef EPIC_TESTS_NETWORK_TESTING_NETWORK_H_
#define EPIC_TESTS_NETWORK_TESTING_NETWORK_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace epic::network {

// Takes this process, which must have one thread, into an empty network of its own, with a /sys that shows
// it. Errors: Unavailable, with what is missing.
absl::Status EnterOwnNetwork();

// Runs a command of words without quotes in this process's network, at most 10 s. Errors: Internal.
absl::Status Run(const std::string& command);

// Waits until a device of this process's network carries packets, at most 5 s. Errors: Unavailable.
absl::Status AwaitCarrier(const std::string& device);

// Packets that the table `faults` of this process's network has dropped; -1 when there is no such table.
int64_t DroppedPackets();

// Waits; for faults that last a while.
void HoldFor(int64_t ms);

}  // namespace epic::network

#endif  // EPIC_TESTS_NETWORK_TESTING_NETWORK_H_
