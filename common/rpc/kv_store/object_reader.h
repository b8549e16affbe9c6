// How a RemoteKvStore gets the bytes of objects, if not whole over ReadLayers: leases come from the node by
// gRPC, bytes by whatever way the reader has (common/rpc/pull). Owned by the store; thread-safe.
#ifndef EPIC_COMMON_RPC_KV_STORE_OBJECT_READER_H_
#define EPIC_COMMON_RPC_KV_STORE_OBJECT_READER_H_

#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/rpc/kv_store/attachment.h"
#include "common/rpc/kv_store/object_client.h"
#include "common/rpc/kv_store/store_channel.h"
#include "common/storage/kv_store.h"

namespace epic {

class ObjectReader {
 public:
  // Ends what is under way: layers that are not there by then never come. Objects that are whole may outlive
  // it, others must be let go of before.
  virtual ~ObjectReader() = default;
  // As KvStore::AcquireStreaming. An object whose layers do not come, for a reason that does not concern it,
  // may be asked for again.
  virtual absl::StatusOr<AcquireResult> Read(std::string_view tenant, const ObjectKey& key,
                                             const KvLayout& layout) = 0;
};

// What a reader shares with its store; all outlive it.
struct ObjectReaderParts {
  std::shared_ptr<StoreChannel> channel;
  ObjectClient* objects = nullptr;
  const Attachment* attachment = nullptr;
};
using MakeObjectReader = std::function<std::unique_ptr<ObjectReader>(const ObjectReaderParts&)>;

}  // namespace epic

#endif  // EPIC_COMMON_RPC_KV_STORE_OBJECT_READER_H_
