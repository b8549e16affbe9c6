// The calls of KvStore (common/storage/kv_store.h) that concern records, at a store node. Owned by
// RemoteKvStore. Thread-safe; calls block until the node answers or their deadline is over.
//
// Errors are those of KvStore, and Unavailable or DeadlineExceeded of the way there. A call that was cut off
// may have been done: then the second attempt says `created` or `existed` of what the first one did.
#ifndef EPIC_COMMON_RPC_KV_STORE_RECORD_CLIENT_H_
#define EPIC_COMMON_RPC_KV_STORE_RECORD_CLIENT_H_

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/rpc/kv_store/store_channel.h"
#include "common/storage/kv_store.h"

namespace epic {

class RecordClient {
 public:
  RecordClient(std::shared_ptr<StoreChannel> channel, const Clock* clock)
      : channel_(std::move(channel)), clock_(clock) {}

  absl::StatusOr<CreateResult> CreateContext(const NewContext& context);
  // Per id, in their order. The outer status: the call failed as a whole.
  absl::StatusOr<std::vector<absl::StatusOr<ContextRecord>>> GetContexts(std::string_view tenant,
                                                                         const std::vector<CacheId>& ids);
  absl::StatusOr<ContextRecord> GetContext(std::string_view tenant, const CacheId& id);
  absl::StatusOr<ContextRecord> FindByName(std::string_view tenant, const Digest& model_identity,
                                           std::string_view name);
  absl::StatusOr<std::vector<TokenId>> GetTokens(std::string_view tenant, const CacheId& id);
  absl::StatusOr<ContextPage> ListContexts(std::string_view tenant, const ContextQuery& query);
  absl::StatusOr<ContextRecord> UpdateContext(std::string_view tenant, const CacheId& id,
                                              const ContextPatch& patch);
  absl::StatusOr<bool> DeleteContext(std::string_view tenant, const CacheId& id);
  absl::Status SetState(std::string_view tenant, const CacheId& id, ContextState state, int64_t compile_ms,
                        std::string_view error);
  absl::Status Touch(std::string_view tenant, const std::vector<CacheId>& ids);

  struct UsageAndDisk {
    StoreUsage usage;
    StoreDisk disk;  // ages by our clock
  };
  absl::StatusOr<UsageAndDisk> Usage();

 private:
  const std::shared_ptr<StoreChannel> channel_;
  const Clock* const clock_;
};

}  // namespace epic

#endif  // EPIC_COMMON_RPC_KV_STORE_RECORD_CLIENT_H_
