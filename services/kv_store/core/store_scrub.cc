// The part of StoreCore that re-reads copies on disk; when that happens is in scrubber.h.
#include <utility>

#include "services/kv_store/core/object_io.h"
#include "services/kv_store/core/store_core.h"

namespace epic::kv_store {

void StoreCore::ScrubPass(const ScrubPace& pace) {
  uint32_t cursor = 0;
  while (const auto next = objects_.NextOnDisk(&cursor)) {
    if (!ScrubObject(next->first, next->second, pace)) return;
  }
  ++scrub_passes_;
}

// False: the pass is to end.
bool StoreCore::ScrubObject(const TenantObjectKey& key, const DiskCopy& copy, const ScrubPace& pace) {
  const auto record = records_.Get(key.context);
  if (!record.ok()) return true;  // expired or deleted: its copies go with it
  bool go_on = true;
  const absl::Status status = VerifyObject(tables_.get(), HomeOf(copy.number), key, record->model_identity,
                                           copy, [&](uint64_t bytes) {
                                             scrub_bytes_ += bytes;
                                             go_on = pace(bytes);
                                             return go_on;
                                           });
  if (!go_on) return false;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      ++scrub_objects_;
      return true;
    case absl::StatusCode::kNotFound: {
      // Ordinarily it was replaced or evicted while we read; a copy that should be there and is not, is lost.
      const auto now = objects_.DiskCopyOf(key);
      if (!now.has_value() || now->number != copy.number) return true;
      break;
    }
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
      break;
    default:
      // A disk that is gone for a moment is no reason to give up what it holds.
      ++scrub_errors_;
      return true;
  }
  ++scrub_damaged_;
  Quarantine(key, copy.number, CauseOf(status));
  return true;
}

ScrubCounts StoreCore::Scrubbed() const {
  return {.passes = scrub_passes_.load(),
          .objects = scrub_objects_.load(),
          .bytes = scrub_bytes_.load(),
          .damaged = scrub_damaged_.load(),
          .errors = scrub_errors_.load()};
}

}  // namespace epic::kv_store
