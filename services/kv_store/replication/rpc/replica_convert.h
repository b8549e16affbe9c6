// The messages of peer.h between epic.v1 (replication.proto) and the structs, both ways: the door of a node
// and its peers use the same functions. Pure; thread-safe.
//
// What comes in is taken only if a store may be handed it: ids, enums, counts and times of this version, a
// record and its tombstone that may stand beside each other, token ids as many as the record says, a change
// of the context that it names. Answers with pages are cut to what a message bears, as the calls allow.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_RPC_REPLICA_CONVERT_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_RPC_REPLICA_CONVERT_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "epic/v1/replication.pb.h"
#include "services/kv_store/replication/peer.h"

namespace epic::kv_store {

// Of any message: both ends of a connection take that much. The longest context fits.
inline constexpr size_t kMaxReplicaMessageBytes = size_t{96} << 20;
// Of the items in an answer to Fetch, and in one to Query, but for a single item.
inline constexpr size_t kFetchedBytes = size_t{4} << 20;
inline constexpr size_t kQueriedBytes = size_t{64} << 20;
inline constexpr int kMaxReplicaItems = 4096;

v1::ReplicaSendRequest ToProto(const SendRequest& request);
v1::ReplicaFetchRequest ToProto(const FetchRequest& request);
v1::ReplicaQueryRequest ToProto(const QueryRequest& request);
v1::ReplicaNameRequest ToProto(const NameRequest& request);
v1::ReplicaBeatRequest ToProto(const BeatRequest& request);
v1::ReplicaEraseRequest ToProto(const EraseRequest& request);
v1::ReplicaChangeRequest ToProto(const ChangeRequest& request);

v1::ReplicaSendResponse ToProto(const SendReply& reply);
v1::ReplicaFetchResponse ToProto(const FetchReply& reply);
v1::ReplicaQueryResponse ToProto(const QueryReply& reply);
v1::ReplicaNameResponse ToProto(const NameReply& reply);
v1::ReplicaBeatResponse ToProto(const BeatReply& reply);
v1::ReplicaEraseResponse ToProto(const EraseReply& reply);
v1::ReplicaChangeResponse ToProto(const ChangeReply& reply);

// Errors of all: InvalidArgument, with the field as param.

absl::StatusOr<SendRequest> FromProto(const v1::ReplicaSendRequest& proto);
absl::StatusOr<FetchRequest> FromProto(const v1::ReplicaFetchRequest& proto);
absl::StatusOr<QueryRequest> FromProto(const v1::ReplicaQueryRequest& proto);
absl::StatusOr<NameRequest> FromProto(const v1::ReplicaNameRequest& proto);
absl::StatusOr<BeatRequest> FromProto(const v1::ReplicaBeatRequest& proto);
absl::StatusOr<EraseRequest> FromProto(const v1::ReplicaEraseRequest& proto);
absl::StatusOr<ChangeRequest> FromProto(const v1::ReplicaChangeRequest& proto);

absl::StatusOr<SendReply> FromProto(const v1::ReplicaSendResponse& proto);
absl::StatusOr<FetchReply> FromProto(const v1::ReplicaFetchResponse& proto);
absl::StatusOr<QueryReply> FromProto(const v1::ReplicaQueryResponse& proto);
absl::StatusOr<NameReply> FromProto(const v1::ReplicaNameResponse& proto);
absl::StatusOr<BeatReply> FromProto(const v1::ReplicaBeatResponse& proto);
absl::StatusOr<EraseReply> FromProto(const v1::ReplicaEraseResponse& proto);
absl::StatusOr<ChangeReply> FromProto(const v1::ReplicaChangeResponse& proto);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_RPC_REPLICA_CONVERT_H_
