// A KV object whose layers are there when a test says so: the bytes of a whole object, released one layer
// after another, or ended with an error.
//
// Thread-safe. Reading a layer that is not there aborts the test. Callbacks run on the thread that releases,
// with no lock held. Tests and benches only.
#ifndef EPIC_COMMON_STORAGE_TESTING_SCRIPTED_OBJECT_H_
#define EPIC_COMMON_STORAGE_TESTING_SCRIPTED_OBJECT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/status/error.h"
#include "common/storage/kv_object.h"

namespace epic::testing {

class ScriptedObject final : public KvObject {
 public:
  // None of its layers is there. REQUIRES: `whole` has all of them.
  explicit ScriptedObject(std::shared_ptr<const KvObject> whole) : whole_(std::move(whole)) {}

  // --- what the test says
  // Layers [0, layers) are there. Fewer than there are, or after Fail: nothing. REQUIRES: layers <= L.
  void Release(uint32_t layers);
  // No more layers come.
  void Fail(ErrorCode code, const std::string& message);

  // --- what the test asks
  // Blocks until somebody has asked to be called for this layer, or a later one.
  void AwaitAsker(uint32_t layer);
  // Callbacks that were given and not called.
  size_t askers() const;

  // --- KvObject
  const KvLayout& layout() const override { return whole_->layout(); }
  const Digest& build() const override { return whole_->build(); }
  ByteSpan Layer(uint32_t layer) const override;
  uint32_t ReadyLayers() const override;
  absl::Status WaitLayer(uint32_t layer) const override;
  void OnLayer(uint32_t layer, std::function<void()> ready) const override;

 private:
  using Callbacks = std::vector<std::function<void()>>;
  bool IsDecided(uint32_t layer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return layer < ready_ || error_.has_value();
  }
  // Takes those out that are to be called.
  Callbacks TakeDecided() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<const KvObject> whole_;

  mutable Mutex mu_;
  mutable CondVar changed_;
  uint32_t ready_ ABSL_GUARDED_BY(mu_) = 0;
  // Not a status: its shared count lives in the system's Abseil, into which ThreadSanitizer cannot see.
  std::optional<ErrorCode> error_ ABSL_GUARDED_BY(mu_);
  std::string message_ ABSL_GUARDED_BY(mu_);
  mutable std::multimap<uint32_t, std::function<void()>> askers_ ABSL_GUARDED_BY(mu_);
  mutable uint32_t asked_ ABSL_GUARDED_BY(mu_) = 0;  // one above the highest layer that was ever asked for
};

}  // namespace epic::testing

#endif  // EPIC_COMMON_STORAGE_TESTING_SCRIPTED_OBJECT_H_
