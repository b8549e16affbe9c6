#include "common/rpc/kv_store/record_client.h"

#include <string>
#include <utility>

#include "common/rpc/kv_store/item_status.h"
#include "common/rpc/kv_store/record_convert.h"
#include "common/status/status_macros.h"

namespace epic {
namespace {

using Stub = StoreChannel::Stub;

template <typename Request>
Request RequestOf(std::string_view tenant, const CacheId& id) {
  Request request;
  request.set_tenant(tenant.data(), tenant.size());
  request.set_id(id.text());
  return request;
}

}  // namespace

absl::StatusOr<CreateResult> RecordClient::CreateContext(const NewContext& context) {
  EPIC_ASSIGN_OR_RETURN(const auto answer, channel_->Call(&Stub::CreateContext, ToProto(context)));
  CreateResult result;
  EPIC_ASSIGN_OR_RETURN(result.record, FromProto(answer.context(), context.tenant));
  result.created = answer.created();
  return result;
}

absl::StatusOr<std::vector<absl::StatusOr<ContextRecord>>> RecordClient::GetContexts(
    std::string_view tenant, const std::vector<CacheId>& ids) {
  v1::StoreGetContextsRequest request;
  request.set_tenant(tenant.data(), tenant.size());
  for (const CacheId& id : ids) request.add_ids(id.text());
  EPIC_ASSIGN_OR_RETURN(const auto answer, channel_->Call(&Stub::GetContexts, request));
  if (answer.items_size() != request.ids_size()) {
    return absl::InternalError("the store answered another number of items than it was asked for");
  }
  std::vector<absl::StatusOr<ContextRecord>> records;
  for (const auto& item : answer.items()) {
    const absl::Status error = FromProto(item.error());
    if (error.ok()) {
      records.push_back(FromProto(item.context(), request.tenant()));
    } else {
      records.emplace_back(error);
    }
  }
  return records;
}

absl::StatusOr<ContextRecord> RecordClient::GetContext(std::string_view tenant, const CacheId& id) {
  EPIC_ASSIGN_OR_RETURN(auto records, GetContexts(tenant, {id}));
  return std::move(records.front());
}

absl::StatusOr<ContextRecord> RecordClient::FindByName(std::string_view tenant, const Digest& model_identity,
                                                       std::string_view name) {
  v1::StoreFindByNameRequest request;
  request.set_tenant(tenant.data(), tenant.size());
  request.set_model_identity(ToProto(model_identity));
  request.set_name(name.data(), name.size());
  EPIC_ASSIGN_OR_RETURN(const auto answer, channel_->Call(&Stub::FindByName, request));
  return FromProto(answer, request.tenant());
}

absl::StatusOr<std::vector<TokenId>> RecordClient::GetTokens(std::string_view tenant, const CacheId& id) {
  EPIC_ASSIGN_OR_RETURN(const auto answer,
                        channel_->Call(&Stub::GetTokens, RequestOf<v1::StoreGetTokensRequest>(tenant, id)));
  return std::vector<TokenId>(answer.tokens().begin(), answer.tokens().end());
}

absl::StatusOr<ContextPage> RecordClient::ListContexts(std::string_view tenant, const ContextQuery& query) {
  EPIC_ASSIGN_OR_RETURN(const auto answer, channel_->Call(&Stub::ListContexts, ToProto(tenant, query)));
  ContextPage page;
  for (const v1::StoredContext& context : answer.contexts()) {
    EPIC_ASSIGN_OR_RETURN(page.records.emplace_back(), FromProto(context, std::string(tenant)));
  }
  page.has_more = answer.has_more();
  return page;
}

absl::StatusOr<ContextRecord> RecordClient::UpdateContext(std::string_view tenant, const CacheId& id,
                                                          const ContextPatch& patch) {
  EPIC_ASSIGN_OR_RETURN(const auto answer, channel_->Call(&Stub::UpdateContext, ToProto(tenant, id, patch)));
  return FromProto(answer, std::string(tenant));
}

absl::StatusOr<bool> RecordClient::DeleteContext(std::string_view tenant, const CacheId& id) {
  EPIC_ASSIGN_OR_RETURN(
      const auto answer,
      channel_->Call(&Stub::DeleteContext, RequestOf<v1::StoreDeleteContextRequest>(tenant, id)));
  return answer.existed();
}

absl::Status RecordClient::SetState(std::string_view tenant, const CacheId& id, ContextState state,
                                    int64_t compile_ms, std::string_view error) {
  auto request = RequestOf<v1::StoreSetStateRequest>(tenant, id);
  request.set_state(ToProto(state));
  request.set_compile_ms(compile_ms);
  request.set_error(error.data(), error.size());
  return channel_->Call(&Stub::SetState, request).status();
}

absl::Status RecordClient::Touch(std::string_view tenant, const std::vector<CacheId>& ids) {
  v1::StoreTouchRequest request;
  request.set_tenant(tenant.data(), tenant.size());
  for (const CacheId& id : ids) request.add_ids(id.text());
  return channel_->Call(&Stub::Touch, request).status();
}

absl::StatusOr<RecordClient::UsageAndDisk> RecordClient::Usage() {
  EPIC_ASSIGN_OR_RETURN(const auto answer, channel_->Call(&Stub::Usage, v1::StoreUsageRequest()));
  return UsageAndDisk{UsageFromProto(answer), DiskFromProto(answer, clock_->SteadyNs())};
}

}  // namespace epic
