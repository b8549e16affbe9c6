// The hidden contexts that hold the heads of templates: which ones exist, at most so many.
//
// A head is the beginning of a prompt that the template alone wrote (system turn, opening of the user turn).
// Compiled once, it is exact in place for every prompt that begins with it. The least recently used head is
// deleted from the store when there are too many; a head forgotten by a restart goes by its expiry.
// Thread-safe; Use may block on the disk.
#ifndef EPIC_SERVICES_LINK_WORKER_CORE_HEAD_CACHE_H_
#define EPIC_SERVICES_LINK_WORKER_CORE_HEAD_CACHE_H_

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/base/digest.h"
#include "common/base/mutex.h"
#include "common/storage/kv_store.h"

namespace epic {

struct HeadLimits {
  uint32_t max_tokens = 1024;  // longer heads are own text
  uint32_t max_heads = 64;
  int64_t ttl_seconds = 7 * 24 * 3600;
};

class HeadCache {
 public:
  HeadCache(const HeadLimits& limits, const Digest& model_identity, std::string model, KvStore* store)
      : limits_(limits), model_identity_(model_identity), model_(std::move(model)), store_(store) {}

  const HeadLimits& limits() const { return limits_; }
  // The context of this head, created if it is new. Errors: those of the store.
  absl::StatusOr<CacheId> Use(const std::string& tenant, const std::vector<TokenId>& tokens);
  // The store no longer has it: the next Use creates it again.
  void Forget(const std::string& tenant, const CacheId& id);
  size_t size() const;

 private:
  using Key = std::pair<std::string, CacheId>;  // tenant, id

  const HeadLimits limits_;
  const Digest model_identity_;
  const std::string model_;
  KvStore* const store_;

  mutable Mutex mu_;
  std::list<Key> by_use_ ABSL_GUARDED_BY(mu_);  // most recent first
  std::map<Key, std::list<Key>::iterator> places_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic

#endif  // EPIC_SERVICES_LINK_WORKER_CORE_HEAD_CACHE_H_
