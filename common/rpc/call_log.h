// The log of the calls of a gRPC door. A free function.
#ifndef EPIC_COMMON_RPC_CALL_LOG_H_
#define EPIC_COMMON_RPC_CALL_LOG_H_

#include "common/log/log.h"
#include "common/rpc/rpc_event.h"

namespace epic {

// Writes a line for each call, and what it failed of where its caller is not told.
RpcObserver LogCalls(const Logger& log);

}  // namespace epic

#endif  // EPIC_COMMON_RPC_CALL_LOG_H_
