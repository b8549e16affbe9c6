// The part of StoreCore that waits for a slow disk only for a bounded time: calls that need the disk are made
// on threads of their own (disk_calls.h), and their callers leave when they took too long.
//
// A read that comes late makes its object one in memory, if it still is the object; until then the thread
// that reads owns the memory. A change that comes late is made, and was never told of.
#include <optional>
#include <string>
#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/kv_store/core/object_io.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/core/store_core.h"

namespace epic::kv_store {
namespace {

using Side = DiskWatch::Side;

constexpr int64_t kRetryMs = 1000;
constexpr char kProbeRow[] = "disk_probe";

absl::Status TooLate(DiskCalls::End end) {
  return RetryLater(
      ErrorCode::kDeadline,
      end == DiskCalls::End::kLate
          ? "the disk of the store did not answer in time: what was asked for may still be done "
            "later; send it again"
          : "the disk of the store does not answer: nothing was changed; send it again",
      kRetryMs);
}

template <typename Result>
Result InTime(DiskCalls* calls, std::function<Result()> call, uint64_t bytes = 0) {
  DiskCalls::End end = DiskCalls::End::kDone;
  std::optional<Result> result = calls->Ask<Result>(std::move(call), DiskMsFor(bytes), &end);
  if (result.has_value()) return *std::move(result);
  return TooLate(end);
}

}  // namespace

// --- records

absl::StatusOr<CreateResult> StoreCore::CreateContext(const NewContext& context) {
  if (!changes_.bounded()) return CreateNow(context);
  return InTime<absl::StatusOr<CreateResult>>(
      &changes_, [this, context] { return CreateNow(context); }, context.tokens.size() * sizeof(TokenId));
}

absl::StatusOr<std::vector<TokenId>> StoreCore::GetTokens(std::string_view tenant, const CacheId& id) {
  if (!reads_.bounded()) return GetTokensNow(tenant, id);
  EPIC_ASSIGN_OR_RETURN(const ContextRecord record, records_.Get({std::string(tenant), id}));
  return InTime<absl::StatusOr<std::vector<TokenId>>>(
      &reads_, [this, tenant = std::string(tenant), id] { return GetTokensNow(tenant, id); },
      uint64_t{record.token_count} * sizeof(TokenId));
}

absl::StatusOr<ContextRecord> StoreCore::UpdateContext(std::string_view tenant, const CacheId& id,
                                                       const ContextPatch& patch) {
  return InTime<absl::StatusOr<ContextRecord>>(
      &changes_, [this, key = ContextKey{std::string(tenant), id}, patch] { return UpdateNow(key, patch); });
}

absl::StatusOr<bool> StoreCore::DeleteContext(std::string_view tenant, const CacheId& id) {
  return InTime<absl::StatusOr<bool>>(&changes_, [this, key = ContextKey{std::string(tenant), id}] {
    return RemoveContext(key, RemovalCause::kDeleted, {});
  });
}

absl::StatusOr<bool> StoreCore::EraseContext(std::string_view tenant, const CacheId& id, ErasedDone erased) {
  const std::string row = EraseRowName(next_erasure_++);
  EPIC_ASSIGN_OR_RETURN(
      const bool existed,
      InTime<absl::StatusOr<bool>>(&changes_, [this, key = ContextKey{std::string(tenant), id}, row] {
        absl::StatusOr<bool> removed = RemoveContext(key, RemovalCause::kDeleted, row);
        if (removed.ok()) eraser_->Load(row);  // also where nobody waits for the removal any more
        return removed;
      }));
  eraser_->Add(row, [erased = std::move(erased)](const absl::Status& status) {
    erased(status.ok() ? std::vector<std::string>() : std::vector<std::string>{std::string(kLocalNode)});
  });
  return existed;
}

absl::Status StoreCore::SetState(std::string_view tenant, const CacheId& id, ContextState state,
                                 int64_t compile_ms, std::string_view error) {
  return InTime<absl::Status>(
      &changes_, [this, key = ContextKey{std::string(tenant), id}, state, compile_ms,
                  error = std::string(error)] { return SetStateNow(key, state, compile_ms, error); });
}

// --- objects

absl::Status StoreCore::DropObject(std::string_view tenant, const ObjectKey& key) {
  return InTime<absl::Status>(&changes_,
                              [this, object = TenantObjectKey{{std::string(tenant), key.id}, key.variant}] {
                                return DropNow(object);
                              });
}

AcquireResult StoreCore::LoadInTime(const TenantObjectKey& key, const Digest& model_identity,
                                    const DiskCopy& copy, ObjectTable::Want want) {
  if (!reads_.bounded()) return LoadFromDisk(key, model_identity, copy, want);
  DiskCalls::End end = DiskCalls::End::kDone;
  auto result = reads_.Ask<AcquireResult>(
      [this, key, model_identity, copy, want] { return LoadFromDisk(key, model_identity, copy, want); },
      DiskMsFor(copy.bytes), &end);
  if (result.has_value()) return *std::move(result);
  LeaveLoad(key, copy.number, end);
  // Somebody may have compiled it meanwhile, or it came just now.
  ObjectPtr object = objects_.InMemory(key);
  if (object != nullptr && object->layout() != copy.layout) object = nullptr;
  return {.object = std::move(object), .cause = MissCause::kDiskSlow};
}

void StoreCore::LeaveLoad(const TenantObjectKey& key, uint64_t number, DiskCalls::End end) {
  if (end == DiskCalls::End::kLate) {
    objects_.LoadIsLate(key, number);
  } else {
    objects_.FinishLoad(key, number, nullptr);  // nobody reads it
  }
}

void StoreCore::WatchLoad(const TenantObjectKey& key, const DiskCopy& copy,
                          std::shared_ptr<LoadProgress> progress) {
  if (!reads_.bounded()) return;
  const MutexLock lock(&loads_mu_);
  uint64_t before = 0;
  for (const WatchedLoad& load : watched_loads_) before += load.bytes;
  watched_loads_.push_back({.key = key,
                            .number = copy.number,
                            .bytes = copy.bytes,
                            .layers = copy.layout.layers,
                            .progress = std::move(progress),
                            .patience = Patience(options_.disk_wait_ms + DiskMsFor(before + copy.bytes))});
}

// Who waits for their layers hears of it, and the thread that reads ends with the next layer that comes.
void StoreCore::FailLateLoads() {
  std::vector<WatchedLoad> late;
  {
    const MutexLock lock(&loads_mu_);
    std::erase_if(watched_loads_, [](const WatchedLoad& load) {
      return load.progress->HasFailed() || load.progress->ready() >= load.layers;
    });
    uint64_t bytes = 0;
    for (const WatchedLoad& load : watched_loads_) bytes += load.bytes;
    for (WatchedLoad& load : watched_loads_) {
      const uint32_t ready = load.progress->ready();
      if (std::exchange(load.ready, ready) != ready) {
        load.patience = Patience(options_.disk_wait_ms + DiskMsFor(bytes));
      } else if (load.patience.is_over()) {
        late.push_back(load);
      }
    }
    late_loads_ += late.size();
  }
  for (const WatchedLoad& load : late) {
    objects_.LoadIsLate(load.key, load.number);  // before they hear: who asks again is told the cause
    load.progress->Fail(TooLate(DiskCalls::End::kLate));
  }
}

bool StoreCore::IsWritingSlow() const { return options_.disk_wait_ms > 0 && watch_.IsSlow(Side::kWriting); }

// --- the disk

StoreDisk StoreCore::Disk() {
  StoreDisk disk = watch_.Seen();
  disk.late = reads_.late() + changes_.late();
  {
    const MutexLock lock(&loads_mu_);
    disk.late += late_loads_;
  }
  disk.not_written = writer_->dropped();
  return disk;
}

// What nobody asks for any more is not seen to be quick again, unless somebody tries.
void StoreCore::ProbeDisk() {
  if (watch_.IsSlow(Side::kWriting)) {
    WriteBatch nothing;
    nothing.Delete(Table::kNode, kProbeRow);  // which is never there: a line of the log, and its sync
    tables_->Write(nothing, Sync::kYes).IgnoreError();
  }
  if (watch_.IsSlow(Side::kReading)) ProbeReading();
}

// Reads one layer of the next object on disk.
void StoreCore::ProbeReading() {
  auto next = objects_.NextOnDisk(&probe_place_);
  if (!next.has_value()) {
    probe_place_ = 0;
    next = objects_.NextOnDisk(&probe_place_);
  }
  if (!next.has_value()) return;
  const auto& [key, copy] = *next;
  const auto record = records_.Get(key.context);
  if (!record.ok()) return;
  VerifyObject(tables_.get(), HomeOf(copy.number), key, record->model_identity, copy, [](uint64_t) {
    return false;
  }).IgnoreError();
}

}  // namespace epic::kv_store
