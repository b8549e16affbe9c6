#include "services/worker_api/testing/faulty_kv_store.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "common/status/status_macros.h"
#include "services/kv_store/core/store_core.h"

namespace epic::testing {
namespace {
constexpr uint64_t kMemoryBytes = uint64_t{64} << 20;
}  // namespace

class FaultyKvStore::Writer final : public ObjectWriter {
 public:
  Writer(FaultyKvStore* store, std::unique_ptr<ObjectWriter> inner)
      : store_(store), inner_(std::move(inner)) {}
  absl::Status WriteLayer(uint32_t layer, ByteSpan slab) override {
    EPIC_RETURN_IF_ERROR(store_->Enter(StoreCall::kWriteLayer));
    return inner_->WriteLayer(layer, slab);
  }
  absl::StatusOr<std::shared_ptr<const KvObject>> Commit() override {
    EPIC_RETURN_IF_ERROR(store_->Enter(StoreCall::kCommit));
    return inner_->Commit();
  }

 private:
  FaultyKvStore* const store_;
  const std::unique_ptr<ObjectWriter> inner_;
};

FaultyKvStore::FaultyKvStore(const Clock* clock) : inner_(kv_store::MakeMemoryKvStore(kMemoryBytes, clock)) {}

absl::Status FaultyKvStore::Enter(StoreCall call) {
  MutexLock lock(&mu_);
  const auto waiting = waiting_.insert(call);
  waits_.SignalAll();
  while (held_.contains(call)) released_.Wait(&mu_);
  waiting_.erase(waiting);
  const auto fault = faults_.find(call);
  if (fault == faults_.end()) return absl::OkStatus();
  absl::Status status = fault->second.status;
  if (--fault->second.times == 0) faults_.erase(fault);
  return status;
}

absl::StatusOr<CreateResult> FaultyKvStore::CreateContext(const NewContext& context) {
  EPIC_RETURN_IF_ERROR(Enter(StoreCall::kCreateContext));
  EPIC_ASSIGN_OR_RETURN(CreateResult result, inner_->CreateContext(context));
  MutexLock lock(&mu_);
  contexts_.emplace(result.record.tenant, result.record.id);
  return result;
}

absl::StatusOr<ContextRecord> FaultyKvStore::GetContext(std::string_view tenant, const CacheId& id) {
  EPIC_RETURN_IF_ERROR(Enter(StoreCall::kGetContext));
  return inner_->GetContext(tenant, id);
}

absl::StatusOr<ContextRecord> FaultyKvStore::FindByName(std::string_view tenant, const Digest& model_identity,
                                                        std::string_view name) {
  EPIC_RETURN_IF_ERROR(Enter(StoreCall::kFindByName));
  return inner_->FindByName(tenant, model_identity, name);
}

absl::StatusOr<std::vector<TokenId>> FaultyKvStore::GetTokens(std::string_view tenant, const CacheId& id) {
  EPIC_RETURN_IF_ERROR(Enter(StoreCall::kGetTokens));
  return inner_->GetTokens(tenant, id);
}

absl::StatusOr<ContextPage> FaultyKvStore::ListContexts(std::string_view tenant, const ContextQuery& query) {
  EPIC_RETURN_IF_ERROR(Enter(StoreCall::kListContexts));
  return inner_->ListContexts(tenant, query);
}

absl::StatusOr<ContextRecord> FaultyKvStore::UpdateContext(std::string_view tenant, const CacheId& id,
                                                           const ContextPatch& patch) {
  EPIC_RETURN_IF_ERROR(Enter(StoreCall::kUpdateContext));
  return inner_->UpdateContext(tenant, id, patch);
}

absl::StatusOr<bool> FaultyKvStore::DeleteContext(std::string_view tenant, const CacheId& id) {
  EPIC_RETURN_IF_ERROR(Enter(StoreCall::kDeleteContext));
  return inner_->DeleteContext(tenant, id);
}

absl::StatusOr<bool> FaultyKvStore::EraseContext(std::string_view tenant, const CacheId& id,
                                                 ErasedDone erased) {
  EPIC_RETURN_IF_ERROR(Enter(StoreCall::kDeleteContext));
  return inner_->EraseContext(tenant, id, std::move(erased));
}

absl::Status FaultyKvStore::SetState(std::string_view tenant, const CacheId& id, ContextState state,
                                     int64_t compile_ms, std::string_view error) {
  EPIC_RETURN_IF_ERROR(Enter(StoreCall::kSetState));
  return inner_->SetState(tenant, id, state, compile_ms, error);
}

absl::StatusOr<std::unique_ptr<ObjectWriter>> FaultyKvStore::Reserve(std::string_view tenant,
                                                                     const ObjectKey& key,
                                                                     const KvLayout& layout) {
  EPIC_RETURN_IF_ERROR(Enter(StoreCall::kReserve));
  EPIC_ASSIGN_OR_RETURN(std::unique_ptr<ObjectWriter> writer, inner_->Reserve(tenant, key, layout));
  MutexLock lock(&mu_);
  objects_[{std::string(tenant), key}] = layout;
  return std::make_unique<Writer>(this, std::move(writer));
}

absl::StatusOr<AcquireResult> FaultyKvStore::Acquire(std::string_view tenant, const ObjectKey& key,
                                                     const KvLayout& layout) {
  EPIC_RETURN_IF_ERROR(Enter(StoreCall::kAcquire));
  bool corrupt = false;
  {
    MutexLock lock(&mu_);
    std::swap(corrupt, corrupt_next_);
  }
  if (!corrupt) return inner_->Acquire(tenant, key, layout);
  EPIC_RETURN_IF_ERROR(inner_->DropObject(tenant, key));
  return AcquireResult{.object = nullptr, .cause = MissCause::kChecksum};
}

absl::Status FaultyKvStore::DropObject(std::string_view tenant, const ObjectKey& key) {
  EPIC_RETURN_IF_ERROR(Enter(StoreCall::kDropObject));
  return inner_->DropObject(tenant, key);
}

StoreDisk FaultyKvStore::Disk() {
  MutexLock lock(&mu_);
  return disk_.has_value() ? *disk_ : inner_->Disk();
}

void FaultyKvStore::Fail(StoreCall call, absl::Status status, uint64_t times) {
  EPIC_CHECK(!status.ok() && times > 0);
  MutexLock lock(&mu_);
  faults_[call] = {.status = std::move(status), .times = times};
}

void FaultyKvStore::Hold(StoreCall call) {
  MutexLock lock(&mu_);
  held_.insert(call);
}

void FaultyKvStore::WaitUntilHeld(StoreCall call) {
  MutexLock lock(&mu_);
  while (!waiting_.contains(call)) waits_.Wait(&mu_);
}

void FaultyKvStore::Release(StoreCall call) {
  MutexLock lock(&mu_);
  held_.erase(call);
  released_.SignalAll();
}

void FaultyKvStore::CorruptNext() {
  MutexLock lock(&mu_);
  corrupt_next_ = true;
}

FaultyKvStore::Objects FaultyKvStore::AllObjects() {
  MutexLock lock(&mu_);
  return objects_;
}

void FaultyKvStore::DropAllObjects() {
  for (const auto& [place, layout] : AllObjects()) {
    EPIC_CHECK(inner_->DropObject(place.first, place.second).ok());
  }
}

void FaultyKvStore::PoisonAllObjects() {
  for (const auto& [place, layout] : AllObjects()) {
    const auto& [tenant, key] = place;
    const absl::StatusOr<AcquireResult> stored = inner_->Acquire(tenant, key, layout);
    EPIC_CHECK(stored.ok());
    if (stored->object == nullptr) continue;
    EPIC_CHECK(inner_->DropObject(tenant, key).ok());
    const auto writer = inner_->Reserve(tenant, key, layout);
    EPIC_CHECK(writer.ok());
    for (uint32_t layer = 0; layer < layout.layers; ++layer) {
      const ByteSpan slab = stored->object->Layer(layer);
      std::vector<std::byte> bytes(slab.begin(), slab.end());
      const uint32_t nan = 0x7fc07fc0;  // one of f32, two of bf16
      std::memcpy(bytes.data(), &nan, sizeof(nan));
      EPIC_CHECK((*writer)->WriteLayer(layer, bytes).ok());
    }
    EPIC_CHECK((*writer)->Commit().ok());
  }
}

void FaultyKvStore::set_disk(const StoreDisk& disk) {
  MutexLock lock(&mu_);
  disk_ = disk;
}

size_t FaultyKvStore::hidden_contexts() {
  std::set<std::pair<std::string, CacheId>> contexts;
  {
    MutexLock lock(&mu_);
    contexts = contexts_;
  }
  return std::count_if(contexts.begin(), contexts.end(), [this](const auto& context) {
    const auto record = inner_->GetContext(context.first, context.second);
    return record.ok() && record->hidden;
  });
}

}  // namespace epic::testing
