#include "services/link_worker/core/unsound_objects.h"

#include <cstddef>

#include "common/status/error.h"

namespace epic {

UnsoundObjects::UnsoundObjects(KvStore* store, Metrics* metrics) : store_(store) {
  if (metrics != nullptr) dropped_ = metrics->GetCounter(MetricId::kNotFiniteTotal, {"object"});
}

bool UnsoundObjects::MayBeBehind(const absl::Status& failure) {
  return !failure.ok() && CodeOf(failure) == ErrorCode::kInternal;
}

absl::Status UnsoundObjects::DropBehind(const absl::Status& failure, const std::string& tenant,
                                        std::span<const StoredObject> objects) const {
  size_t dropped = 0;
  for (const StoredObject& object : objects) {
    const absl::StatusOr<AcquireResult> stored = store_->Acquire(tenant, object.key, object.layout);
    if (!stored.ok() || stored->object == nullptr) continue;
    if (!stored->object->WaitLayer(object.layout.layers - 1).ok() || AllFinite(*stored->object)) continue;
    if (!store_->DropObject(tenant, object.key).ok()) continue;  // the disk fails: health tells of it
    ++dropped;
    if (dropped_.has_value()) dropped_->Add();
  }
  if (dropped == 0) return failure;
  return Error(
      ErrorCode::kInternal,
      "the stored keys and values of " + std::to_string(dropped) +
          " parts of this prompt were not numbers and have been dropped: send the request again, and "
          "they are compiled anew");
}

}  // namespace epic
