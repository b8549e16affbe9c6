// A KvStore in plain memory that keeps the promises of kv_store.h, loses objects when a test says so and can
// be told to fail. Survives "restarts": hand the same store to new cores. Thread-safe.
#ifndef EPIC_SERVICES_WORKER_API_TESTING_FAKE_KV_STORE_H_
#define EPIC_SERVICES_WORKER_API_TESTING_FAKE_KV_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/storage/kv_store.h"

namespace epic::testing {

class FakeKvStore final : public KvStore {
 public:
  explicit FakeKvStore(const Clock* clock) : clock_(clock) {}

  absl::StatusOr<CreateResult> CreateContext(const NewContext& context) override;
  absl::StatusOr<ContextRecord> GetContext(std::string_view tenant, const CacheId& id) override;
  absl::StatusOr<ContextRecord> FindByName(std::string_view tenant, const Digest& model_identity,
                                           std::string_view name) override;
  absl::StatusOr<std::vector<TokenId>> GetTokens(std::string_view tenant, const CacheId& id) override;
  absl::StatusOr<ContextPage> ListContexts(std::string_view tenant, const ContextQuery& query) override;
  absl::StatusOr<ContextRecord> UpdateContext(std::string_view tenant, const CacheId& id,
                                              const ContextPatch& patch) override;
  absl::StatusOr<bool> DeleteContext(std::string_view tenant, const CacheId& id) override;
  absl::Status SetState(std::string_view tenant, const CacheId& id, ContextState state, int64_t compile_ms,
                        std::string_view error) override;
  void Touch(std::string_view tenant, const CacheId& id) override;
  absl::StatusOr<std::unique_ptr<ObjectWriter>> Reserve(std::string_view tenant, const ObjectKey& key,
                                                        const KvLayout& layout) override;
  absl::StatusOr<AcquireResult> Acquire(std::string_view tenant, const ObjectKey& key,
                                        const KvLayout& layout) override;
  absl::Status DropObject(std::string_view tenant, const ObjectKey& key) override;
  StoreUsage Usage() override;
  StoreDisk Disk() override;

  // --- what the test says and asks
  void DropAllObjects();
  void set_reserve_status(absl::Status status);  // every Reserve returns it
  size_t hidden_contexts();
  void set_disk(const StoreDisk& disk);

 private:
  class Writer;
  using Key = std::pair<std::string, CacheId>;        // tenant, id
  using FullKey = std::pair<std::string, ObjectKey>;  // tenant, key
  struct Entry {
    ContextRecord record;
    std::vector<TokenId> tokens;
  };
  absl::StatusOr<Entry*> Find(std::string_view tenant, const CacheId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ContextRecord Filled(const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool NameTaken(const NewContext& context, const CacheId& own) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Erase(const Key& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Clock* const clock_;
  Mutex mu_;
  std::map<Key, Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::map<Key, bool> deleted_ ABSL_GUARDED_BY(mu_);
  std::map<FullKey, std::shared_ptr<const KvObject>> objects_ ABSL_GUARDED_BY(mu_);
  absl::Status reserve_status_ ABSL_GUARDED_BY(mu_);
  uint64_t reservations_ ABSL_GUARDED_BY(mu_) = 0;
  StoreDisk disk_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic::testing

#endif  // EPIC_SERVICES_WORKER_API_TESTING_FAKE_KV_STORE_H_
