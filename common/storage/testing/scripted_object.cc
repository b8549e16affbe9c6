#include "common/storage/testing/scripted_object.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace epic::testing {

void ScriptedObject::Release(uint32_t layers) {
  EPIC_CHECK(layers <= layout().layers);
  Callbacks decided;
  {
    MutexLock lock(&mu_);
    if (error_.has_value() || layers <= ready_) return;
    ready_ = layers;
    decided = TakeDecided();
  }
  changed_.SignalAll();
  for (const std::function<void()>& ready : decided) ready();
}

void ScriptedObject::Fail(ErrorCode code, const std::string& message) {
  Callbacks decided;
  {
    MutexLock lock(&mu_);
    if (error_.has_value() || ready_ == layout().layers) return;
    error_ = code;
    message_ = message;
    decided = TakeDecided();
  }
  changed_.SignalAll();
  for (const std::function<void()>& ready : decided) ready();
}

void ScriptedObject::AwaitAsker(uint32_t layer) {
  MutexLock lock(&mu_);
  while (asked_ <= layer) changed_.Wait(&mu_);
}

size_t ScriptedObject::askers() const {
  MutexLock lock(&mu_);
  return askers_.size();
}

ByteSpan ScriptedObject::Layer(uint32_t layer) const {
  EPIC_CHECK(layer < ReadyLayers());
  return whole_->Layer(layer);
}

uint32_t ScriptedObject::ReadyLayers() const {
  MutexLock lock(&mu_);
  return ready_;
}

absl::Status ScriptedObject::WaitLayer(uint32_t layer) const {
  EPIC_CHECK(layer < layout().layers);
  MutexLock lock(&mu_);
  while (!IsDecided(layer)) changed_.Wait(&mu_);
  return layer < ready_ ? absl::OkStatus() : Error(*error_, message_);
}

void ScriptedObject::OnLayer(uint32_t layer, std::function<void()> ready) const {
  EPIC_CHECK(layer < layout().layers);
  {
    MutexLock lock(&mu_);
    asked_ = std::max(asked_, layer + 1);
    if (!IsDecided(layer)) {
      askers_.emplace(layer, std::move(ready));
      ready = nullptr;
    }
  }
  changed_.SignalAll();
  if (ready) ready();
}

ScriptedObject::Callbacks ScriptedObject::TakeDecided() {
  const auto end = error_.has_value() ? askers_.end() : askers_.lower_bound(ready_);
  Callbacks decided;
  for (auto asker = askers_.begin(); asker != end; ++asker) decided.push_back(std::move(asker->second));
  askers_.erase(askers_.begin(), end);
  return decided;
}

}  // namespace epic::testing
