#include "services/engine/layer_gate.h"

#include <algorithm>
#include <utility>

namespace epic {

void LayerSignal::Raise() {
  MutexLock lock(&mu_);
  if (on_raise_) on_raise_();
}

void LayerSignal::Close() {
  MutexLock lock(&mu_);
  on_raise_ = nullptr;
}

uint32_t LayerGate::Awaited::limit() const {
  const uint32_t ready = object->ReadyLayers();
  return ready == object->layout().layers ? kAll : std::max(ready, first_layer);
}

void LayerGate::Add(size_t piece, const std::shared_ptr<const KvObject>& object, uint32_t first_layer) {
  if (object->ReadyLayers() == object->layout().layers) return;
  for (Awaited& awaited : awaited_) {
    if (awaited.object != object) continue;
    awaited.first_layer = std::min(awaited.first_layer, first_layer);
    return;
  }
  awaited_.push_back({.piece = piece, .object = object, .first_layer = first_layer});
}

uint32_t LayerGate::open() const {
  uint32_t open = kAll;
  for (const Awaited& awaited : awaited_) open = std::min(open, awaited.limit());
  return open;
}

std::optional<LostObject> LayerGate::Watch(const std::shared_ptr<LayerSignal>& signal) {
  // One look at each: layers come meanwhile, and whoever held the run back then has the signal raised.
  for (Awaited& awaited : awaited_) awaited.seen = awaited.limit();
  std::erase_if(awaited_, [](const Awaited& awaited) { return awaited.seen == kAll; });
  uint32_t layer = kAll;
  for (const Awaited& awaited : awaited_) layer = std::min(layer, awaited.seen);
  for (Awaited& awaited : awaited_) {
    if (awaited.seen > layer) continue;
    if (awaited.asked <= layer) Ask(&awaited, layer, signal);
    if (awaited.decided->load(std::memory_order_acquire) <= layer) continue;
    // It has called: this does not block.
    if (absl::Status why = awaited.object->WaitLayer(layer); !why.ok()) {
      return LostObject{.piece = awaited.piece, .why = std::move(why)};
    }
  }
  return std::nullopt;
}

void LayerGate::Ask(Awaited* awaited, uint32_t layer, const std::shared_ptr<LayerSignal>& signal) {
  awaited->asked = layer + 1;
  awaited->object->OnLayer(layer, [signal, decided = awaited->decided, layer] {
    // Callbacks of several layers may overtake each other.
    uint32_t before = decided->load(std::memory_order_relaxed);
    while (before <= layer && !decided->compare_exchange_weak(before, layer + 1, std::memory_order_acq_rel)) {
    }
    signal->Raise();
  });
}

}  // namespace epic
