// What a node answers to others from its own store: fetch, query, send. Functions over a ReplicaNode, on the
// thread of the caller; they block on the disk. Errors: Unavailable where the answer would not count: it is
// to be asked again later.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_ANSWERS_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_ANSWERS_H_

#include "absl/status/statusor.h"
#include "services/kv_store/replication/peer.h"
#include "services/kv_store/replication/replica_node.h"

namespace epic::kv_store {

absl::StatusOr<FetchReply> AnswerFetch(ReplicaNode* node, const FetchRequest& request);
absl::StatusOr<QueryReply> AnswerQuery(ReplicaNode* node, const QueryRequest& request);
absl::StatusOr<SendReply> AnswerSend(ReplicaNode* node, const SendRequest& request);
absl::StatusOr<BeatReply> AnswerBeat(ReplicaNode* node, const BeatRequest& request);

// Whether what is known overrules `sent`: the record that it brings is of a life that is over, or a field of
// it was set later; or a record that it ends lives on.
bool Overrules(const ReplicaState& known, const ReplicaState& sent);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_ANSWERS_H_
