// Tokens, states and results of a store node (core/node/node_types.h) in epic.v1. Pure.
#ifndef EPIC_SERVICES_KV_STORE_RPC_NODE_CONVERT_H_
#define EPIC_SERVICES_KV_STORE_RPC_NODE_CONVERT_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "epic/v1/kv_store.pb.h"
#include "services/kv_store/core/node/node_types.h"

namespace epic::kv_store {

std::string BytesOf(const ReservationToken& token);
// Errors: kInvalidRequest unless they are 16 bytes.
absl::StatusOr<ReservationToken> TokenOf(std::string_view bytes);
// Errors: kInvalidRequest unless they are 16 bytes an item, or too many.
absl::StatusOr<std::vector<ReservationToken>> TokensOf(const std::string& bytes);
// One for each of `count` reserves, or none. Errors: InvalidArgument.
absl::StatusOr<std::vector<ReserveRequestId>> RequestIdsOf(const std::string& bytes, size_t count);
v1::TokenState ToProto(TokenState state);

// Errors: kInvalidRequest when there are too many.
absl::StatusOr<std::vector<LeaseId>> LeasesOf(const v1::Leases& proto);
v1::LeaseStatesResponse ToProto(const std::vector<LeaseState>& states, uint64_t incarnation);

void SetItem(const ReserveResult& result, v1::ReserveObjectsResponse::Item* item);
void SetItem(const absl::StatusOr<Committed>& result, v1::CommitObjectsResponse::Item* item);
void SetItem(const LeaseResult& result, bool with_checksums, v1::AcquireObjectsResponse::Item* item);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_RPC_NODE_CONVERT_H_
