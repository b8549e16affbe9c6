// A peer's objects under the control of a test: layers that come when the test says so, fail, are damaged or
// cut short, leases that end, and a count of what is open. Thread-safe. Tests only.
#ifndef EPIC_COMMON_TRANSPORT_TESTING_TEST_SOURCE_H_
#define EPIC_COMMON_TRANSPORT_TESTING_TEST_SOURCE_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/storage/object_codec.h"
#include "common/transport/kv_source.h"
#include "common/transport/testing/patience.h"

namespace epic::transport {

inline KvLayout SmallLayout(uint32_t layers = 4, uint32_t tokens = 64) {
  return {.layers = layers,
          .kv_heads = 2,
          .head_dim = 16,
          .tokens = tokens,
          .dtype = KvDtype::kBf16,
          .first_position = 0};
}

class TestSource final : public KvSource {
 public:
  static constexpr uint64_t kHolder = 77;
  static constexpr const char* kTenant = "t";

  explicit TestSource(uint64_t incarnation)
      : incarnation_(incarnation), shared_(std::make_shared<Shared>()) {}

  uint64_t incarnation() const override { return incarnation_; }

  // A new object, leased. `ready`: whether its layers are there. `told`: whether the region has the build and
  // the checksums.
  std::shared_ptr<const Region> Put(uint64_t seed, const KvLayout& layout, bool ready = true,
                                    bool told = true) {
    std::vector<std::vector<std::byte>> layers(layout.layers);
    Rng rng(seed);
    for (auto& bytes : layers) {
      bytes.resize(layout.LayerBytes());
      for (uint64_t at = 0; at + 8 <= bytes.size(); at += 8) {
        const uint64_t word = rng.Next();
        std::memcpy(bytes.data() + at, &word, sizeof(word));
      }
    }
    return PutLayers(seed, layout, std::move(layers), ready, told);
  }
  // The same with given bytes, and a key that belongs to `number`. Shape: layout.layers slabs.
  std::shared_ptr<const Region> PutLayers(uint64_t number, const KvLayout& layout,
                                          std::vector<std::vector<std::byte>> layers, bool ready = true,
                                          bool told = true) {
    auto object = std::make_shared<Object>();
    object->layout = layout;
    object->layers.resize(layout.layers);
    auto region = std::make_shared<Region>();
    for (uint32_t l = 0; l < layout.layers; ++l) {
      Layer& layer = object->layers[l];
      layer.bytes = std::move(layers.at(l));
      layer.crcs.resize(BlocksPerLayer(layout));
      ComputeBlockCrcs(layout, layer.bytes, layer.crcs);
      layer.told_bytes = layer.bytes.size();
      if (ready) layer.state = absl::OkStatus();
      region->block_crcs.insert(region->block_crcs.end(), layer.crcs.begin(), layer.crcs.end());
    }
    region->tenant = kTenant;
    region->key = {.id = CacheId::Of(kTenant, {}, std::vector<TokenId>{static_cast<TokenId>(number)}),
                   .variant = {}};
    region->layout = layout;
    region->build = BuildDigest(region->block_crcs);
    if (!told) {
      region->build.reset();
      region->block_crcs.clear();
    }
    MutexLock lock(&shared_->mu);
    region->lease = {.incarnation = incarnation_, .holder = kHolder, .number = ++shared_->leases};
    region->generation = shared_->leases;
    object->key = region->key;
    shared_->objects[region->lease.number] = object;
    return region;
  }

  // --- what happens to an object's layers

  void MakeReady(const Region& region, uint32_t layer) { SetState(region, layer, absl::OkStatus()); }
  void MakeAllReady(const Region& region) {
    for (uint32_t layer = 0; layer < region.layout.layers; ++layer) MakeReady(region, layer);
  }
  void Fail(const Region& region, uint32_t layer, const absl::Status& status) {
    SetState(region, layer, status);
  }
  void Damage(const Region& region, uint32_t layer, uint64_t at) {
    MutexLock lock(&shared_->mu);
    Find(region)->layers[layer].bytes[at] ^= std::byte{0x10};
  }
  void Truncate(const Region& region, uint32_t layer, uint64_t bytes) {
    MutexLock lock(&shared_->mu);
    Find(region)->layers[layer].told_bytes = bytes;
  }
  void EndLease(const Region& region) {
    MutexLock lock(&shared_->mu);
    Find(region)->leased = false;
  }

  // What was put there, whatever became of it.
  ByteSpan Bytes(const Region& region, uint32_t layer) const {
    MutexLock lock(&shared_->mu);
    return Find(region)->layers[layer].bytes;
  }

  // --- what is open

  int open() const {
    MutexLock lock(&shared_->mu);
    return shared_->open;
  }
  // False when it is not so within 20 s.
  bool WaitForOpen(int count) const {
    MutexLock lock(&shared_->mu);
    Patience patience;
    while (shared_->open != count && patience.Wait(&shared_->mu, &shared_->changed)) {
    }
    return shared_->open == count;
  }
  // Until so many waits for layers were asked for in all; false when it is not so within 20 s.
  bool WaitForWaits(int count) const {
    MutexLock lock(&shared_->mu);
    Patience patience;
    while (shared_->waits < count && patience.Wait(&shared_->mu, &shared_->changed)) {
    }
    return shared_->waits >= count;
  }

  absl::StatusOr<std::shared_ptr<SourceObject>> Open(const LeaseName& lease) override {
    MutexLock lock(&shared_->mu);
    const auto found = shared_->objects.find(lease.number);
    if (lease.incarnation != incarnation_ || lease.holder != kHolder || found == shared_->objects.end() ||
        !found->second->leased) {
      return LeaseEndedStatus();
    }
    auto opened = std::make_shared<Opened>(shared_, found->second);
    found->second->readers.push_back(opened);
    ++shared_->open;
    shared_->changed.SignalAll();
    return std::shared_ptr<SourceObject>(std::move(opened));
  }

  // For hand-overs by key (shm): a lease of the object that has it; nullopt: none, or its lease is over.
  std::optional<LeaseName> LeaseOf(const ObjectKey& key) const {
    MutexLock lock(&shared_->mu);
    for (const auto& [number, object] : shared_->objects) {
      if (object->key == key && object->leased) return LeaseName{incarnation_, kHolder, number};
    }
    return std::nullopt;
  }

 private:
  using Ready = std::function<void(const absl::Status&)>;
  class Opened;
  struct Layer {
    std::vector<std::byte> bytes;
    std::vector<uint32_t> crcs;
    uint64_t told_bytes = 0;
    std::optional<absl::Status> state;  // nullopt: not there yet
  };
  struct Object {
    ObjectKey key;
    KvLayout layout;
    std::vector<Layer> layers;
    bool leased = true;
    std::vector<std::weak_ptr<Opened>> readers;
  };
  struct Shared {
    mutable Mutex mu;
    mutable CondVar changed;
    std::map<uint64_t, std::shared_ptr<Object>> objects ABSL_GUARDED_BY(mu);
    uint64_t leases ABSL_GUARDED_BY(mu) = 0;
    int open ABSL_GUARDED_BY(mu) = 0;
    int waits ABSL_GUARDED_BY(mu) = 0;
  };

  class Opened final : public SourceObject {
   public:
    Opened(std::shared_ptr<Shared> shared, std::shared_ptr<Object> object)
        : shared_(std::move(shared)), object_(std::move(object)) {}
    ~Opened() override {
      MutexLock lock(&shared_->mu);
      --shared_->open;
      shared_->changed.SignalAll();
    }
    const KvLayout& layout() const override { return object_->layout; }
    void WhenLayer(uint32_t layer, Ready ready) override {
      absl::Status state;
      {
        MutexLock lock(&shared_->mu);
        ++shared_->waits;
        shared_->changed.SignalAll();
        if (!object_->layers.at(layer).state.has_value()) {
          waiting_.emplace_back(layer, std::move(ready));
          return;
        }
        state = *object_->layers[layer].state;
      }
      ready(state);
    }
    ByteSpan Layer(uint32_t layer) const override {
      MutexLock lock(&shared_->mu);
      return ByteSpan(object_->layers.at(layer).bytes).first(object_->layers[layer].told_bytes);
    }
    std::span<const uint32_t> LayerCrcs(uint32_t layer) const override { return object_->layers[layer].crcs; }
    bool StillLeased() const override {
      MutexLock lock(&shared_->mu);
      return object_->leased;
    }
    // Under the mutex of the source.
    std::vector<Ready> TakeWaiting(uint32_t layer) {
      std::vector<Ready> taken;
      std::vector<std::pair<uint32_t, Ready>> left;
      for (auto& [wanted, ready] : waiting_) {
        if (wanted == layer) {
          taken.push_back(std::move(ready));
        } else {
          left.emplace_back(wanted, std::move(ready));
        }
      }
      waiting_ = std::move(left);
      return taken;
    }

   private:
    const std::shared_ptr<Shared> shared_;
    const std::shared_ptr<Object> object_;
    std::vector<std::pair<uint32_t, Ready>> waiting_;  // under the mutex of the source
  };

  std::shared_ptr<Object> Find(const Region& region) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared_->mu) {
    const auto found = shared_->objects.find(region.lease.number);
    EPIC_CHECK(found != shared_->objects.end());
    return found->second;
  }

  void SetState(const Region& region, uint32_t layer, const absl::Status& state) {
    std::vector<Ready> ready;
    std::vector<std::shared_ptr<Opened>> held;  // let go after the lock
    {
      MutexLock lock(&shared_->mu);
      const std::shared_ptr<Object> object = Find(region);
      object->layers.at(layer).state = state;
      for (const auto& weak : object->readers) {
        std::shared_ptr<Opened> reader = weak.lock();
        if (reader == nullptr) continue;
        for (Ready& callback : reader->TakeWaiting(layer)) ready.push_back(std::move(callback));
        held.push_back(std::move(reader));
      }
    }
    for (const Ready& callback : ready) callback(state);
  }

  const uint64_t incarnation_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_TESTING_TEST_SOURCE_H_
