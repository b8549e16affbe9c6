// The part of StoreCore that fills memory again after a start; when that happens is in warm_up.h.
#include <algorithm>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "services/kv_store/core/object_io.h"
#include "services/kv_store/core/store_core.h"

namespace epic::kv_store {
namespace {

constexpr size_t kListedAtOnce = 256;
constexpr size_t kCandidatesMax = 65'536;

struct Candidate {
  uint64_t hits = 0;
  int64_t last_used_at_ms = 0;
  TenantObjectKey key;
  auto operator<=>(const Candidate&) const = default;
};

}  // namespace

// Those on disk alone whose contexts were used most, first; a bounded number of them.
std::vector<TenantObjectKey> StoreCore::HottestOnDisk() {
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> hottest;  // the coldest on top
  uint32_t place = 0;
  while (true) {
    const auto listed = objects_.ListTiers(&place, kListedAtOnce);
    for (const auto& [key, tiers] : listed) {
      if (tiers.in_memory) continue;
      const auto record = records_.Get(key.context);
      if (!record.ok() || record->hits == 0) continue;
      hottest.push({record->hits, record->last_used_at_ms, key});
      if (hottest.size() > kCandidatesMax) hottest.pop();
    }
    if (listed.size() < kListedAtOnce) break;
  }
  std::vector<TenantObjectKey> keys;
  for (; !hottest.empty(); hottest.pop()) keys.push_back(hottest.top().key);
  std::reverse(keys.begin(), keys.end());
  return keys;
}

void StoreCore::WarmUpPass(const ScrubPace& pace) {
  for (const TenantObjectKey& key : HottestOnDisk()) {
    if (!WarmUpObject(key, pace)) break;
  }
  warm_up_done_ = true;
}

// Waits until nobody has read from disk for a while and no object waits to be written. False: told to stop.
bool StoreCore::WaitForIdleDisk(uint64_t bytes, const ScrubPace& pace) {
  uint64_t seen = disk_loads_.load();
  if (!pace(bytes)) return false;
  while (disk_loads_.load() != seen || writer_->pending() > 0) {
    ++warm_up_pauses_;
    seen = disk_loads_.load();
    if (!pace(bytes)) return false;
  }
  return true;
}

// False: the pass is to end.
bool StoreCore::WarmUpObject(const TenantObjectKey& key, const ScrubPace& pace) {
  const std::optional<DiskCopy> known = objects_.DiskCopyOf(key);
  if (!known.has_value()) return true;
  if (!WaitForIdleDisk(known->bytes, pace)) return false;
  const RecordTable::Sight record = records_.Look(RefOf(key.context));
  if (record.life != RecordTable::Life::kLive) return true;
  const std::optional<DiskCopy> copy = objects_.BeginLoad(key);
  if (!copy.has_value()) return true;  // somebody else was faster, or it is gone
  DiskCalls::End end = DiskCalls::End::kDone;
  const std::optional<bool> goes_on =
      reads_.Ask<bool>([this, key, identity = record.model_identity,
                        found = *copy] { return WarmUpCopy(key, identity, found); },
                       DiskMsFor(copy->bytes), &end);
  if (goes_on.has_value()) return *goes_on;
  ++warm_up_errors_;
  LeaveLoad(key, copy->number, end);
  return false;
}

// False: the pass is to end. REQUIRES: the caller owes FinishLoad for this copy, which is made here.
bool StoreCore::WarmUpCopy(const TenantObjectKey& key, const Digest& model_identity, const DiskCopy& copy) {
  const uint64_t most = arena_->capacity_bytes() * options_.warm_up.memory_percent / 100;
  const bool fits = arena_->numbers().used_bytes + SlabFootprint(copy.layout) <= most;
  auto region = fits ? AllocateSlabs(arena_.get(), copy.layout) : nullptr;
  if (region == nullptr) {
    objects_.FinishLoad(key, copy.number, nullptr);
    return false;
  }
  const auto object =
      ReadObject(tables_.get(), HomeOf(copy.number), key, model_identity, copy, std::move(region));
  if (!object.ok()) {
    ++warm_up_errors_;
    const MissCause cause = CauseOf(object.status());
    // A disk that is in trouble is left alone, and keeps what it holds.
    if (cause != MissCause::kIoError) Quarantine(key, copy.number, cause);
    objects_.FinishLoad(key, copy.number, nullptr);
    return cause != MissCause::kIoError;
  }
  objects_.FinishLoad(key, copy.number, *object);
  // One use, for those before the start, which eviction has forgotten.
  const ObjectTable::Found found = objects_.Find(RefOf(key.context), key.variant, copy.layout);
  if (found.disk.has_value()) objects_.FinishLoad(key, found.disk->number, nullptr);  // evicted meanwhile
  ++warm_up_objects_;
  warm_up_bytes_ += copy.bytes;
  return true;
}

WarmUpCounts StoreCore::WarmedUp() const {
  return {.done = warm_up_done_.load() || options_.warm_up.bytes_per_s == 0,
          .objects = warm_up_objects_.load(),
          .bytes = warm_up_bytes_.load(),
          .pauses = warm_up_pauses_.load(),
          .errors = warm_up_errors_.load()};
}

}  // namespace epic::kv_store
