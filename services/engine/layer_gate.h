// How far a run of rows may go: to the first layer that an object which it reads has not brought yet.
//
// A gate belongs to one run and is asked on the engine's thread only; it never blocks. An object that holds
// the run back is told once a layer to raise the engine's signal. A signal synchronises itself and is shared
// with those callbacks, which may come when run and engine are gone.
#ifndef EPIC_SERVICES_ENGINE_LAYER_GATE_H_
#define EPIC_SERVICES_ENGINE_LAYER_GATE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/storage/kv_object.h"

namespace epic {

// Calls its function until it is closed. Thread-safe.
class LayerSignal {
 public:
  // `on_raise` must be cheap, must not block, and must not call this.
  explicit LayerSignal(std::function<void()> on_raise) : on_raise_(std::move(on_raise)) {}
  void Raise();
  // The function is not called any more once this returns.
  void Close();

 private:
  Mutex mu_;
  std::function<void()> on_raise_ ABSL_GUARDED_BY(mu_);
};

// An object that will not bring all its layers.
struct LostObject {
  size_t piece = 0;  // the first of the prompt's that reads it
  absl::Status why;
};

class LayerGate {
 public:
  static constexpr uint32_t kAll = UINT32_MAX;

  // The run reads `object`, of this piece, in layers from `first_layer` on. An object that is whole is not
  // kept. One that is added again counts from the lower of its layers.
  void Add(size_t piece, const std::shared_ptr<const KvObject>& object, uint32_t first_layer);

  // True when nothing will ever be waited for.
  bool empty() const { return awaited_.empty(); }
  // Layers [0, open()) may run. Never goes down; kAll when every object is whole.
  uint32_t open() const;
  // Has `signal` raised once open() has grown, or may never grow again. Returns the object for which that is
  // so.
  std::optional<LostObject> Watch(const std::shared_ptr<LayerSignal>& signal);

 private:
  struct Awaited {
    size_t piece = 0;
    std::shared_ptr<const KvObject> object;
    uint32_t first_layer = 0;
    uint32_t seen = 0;   // limit() when Watch looked
    uint32_t asked = 0;  // one above the highest layer that was asked for
    // One above the highest layer of which it has called; shared with the callbacks.
    std::shared_ptr<std::atomic<uint32_t>> decided = std::make_shared<std::atomic<uint32_t>>(0);

    // The first layer that the run cannot enter for this object.
    uint32_t limit() const;
  };
  static void Ask(Awaited* awaited, uint32_t layer, const std::shared_ptr<LayerSignal>& signal);

  std::vector<Awaited> awaited_;  // objects that were not whole when they were last looked at
};

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_LAYER_GATE_H_
