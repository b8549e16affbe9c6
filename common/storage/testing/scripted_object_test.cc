// What kv_object.h says of objects that are on their way, held against the test double and against whole
// objects.
#include "common/storage/testing/scripted_object.h"

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace epic {
namespace {

using testing::ScriptedObject;

constexpr uint32_t kLayers = 4;

class WholeObject final : public KvObject {
 public:
  WholeObject() {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<std::byte>(i);
  }
  const KvLayout& layout() const override { return layout_; }
  const Digest& build() const override { return build_; }
  ByteSpan Layer(uint32_t layer) const override {
    return ByteSpan(bytes_).subspan(layer * layout_.LayerBytes(), layout_.LayerBytes());
  }

 private:
  const KvLayout layout_{.layers = kLayers, .kv_heads = 1, .head_dim = 8, .tokens = 2};
  const Digest build_ = Sha256Of(AsBytes("build"));
  std::vector<std::byte> bytes_ = std::vector<std::byte>(layout_.TotalBytes());
};

class ScriptedObjectTest : public ::testing::Test {
 protected:
  // Counts its calls in `calls`.
  std::function<void()> Counting(int* calls) {
    return [calls] { ++*calls; };
  }
  const std::shared_ptr<const KvObject> whole_ = std::make_shared<WholeObject>();
  ScriptedObject object_{whole_};
};

TEST_F(ScriptedObjectTest, AWholeObjectHasEveryLayerAtOnce) {
  int calls = 0;
  EXPECT_EQ(whole_->ReadyLayers(), kLayers);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_OK(whole_->WaitLayer(layer));
    whole_->OnLayer(layer, Counting(&calls));
  }
  EXPECT_EQ(calls, static_cast<int>(kLayers));
}

TEST_F(ScriptedObjectTest, LayersThatAreThereHaveTheWholeObjectsBytesAndDoNotWait) {
  EXPECT_EQ(object_.ReadyLayers(), 0u);
  EXPECT_EQ(object_.layout(), whole_->layout());
  EXPECT_EQ(object_.build(), whole_->build());
  object_.Release(2);
  EXPECT_EQ(object_.ReadyLayers(), 2u);
  int calls = 0;
  for (uint32_t layer = 0; layer < 2; ++layer) {
    EXPECT_OK(object_.WaitLayer(layer));
    object_.OnLayer(layer, Counting(&calls));
    EXPECT_EQ(object_.Layer(layer).data(), whole_->Layer(layer).data());
    EXPECT_EQ(object_.Layer(layer).size(), whole_->Layer(layer).size());
  }
  EXPECT_EQ(calls, 2);
  object_.Release(1);
  EXPECT_EQ(object_.ReadyLayers(), 2u) << "never goes down";
}

TEST_F(ScriptedObjectTest, WhoAsksForALayerIsCalledOnceWhenItComes) {
  int first = 0, third = 0, last = 0;
  object_.OnLayer(0, Counting(&first));
  object_.OnLayer(2, Counting(&third));
  object_.OnLayer(2, Counting(&third));
  object_.OnLayer(3, Counting(&last));
  EXPECT_EQ(object_.askers(), 4u);
  object_.Release(2);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(third, 0);
  object_.Release(3);
  EXPECT_EQ(third, 2);
  object_.Release(4);
  object_.Release(4);
  EXPECT_EQ(first + third + last, 4);
  EXPECT_EQ(object_.askers(), 0u);
}

TEST_F(ScriptedObjectTest, ACallbackFindsTheLayerAndMayAskForTheNext) {
  std::vector<uint32_t> seen;
  std::function<void()> next = [&] {
    const uint32_t ready = object_.ReadyLayers();
    EXPECT_OK(object_.WaitLayer(ready - 1));
    seen.push_back(ready);
    if (ready < kLayers) object_.OnLayer(ready, next);
  };
  object_.OnLayer(0, next);
  for (const uint32_t layers : {1u, 3u, 4u}) object_.Release(layers);
  EXPECT_EQ(seen, (std::vector<uint32_t>{1, 3, 4}));
}

TEST_F(ScriptedObjectTest, AnErrorEndsWhatIsNotThereAndLeavesWhatIs) {
  int calls = 0;
  object_.OnLayer(3, Counting(&calls));
  object_.Release(2);
  object_.Fail(ErrorCode::kLayerDamaged, "layer 2");
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(object_.ReadyLayers(), 2u);
  EXPECT_OK(object_.WaitLayer(1));
  EXPECT_EQ(object_.Layer(1).data(), whole_->Layer(1).data());
  EXPECT_EQ(CodeOf(object_.WaitLayer(2)), ErrorCode::kLayerDamaged);
  object_.Release(4);
  object_.Fail(ErrorCode::kLeaseEnded, "later");
  EXPECT_EQ(CodeOf(object_.WaitLayer(3)), ErrorCode::kLayerDamaged) << "for good";
  object_.OnLayer(2, Counting(&calls));
  EXPECT_EQ(calls, 2) << "at once";
}

TEST_F(ScriptedObjectTest, AWholeOneCannotFailAnyMore) {
  object_.Release(kLayers);
  object_.Fail(ErrorCode::kLayerDamaged, "too late");
  EXPECT_OK(object_.WaitLayer(kLayers - 1));
}

TEST_F(ScriptedObjectTest, WhoWaitsForALayerIsWokenByItOrByTheEnd) {
  std::thread reader([&] {
    EXPECT_OK(object_.WaitLayer(0));
    EXPECT_OK(object_.WaitLayer(1));
    int calls = 0;
    object_.OnLayer(3, Counting(&calls));
    EXPECT_EQ(CodeOf(object_.WaitLayer(3)), ErrorCode::kLeaseEnded);
  });
  object_.Release(1);
  object_.Release(2);
  object_.AwaitAsker(3);
  object_.Fail(ErrorCode::kLeaseEnded, "the lease ended");
  reader.join();
}

TEST(ScriptedObjectDeathTest, ReadingALayerThatIsNotThereAborts) {
  const ScriptedObject object(std::make_shared<WholeObject>());
  EXPECT_DEATH(static_cast<void>(object.Layer(0)), "");
}

}  // namespace
}  // namespace epic
