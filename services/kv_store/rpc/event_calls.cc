// The calls of KvStoreRpcService by which a node is followed; the stream is in event_stream.cc.
#include <optional>
#include <string>
#include <vector>

#include "common/rpc/kv_store/object_convert.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/kv_store/rpc/event_convert.h"
#include "services/kv_store/rpc/kv_store_service.h"

namespace epic::kv_store {
namespace {

constexpr uint32_t kDefaultPage = 1024;
constexpr uint32_t kMaxPage = 4096;

absl::StatusOr<uint32_t> LimitOf(uint32_t limit) {
  if (limit <= kMaxPage) return limit == 0 ? kDefaultPage : limit;
  return Error(ErrorCode::kInvalidRequest, "a page has at most " + std::to_string(kMaxPage) + " items",
               "limit");
}

absl::StatusOr<ObjectKey> OneKeyOf(const v1::ObjectKeys& proto) {
  EPIC_ASSIGN_OR_RETURN(const std::vector<ObjectKey> keys, KeysFromProto(proto));
  if (keys.size() == 1) return keys.front();
  return Error(ErrorCode::kInvalidRequest, "name one key", "key");
}

absl::StatusOr<std::optional<KvLayout>> LayoutIn(const v1::ObjectKeys& proto) {
  if (proto.layouts_size() == 0) return std::nullopt;
  EPIC_ASSIGN_OR_RETURN(const std::vector<KvLayout> layouts, LayoutsFromProto(proto));
  return layouts.front();
}

}  // namespace

grpc::ServerUnaryReactor* KvStoreRpcService::Inventory(grpc::CallbackServerContext* context,
                                                       const v1::InventoryRequest* request,
                                                       v1::InventoryPage* response) {
  return Answer(parts_, context, "inventory", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::InventoryPage> {
                  EPIC_ASSIGN_OR_RETURN(const InventoryPlace place, PlaceOf(request->place()));
                  EPIC_ASSIGN_OR_RETURN(const uint32_t limit, LimitOf(request->limit()));
                  return ToProto(node_->Inventory(place, limit));
                });
}

grpc::ServerUnaryReactor* KvStoreRpcService::Explain(grpc::CallbackServerContext* context,
                                                     const v1::ExplainRequest* request,
                                                     v1::ExplainResponse* response) {
  return Answer(parts_, context, "explain", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::ExplainResponse> {
                  EPIC_ASSIGN_OR_RETURN(const ObjectKey key, OneKeyOf(request->key()));
                  EPIC_ASSIGN_OR_RETURN(const std::optional<KvLayout> layout, LayoutIn(request->key()));
                  return ToProto(node_->Explain({request->tenant(), key}, layout), key.variant,
                                 node_->incarnation(), parts_->clock->UnixMs());
                });
}

}  // namespace epic::kv_store
