#include "services/compile_worker/core/layer_queue.h"

#include <utility>

namespace epic {

absl::Status LayerQueue::Push(uint32_t layer, ByteSpan slab) {
  Layer copy{.index = layer, .slab = {slab.begin(), slab.end()}};
  MutexLock lock(&mu_);
  if (!status_.ok()) return status_;
  waiting_.push_back(std::move(copy));
  StartIfIdle();
  return absl::OkStatus();
}

void LayerQueue::End(bool keep, std::function<void(const absl::Status&)> written) {
  MutexLock lock(&mu_);
  if (!keep) waiting_.clear();
  written_ = std::move(written);
  StartIfIdle();
}

void LayerQueue::StartIfIdle() {
  if (running_) return;
  running_ = true;
  executor_->Submit([self = shared_from_this()] { self->Run(); });
}

void LayerQueue::Run() {
  for (;;) {
    Layer layer;
    std::function<void(const absl::Status&)> written;
    absl::Status status;
    {
      MutexLock lock(&mu_);
      if (!status_.ok()) waiting_.clear();
      if (waiting_.empty()) {
        running_ = false;
        written.swap(written_);
        status = status_;
      } else {
        layer = std::move(waiting_.front());
        waiting_.pop_front();
      }
    }
    if (layer.slab.empty()) {
      if (written) written(status);
      return;
    }
    status = writer_->WriteLayer(layer.index, layer.slab);
    MutexLock lock(&mu_);
    if (status_.ok()) status_ = status;
  }
}

}  // namespace epic
