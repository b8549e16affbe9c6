// Layers on their way from the engine to a store of another process: copied on the engine's thread, which
// must not wait, and written by the executor, in order, while the engine computes the next ones.
//
// One per object; it holds at most the layers of that object. The engine's thread calls Push and then End;
// the writer outlives what End was given.
#ifndef EPIC_SERVICES_COMPILE_WORKER_CORE_LAYER_QUEUE_H_
#define EPIC_SERVICES_COMPILE_WORKER_CORE_LAYER_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/bytes.h"
#include "common/base/executor.h"
#include "common/base/mutex.h"
#include "common/storage/kv_store.h"

namespace epic {

class LayerQueue : public std::enable_shared_from_this<LayerQueue> {
 public:
  // Both outlive the queue's work.
  LayerQueue(ObjectWriter* writer, Executor* executor) : writer_(writer), executor_(executor) {}
  LayerQueue(const LayerQueue&) = delete;
  LayerQueue& operator=(const LayerQueue&) = delete;

  // Errors: of a layer that was pushed before and could not be written.
  absl::Status Push(uint32_t layer, ByteSpan slab) ABSL_LOCKS_EXCLUDED(mu_);
  // Once, the last call. `written` is called on the executor when nothing is written any more: with the first
  // error, else OK when all is. `keep` false: what waits is dropped.
  void End(bool keep, std::function<void(const absl::Status&)> written) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Layer {
    uint32_t index;
    std::vector<std::byte> slab;
  };
  void StartIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  ObjectWriter* const writer_;  // used by Run only
  Executor* const executor_;

  Mutex mu_;
  std::deque<Layer> waiting_ ABSL_GUARDED_BY(mu_);
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::function<void(const absl::Status&)> written_ ABSL_GUARDED_BY(mu_);  // empty until End
};

}  // namespace epic

#endif  // EPIC_SERVICES_COMPILE_WORKER_CORE_LAYER_QUEUE_H_
