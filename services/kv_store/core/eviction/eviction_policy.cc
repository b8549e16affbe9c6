#include "services/kv_store/core/eviction/eviction_policy.h"

#include "services/kv_store/core/eviction/lru_policy.h"
#include "services/kv_store/core/eviction/s3_fifo_policy.h"

namespace epic::kv_store {

std::unique_ptr<EvictionPolicy> MakeEvictionPolicy(EvictionKind kind, EntryPool* pool) {
  if (kind == EvictionKind::kLru) return std::make_unique<LruPolicy>(pool);
  return std::make_unique<S3FifoPolicy>(pool);
}

}  // namespace epic::kv_store
