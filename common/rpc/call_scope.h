// The scope of one gRPC call: request id, deadline, cancellation. Made at the start of a call, one per call.
#ifndef EPIC_COMMON_RPC_CALL_SCOPE_H_
#define EPIC_COMMON_RPC_CALL_SCOPE_H_

#include <grpcpp/server_context.h>

#include "common/base/cancel.h"
#include "common/base/clock.h"
#include "common/base/request_ids.h"
#include "common/base/request_scope.h"

namespace epic {

// The caller's x-request-id or a new one (common/base/request_ids.h), echoed as initial metadata. The
// deadline is the call's own, in the clock's time.
RequestScope MakeScope(grpc::CallbackServerContext* context, const Clock& clock, RequestIds* ids,
                       CancelToken cancel);

}  // namespace epic

#endif  // EPIC_COMMON_RPC_CALL_SCOPE_H_
