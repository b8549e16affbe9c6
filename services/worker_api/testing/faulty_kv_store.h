// A KvStore that fails when a test says so: the real store over tables in memory, with each call refused,
// held up or answered from damaged bytes on demand. Survives "restarts": hand the same store to new cores.
// Thread-safe. Tests only. Not here: faults of the disk below the store (services/kv_store/testing).
#ifndef EPIC_SERVICES_WORKER_API_TESTING_FAULTY_KV_STORE_H_
#define EPIC_SERVICES_WORKER_API_TESTING_FAULTY_KV_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/storage/kv_store.h"

namespace epic::testing {

// Calls that can fail; kWriteLayer and kCommit are those of the writers that Reserve gives.
enum class StoreCall : uint8_t {
  kCreateContext,
  kGetContext,
  kFindByName,
  kGetTokens,
  kListContexts,
  kUpdateContext,
  kDeleteContext,
  kSetState,
  kReserve,
  kWriteLayer,
  kCommit,
  kAcquire,
  kDropObject,
};

class FaultyKvStore final : public KvStore {
 public:
  // `clock` outlives the store.
  explicit FaultyKvStore(const Clock* clock);

  absl::StatusOr<CreateResult> CreateContext(const NewContext& context) override;
  absl::StatusOr<ContextRecord> GetContext(std::string_view tenant, const CacheId& id) override;
  absl::StatusOr<ContextRecord> FindByName(std::string_view tenant, const Digest& model_identity,
                                           std::string_view name) override;
  absl::StatusOr<std::vector<TokenId>> GetTokens(std::string_view tenant, const CacheId& id) override;
  absl::StatusOr<ContextPage> ListContexts(std::string_view tenant, const ContextQuery& query) override;
  absl::StatusOr<ContextRecord> UpdateContext(std::string_view tenant, const CacheId& id,
                                              const ContextPatch& patch) override;
  absl::StatusOr<bool> DeleteContext(std::string_view tenant, const CacheId& id) override;
  absl::StatusOr<bool> EraseContext(std::string_view tenant, const CacheId& id, ErasedDone erased) override;
  absl::Status SetState(std::string_view tenant, const CacheId& id, ContextState state, int64_t compile_ms,
                        std::string_view error) override;
  void Touch(std::string_view tenant, const CacheId& id) override { inner_->Touch(tenant, id); }
  absl::StatusOr<std::unique_ptr<ObjectWriter>> Reserve(std::string_view tenant, const ObjectKey& key,
                                                        const KvLayout& layout) override;
  absl::StatusOr<AcquireResult> Acquire(std::string_view tenant, const ObjectKey& key,
                                        const KvLayout& layout) override;
  absl::Status DropObject(std::string_view tenant, const ObjectKey& key) override;
  StoreUsage Usage() override { return inner_->Usage(); }
  StoreDisk Disk() override;

  // --- what the test says
  // The next `times` calls of this kind return `status` and do nothing else.
  void Fail(StoreCall call, absl::Status status, uint64_t times = 1);
  // Calls of this kind wait from now on until Release.
  void Hold(StoreCall call);
  void Release(StoreCall call);
  // Returns when a call of this kind waits.
  void WaitUntilHeld(StoreCall call);
  // The next Acquire finds damaged bytes: a miss, and that object is gone.
  void CorruptNext();
  void DropAllObjects();
  // Puts a copy in the place of every object that has NaN among its first values, with right checksums.
  void PoisonAllObjects();
  void set_disk(const StoreDisk& disk);  // Disk() says so from now on

  // --- what the test asks
  size_t hidden_contexts();  // that live

 private:
  class Writer;
  using Objects = std::map<std::pair<std::string, ObjectKey>, KvLayout>;
  struct Fault {
    absl::Status status;
    uint64_t times = 0;
  };
  // What a call of this kind does before it reaches the store.
  absl::Status Enter(StoreCall call) ABSL_LOCKS_EXCLUDED(mu_);
  Objects AllObjects() ABSL_LOCKS_EXCLUDED(mu_);

  const std::unique_ptr<KvStore> inner_;

  Mutex mu_;
  CondVar released_, waits_;
  std::map<StoreCall, Fault> faults_ ABSL_GUARDED_BY(mu_);
  std::set<StoreCall> held_ ABSL_GUARDED_BY(mu_);
  std::multiset<StoreCall> waiting_ ABSL_GUARDED_BY(mu_);
  bool corrupt_next_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<StoreDisk> disk_ ABSL_GUARDED_BY(mu_);
  // Everything that was ever created or reserved: tenant and id, tenant and key.
  std::set<std::pair<std::string, CacheId>> contexts_ ABSL_GUARDED_BY(mu_);
  Objects objects_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic::testing

#endif  // EPIC_SERVICES_WORKER_API_TESTING_FAULTY_KV_STORE_H_
