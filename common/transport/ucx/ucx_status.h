// The one place that turns a ucs_status_t of UCX into a status of ours. Free functions; thread-safe.
#ifndef EPIC_COMMON_TRANSPORT_UCX_UCX_STATUS_H_
#define EPIC_COMMON_TRANSPORT_UCX_UCX_STATUS_H_

#include <string_view>

#include <ucs/type/status.h>

#include "absl/status/status.h"

namespace epic::transport {

// OK stays OK. A cancelled call becomes Cancelled; no memory or no room ResourceExhausted; a call that the
// build or the device cannot do Unimplemented; less data than was promised DataLoss; a wrong call Internal
// (our own mistake); everything about the peer and the network Unavailable (may pass). `what` says what was
// tried, for the message. REQUIRES: `status` is not UCS_INPROGRESS.
absl::Status FromUcx(ucs_status_t status, std::string_view what);

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_UCX_STATUS_H_
