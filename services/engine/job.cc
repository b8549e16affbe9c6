#include "services/engine/job.h"

#include <utility>

#include "common/status/error.h"

namespace epic {

absl::Status CancelledError() { return absl::CancelledError("the client went away"); }

void Job::WatchLayers(const JobContext& context, const std::shared_ptr<LayerSignal>& signal) {
  if (panels_.gate.empty() && !suspended()) return;
  if (panels_.remaining() > 0) lost_ = panels_.gate.Watch(signal);
  if (lost_.has_value()) status_ = lost_->why;
  const bool suspends = status_.ok() && panels_.remaining() > 0 && panels_.Runnable() == 0;
  if (suspends == suspended()) return;
  if (suspends) {
    suspended_since_ns_ = context.clock->SteadyNs();
  } else {
    suspended_ns_ = suspended_ns(*context.clock);
    suspended_since_ns_.reset();
  }
}

int64_t Job::suspended_ns(const Clock& clock) const {
  return suspended_ns_ + (suspended() ? clock.SteadyNs() - *suspended_since_ns_ : 0);
}

bool Job::CheckFinite(const KvShape& shape, const KvBlock& block, uint32_t first, uint32_t rows,
                      std::span<const float> logits) {
  // An infinite key may weigh nothing in these logits and spoil later ones.
  if (AllFinite(std::as_bytes(logits), KvDtype::kF32) && AreRowsFinite(shape, block, first, rows))
    return true;
  FailNotFinite(
      "the model's output is not a number for this prompt, and nothing of it was kept: check the model "
      "file if this happens again");
  return false;
}

void Job::FailNotFinite(std::string_view message) {
  not_finite_ = true;
  status_ = FinalError(ErrorCode::kInternal, message);  // the same weights compute the same again
}

}  // namespace epic
