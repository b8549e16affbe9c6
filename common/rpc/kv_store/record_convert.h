// Context records between epic.v1 (kv_store.proto) and the structs of common/storage, both ways: the store's
// door and its client use the same functions. Pure.
//
// Decides nothing but what proto cannot say: sizes of digests, forms of ids, known enums. Enums that this
// version does not know are refused, never taken as the default. What fields may hold is the store's affair.
#ifndef EPIC_COMMON_RPC_KV_STORE_RECORD_CONVERT_H_
#define EPIC_COMMON_RPC_KV_STORE_RECORD_CONVERT_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/context_enums.h"
#include "common/storage/kv_store.h"
#include "epic/v1/kv_store.pb.h"

namespace epic {

// Errors of all FromProto: kInvalidRequest with the field's name as param.

absl::StatusOr<Digest> DigestFromProto(const std::string& bytes, std::string_view field);
std::string ToProto(const Digest& digest);  // empty for none
absl::StatusOr<CacheId> CacheIdFromProto(const std::string& text, std::string_view field);

v1::ObjectVariant ToProto(const ObjectVariant& variant);
absl::StatusOr<ObjectVariant> FromProto(const v1::ObjectVariant& proto);

v1::StoredContext ToProto(const ContextRecord& record);
absl::StatusOr<ContextRecord> FromProto(const v1::StoredContext& proto, const std::string& tenant);

v1::StoreCreateContextRequest ToProto(const NewContext& context);
absl::StatusOr<NewContext> FromProto(const v1::StoreCreateContextRequest& proto);

v1::StoreListContextsRequest ToProto(std::string_view tenant, const ContextQuery& query);
absl::StatusOr<ContextQuery> FromProto(const v1::StoreListContextsRequest& proto);

v1::StoreUpdateContextRequest ToProto(std::string_view tenant, const CacheId& id, const ContextPatch& patch);
absl::StatusOr<ContextPatch> FromProto(const v1::StoreUpdateContextRequest& proto);

absl::StatusOr<ContextState> FromProto(v1::ContextState state);

// Usage() and Disk() of a store in one message; ages by a steady clock that shows `now_steady_ns`.
v1::StoreUsageResponse ToProto(const StoreUsage& usage, const StoreDisk& disk, int64_t now_steady_ns);
StoreUsage UsageFromProto(const v1::StoreUsageResponse& proto);
StoreDisk DiskFromProto(const v1::StoreUsageResponse& proto, int64_t now_steady_ns);

}  // namespace epic

#endif  // EPIC_COMMON_RPC_KV_STORE_RECORD_CONVERT_H_
