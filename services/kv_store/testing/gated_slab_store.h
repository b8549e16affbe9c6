// A SlabStore whose reads stop where a test wants them to, and fail there: wraps another and reads layer by
// layer, each when the gate lets it through. Thread-safe. Tests only.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_GATED_SLAB_STORE_H_
#define EPIC_SERVICES_KV_STORE_TESTING_GATED_SLAB_STORE_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "services/kv_store/core/slab_store.h"

namespace epic::kv_store {

// Shared by the test and the store under test.
class SlabGate {
 public:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  enum class Fault { kNone, kError, kDamage };

  // Reads stop before this layer; kNone: they run.
  void CloseAt(uint32_t layer) {
    MutexLock lock(&mu_);
    closed_at_ = layer;
    changed_.SignalAll();
  }
  void Open() { CloseAt(kNone); }
  // What becomes of this layer of every read.
  void Break(uint32_t layer, Fault fault) {
    MutexLock lock(&mu_);
    broken_ = layer;
    fault_ = fault;
  }
  // Returns when a read stands before the gate.
  void WaitForAReader() {
    MutexLock lock(&mu_);
    while (waiting_ == 0) changed_.Wait(&mu_);
  }
  // How many layers were read.
  uint64_t reads() const {
    MutexLock lock(&mu_);
    return reads_;
  }

  // By reads.
  Fault Pass(uint32_t layer) {
    MutexLock lock(&mu_);
    ++waiting_;
    changed_.SignalAll();
    while (layer >= closed_at_) changed_.Wait(&mu_);
    --waiting_;
    ++reads_;
    return layer == broken_ ? fault_ : Fault::kNone;
  }

 private:
  mutable Mutex mu_;
  CondVar changed_;
  uint32_t closed_at_ ABSL_GUARDED_BY(mu_) = kNone;
  uint32_t broken_ ABSL_GUARDED_BY(mu_) = kNone;
  Fault fault_ ABSL_GUARDED_BY(mu_) = Fault::kNone;
  uint32_t waiting_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t reads_ ABSL_GUARDED_BY(mu_) = 0;
};

class GatedSlabStore final : public SlabStore {
 public:
  GatedSlabStore(std::unique_ptr<SlabStore> inner, std::shared_ptr<SlabGate> gate)
      : inner_(std::move(inner)), gate_(std::move(gate)) {}

  absl::StatusOr<std::vector<uint64_t>> Load(const std::vector<LiveSlabs>& live, bool entries_lost) override {
    return inner_->Load(live, entries_lost);
  }
  absl::StatusOr<SlabExtents> Write(uint64_t number, const SlabShape& shape,
                                    std::span<const ByteSpan> slabs) override {
    return inner_->Write(number, shape, slabs);
  }
  bool Holds(uint64_t number) override { return inner_->Holds(number); }
  // REQUIRES: layers fill whole pages.
  absl::Status Read(uint64_t number, const SlabShape& shape, LayerRange layers, MutableByteSpan out,
                    const LayerReady& ready) override {
    EPIC_CHECK(shape.stride % kSlabPageBytes == 0);
    absl::Status status;
    for (uint32_t layer = layers.begin; layer < layers.end && status.ok(); ++layer) {
      const SlabGate::Fault fault = gate_->Pass(layer);
      if (fault == SlabGate::Fault::kError) return absl::UnavailableError("injected EIO");
      const auto told = [&](uint32_t which, ByteSpan slab) {
        if (fault == SlabGate::Fault::kDamage) const_cast<std::byte&>(slab.back()) ^= std::byte{1};
        return ready(which, slab);
      };
      status = inner_->Read(number, shape, {layer, layer + 1},
                            out.subspan(shape.PageBegin(layer) - shape.PageBegin(layers.begin)), told);
    }
    return status;
  }
  void AddRemoval(uint64_t number, WriteBatch* batch) override { inner_->AddRemoval(number, batch); }
  void Free(uint64_t number) override { inner_->Free(number); }
  absl::Status Reclaim() override { return inner_->Reclaim(); }
  void AwaitUses() override { inner_->AwaitUses(); }
  uint64_t PhysicalBytes() override { return inner_->PhysicalBytes(); }
  uint64_t ReusableBytes() override { return inner_->ReusableBytes(); }

 private:
  const std::unique_ptr<SlabStore> inner_;
  const std::shared_ptr<SlabGate> gate_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TESTING_GATED_SLAB_STORE_H_
