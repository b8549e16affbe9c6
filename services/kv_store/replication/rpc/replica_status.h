// What a node answers instead of a reply, on the wire: the code, and the code of common/status/error.h if
// it has one, in the details of the call's status. So the caller can tell it from what the network, or the
// door, says of the call: that has no such details, and becomes Unavailable without a code of ours (peer.h).
// Texts that may name paths of the machine stay there. Pure; thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_RPC_REPLICA_STATUS_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_RPC_REPLICA_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "epic/v1/kv_store.pb.h"

namespace epic::kv_store {

v1::ItemStatus StatusToProto(const absl::Status& status);
// The status that the message stands for. Errors: InvalidArgument when it stands for none; OK is one.
absl::StatusOr<absl::Status> StatusFromProto(const v1::ItemStatus& proto);

grpc::Status ToReplicaGrpcStatus(const absl::Status& status);
// REQUIRES: !status.ok().
absl::Status FromReplicaGrpcStatus(const grpc::Status& status);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_RPC_REPLICA_STATUS_H_
