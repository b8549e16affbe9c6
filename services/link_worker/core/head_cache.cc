#include "services/link_worker/core/head_cache.h"

#include <optional>

#include "common/status/status_macros.h"

namespace epic {

absl::StatusOr<CacheId> HeadCache::Use(const std::string& tenant, const std::vector<TokenId>& tokens) {
  const CacheId id = CacheId::Of(tenant, model_identity_, tokens);
  const Key key(tenant, id);
  {
    MutexLock lock(&mu_);
    if (const auto found = places_.find(key); found != places_.end()) {
      by_use_.splice(by_use_.begin(), by_use_, found->second);
      return id;
    }
  }
  NewContext context{.tenant = tenant,
                     .model_identity = model_identity_,
                     .model = model_,
                     .tokens = tokens,
                     .hidden = true,
                     .ttl_seconds = limits_.ttl_seconds,
                     .pin_until_ms = {},
                     .tags = {},
                     .name = {},
                     .compile_prefix = {}};
  EPIC_RETURN_IF_ERROR(store_->CreateContext(context).status());
  std::optional<Key> oldest;
  {
    MutexLock lock(&mu_);
    if (places_.contains(key)) return id;
    by_use_.push_front(key);
    places_.emplace(key, by_use_.begin());
    if (places_.size() > limits_.max_heads) {
      oldest = by_use_.back();
      places_.erase(*oldest);
      by_use_.pop_back();
    }
  }
  if (oldest.has_value()) {
    // Unless a user has made the same text a context of theirs since.
    const absl::StatusOr<ContextRecord> record = store_->GetContext(oldest->first, oldest->second);
    if (record.ok() && record->hidden) store_->DeleteContext(oldest->first, oldest->second).IgnoreError();
  }
  return id;
}

void HeadCache::Forget(const std::string& tenant, const CacheId& id) {
  MutexLock lock(&mu_);
  const auto found = places_.find(Key(tenant, id));
  if (found == places_.end()) return;
  by_use_.erase(found->second);
  places_.erase(found);
}

size_t HeadCache::size() const {
  MutexLock lock(&mu_);
  return places_.size();
}

}  // namespace epic
