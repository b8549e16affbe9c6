// absl::Status to grpc::Status, by the one table of error codes (common/status/error.h). The only such
// converter.
//
// The details carry google.rpc.ErrorInfo: reason = our code, domain = "epic.v1", metadata "param" and
// "retry_after_ms" where they are known.
#ifndef EPIC_COMMON_RPC_GRPC_STATUS_H_
#define EPIC_COMMON_RPC_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace epic {

grpc::Status ToGrpcStatus(const absl::Status& status);

// The way back, for clients: code, message, and our payloads again where the details have them.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace epic

#endif  // EPIC_COMMON_RPC_GRPC_STATUS_H_
