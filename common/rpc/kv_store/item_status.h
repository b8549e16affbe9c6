// How one item of a batch call ended, and how a whole call of a store ended, between absl::Status and
// epic.v1.
//
// Beside the codes of common/status/error.h a store's caller needs to tell a disk that does not work
// (Unavailable, DataLoss) from a fault of ours: those two cross the wire, without the text, which may name
// paths of the machine.
#ifndef EPIC_COMMON_RPC_KV_STORE_ITEM_STATUS_H_
#define EPIC_COMMON_RPC_KV_STORE_ITEM_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "epic/v1/kv_store.pb.h"

namespace epic {

v1::ItemStatus ToProto(const absl::Status& status);
absl::Status FromProto(const v1::ItemStatus& proto);

// ToGrpcStatus (common/rpc/grpc_status.h) but for the two.
grpc::Status ToStoreGrpcStatus(const absl::Status& status);

}  // namespace epic

#endif  // EPIC_COMMON_RPC_KV_STORE_ITEM_STATUS_H_
