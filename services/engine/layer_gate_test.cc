#include "services/engine/layer_gate.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/status/error.h"
#include "common/storage/testing/scripted_object.h"
#include "common/testing/status_matchers.h"
#include "services/engine/testing/plain_object.h"

namespace epic {
namespace {

using testing::PlainObject;
using testing::ScriptedObject;

constexpr uint32_t kLayers = 6;

std::shared_ptr<ScriptedObject> OnItsWay(uint32_t ready = 0) {
  const KvLayout layout{.layers = kLayers, .kv_heads = 1, .head_dim = 8, .tokens = 1};
  auto object = std::make_shared<ScriptedObject>(std::make_shared<PlainObject>(layout));
  object->Release(ready);
  return object;
}

class LayerGateTest : public ::testing::Test {
 protected:
  std::atomic<int> raised_{0};
  const std::shared_ptr<LayerSignal> signal_ = std::make_shared<LayerSignal>([this] { ++raised_; });
  LayerGate gate_;
};

TEST_F(LayerGateTest, WithoutObjectsAndWithWholeOnesItIsOpenForGood) {
  EXPECT_TRUE(gate_.empty());
  gate_.Add(0, OnItsWay(kLayers), 0);
  EXPECT_TRUE(gate_.empty());
  EXPECT_EQ(gate_.open(), LayerGate::kAll);
  EXPECT_FALSE(gate_.Watch(signal_).has_value());
}

TEST_F(LayerGateTest, ItIsOpenAsFarAsTheSlowestObjectThatIsReadThere) {
  const auto fast = OnItsWay(4), slow = OnItsWay(1), late = OnItsWay();
  gate_.Add(0, fast, 0);
  EXPECT_EQ(gate_.open(), 4u);
  gate_.Add(1, slow, 0);
  EXPECT_EQ(gate_.open(), 1u);
  gate_.Add(2, late, 3);  // not read in layers 0..2
  EXPECT_EQ(gate_.open(), 1u);
  slow->Release(kLayers);
  EXPECT_EQ(gate_.open(), 3u);
  late->Release(2);
  EXPECT_EQ(gate_.open(), 3u);
  late->Release(5);
  EXPECT_EQ(gate_.open(), 4u);
  gate_.Add(3, late, 0);
  EXPECT_EQ(gate_.open(), 4u);
  late->Release(kLayers);
  fast->Release(kLayers);
  EXPECT_EQ(gate_.open(), LayerGate::kAll);
  EXPECT_FALSE(gate_.Watch(signal_).has_value());
  EXPECT_TRUE(gate_.empty());
}

TEST_F(LayerGateTest, AddedAgainAnObjectCountsFromItsLowerLayer) {
  const auto object = OnItsWay(1);
  gate_.Add(0, object, 4);
  EXPECT_EQ(gate_.open(), 4u);
  gate_.Add(1, object, 2);
  EXPECT_EQ(gate_.open(), 2u);
  gate_.Add(2, object, 5);
  EXPECT_EQ(gate_.open(), 2u);
}

TEST_F(LayerGateTest, TheSignalIsRaisedOnceForEachLayerThatHeldItBack) {
  const auto slow = OnItsWay(1), fast = OnItsWay(2);
  gate_.Add(0, slow, 0);
  gate_.Add(1, fast, 0);
  for (int again = 0; again < 3; ++again) EXPECT_FALSE(gate_.Watch(signal_).has_value());
  EXPECT_EQ(slow->askers(), 1u);
  EXPECT_EQ(fast->askers(), 0u) << "it does not hold the run back";
  slow->Release(2);
  EXPECT_EQ(raised_, 1);
  EXPECT_FALSE(gate_.Watch(signal_).has_value());
  EXPECT_EQ(slow->askers() + fast->askers(), 2u) << "now both do";
  slow->Release(3);
  fast->Release(3);
  EXPECT_EQ(raised_, 3);
}

TEST_F(LayerGateTest, ALostObjectIsToldOnceTheRunComesToIt) {
  const auto good = OnItsWay(1), bad = OnItsWay(2);
  gate_.Add(3, good, 0);
  gate_.Add(5, bad, 0);
  bad->Fail(ErrorCode::kLayerDamaged, "layer 2");
  EXPECT_FALSE(gate_.Watch(signal_).has_value());
  good->Release(kLayers);
  EXPECT_EQ(gate_.open(), 2u);
  const std::optional<LostObject> lost = gate_.Watch(signal_);
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->piece, 5u);
  EXPECT_EQ(CodeOf(lost->why), ErrorCode::kLayerDamaged);
  EXPECT_EQ(gate_.open(), 2u);
}

TEST_F(LayerGateTest, AnObjectThatIsLostWhileItIsWatchedRaisesTheSignal) {
  const auto object = OnItsWay();
  gate_.Add(0, object, 0);
  EXPECT_FALSE(gate_.Watch(signal_).has_value());
  EXPECT_EQ(raised_, 0);
  object->Fail(ErrorCode::kLeaseEnded, "the lease ended");
  EXPECT_EQ(raised_, 1);
  const std::optional<LostObject> lost = gate_.Watch(signal_);
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(CodeOf(lost->why), ErrorCode::kLeaseEnded);
}

TEST_F(LayerGateTest, CallbacksMayComeWhenTheGateIsGoneAndTheSignalClosed) {
  const auto object = OnItsWay();
  {
    LayerGate gate;
    gate.Add(0, object, 0);
    EXPECT_FALSE(gate.Watch(signal_).has_value());
  }
  object->Release(1);
  EXPECT_EQ(raised_, 1);
  gate_.Add(0, object, 0);
  EXPECT_FALSE(gate_.Watch(signal_).has_value());
  signal_->Close();
  object->Release(2);
  EXPECT_EQ(raised_, 1);
}

// Gets its next layer whenever somebody has looked how far it is.
class RestlessObject final : public KvObject {
 public:
  explicit RestlessObject(std::shared_ptr<ScriptedObject> object) : object_(std::move(object)) {}
  const KvLayout& layout() const override { return object_->layout(); }
  const Digest& build() const override { return object_->build(); }
  ByteSpan Layer(uint32_t layer) const override { return object_->Layer(layer); }
  uint32_t ReadyLayers() const override {
    const uint32_t ready = object_->ReadyLayers();
    if (ready < layout().layers) object_->Release(ready + 1);
    return ready;
  }
  absl::Status WaitLayer(uint32_t layer) const override { return object_->WaitLayer(layer); }
  void OnLayer(uint32_t layer, std::function<void()> ready) const override {
    object_->OnLayer(layer, std::move(ready));
  }

 private:
  const std::shared_ptr<ScriptedObject> object_;
};

TEST_F(LayerGateTest, LayersThatComeWhileItIsWatchedRaiseTheSignal) {
  for (uint32_t ready = 0; ready + 1 < kLayers; ++ready) {
    LayerGate gate;
    raised_ = 0;
    gate.Add(0, std::make_shared<RestlessObject>(OnItsWay(ready)), 0);
    EXPECT_FALSE(gate.Watch(signal_).has_value());
    EXPECT_EQ(raised_, 1) << ready;
  }
}

TEST(LayerGateThreadsTest, WhoWatchesUntilItIsOpenSeesEveryLayerWhicheverThreadBringsIt) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (uint64_t round = 0; round < 50; ++round) {
    Mutex mu;
    CondVar changed;
    bool raised = false;
    const auto signal = std::make_shared<LayerSignal>([&] {
      MutexLock lock(&mu);
      raised = true;
      changed.Signal();
    });
    std::vector<std::shared_ptr<ScriptedObject>> objects = {OnItsWay(), OnItsWay(), OnItsWay()};
    LayerGate gate;
    for (size_t i = 0; i < objects.size(); ++i) gate.Add(i, objects[i], 0);
    std::vector<std::thread> bringers;
    for (size_t i = 0; i < objects.size(); ++i) {
      bringers.emplace_back([&, i] {
        Rng rng(seed + round * objects.size() + i);
        for (uint32_t layer = 0; layer < kLayers;) {
          layer = std::min<uint32_t>(kLayers, layer + 1 + static_cast<uint32_t>(rng.Below(2)));
          objects[i]->Release(layer);
        }
      });
    }
    while (gate.open() != LayerGate::kAll) {
      EXPECT_FALSE(gate.Watch(signal).has_value());
      if (gate.open() == LayerGate::kAll) break;
      MutexLock lock(&mu);
      while (!raised) changed.Wait(&mu);
      raised = false;
    }
    for (std::thread& bringer : bringers) bringer.join();
    signal->Close();
  }
}

}  // namespace
}  // namespace epic
