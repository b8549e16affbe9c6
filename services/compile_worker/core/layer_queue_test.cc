#include "services/compile_worker/core/layer_queue.h"

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"

namespace epic {
namespace {

using ::epic::testing::StatusIs;

class Writer final : public ObjectWriter {
 public:
  absl::Status WriteLayer(uint32_t layer, ByteSpan slab) override {
    if (layer == broken) return absl::DataLossError("broken");
    written += std::to_string(layer) + ":" +
               std::string(reinterpret_cast<const char*>(slab.data()), slab.size()) + " ";
    return absl::OkStatus();
  }
  absl::StatusOr<std::shared_ptr<const KvObject>> Commit() override { return absl::UnimplementedError(""); }

  uint32_t broken = 99;
  std::string written;
};

class LayerQueueTest : public ::testing::Test {
 protected:
  absl::Status Push(uint32_t layer, std::string text) {
    const absl::Status status = queue_->Push(layer, std::as_bytes(std::span(text)));
    text.assign(text.size(), '?');  // the engine's buffer is its own again
    return status;
  }
  void End(bool keep = true) {
    queue_->End(keep, [this](const absl::Status& status) { ended_ = status; });
  }

  Writer writer_;
  testing::ManualExecutor executor_;
  std::shared_ptr<LayerQueue> queue_ = std::make_shared<LayerQueue>(&writer_, &executor_);
  std::optional<absl::Status> ended_;
};

TEST_F(LayerQueueTest, LayersAreWrittenInOrderWhileOthersAreMade) {
  EXPECT_OK(Push(0, "aa"));
  EXPECT_EQ(writer_.written, "") << "not by the thread that pushes";
  executor_.RunAll();
  EXPECT_EQ(writer_.written, "0:aa ");
  EXPECT_OK(Push(1, "bb"));
  EXPECT_OK(Push(2, "cc"));
  End();
  EXPECT_FALSE(ended_.has_value());
  executor_.RunAll();
  EXPECT_EQ(writer_.written, "0:aa 1:bb 2:cc ");
  ASSERT_TRUE(ended_.has_value());
  EXPECT_OK(*ended_);
}

TEST_F(LayerQueueTest, AnErrorEndsThePushesAndIsWhatEndHears) {
  writer_.broken = 1;
  EXPECT_OK(Push(0, "aa"));
  EXPECT_OK(Push(1, "bb"));
  EXPECT_OK(Push(2, "cc"));
  executor_.RunAll();
  EXPECT_EQ(writer_.written, "0:aa ");
  EXPECT_THAT(Push(3, "dd"), StatusIs(absl::StatusCode::kDataLoss));
  End();
  executor_.RunAll();
  ASSERT_TRUE(ended_.has_value());
  EXPECT_THAT(*ended_, StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(LayerQueueTest, WhatWaitsIsDroppedWhenTheCompileFailed) {
  EXPECT_OK(Push(0, "aa"));
  End(/*keep=*/false);
  executor_.RunAll();
  EXPECT_EQ(writer_.written, "");
  ASSERT_TRUE(ended_.has_value());
  EXPECT_OK(*ended_);
}

TEST_F(LayerQueueTest, EndWithoutALayerIsHeard) {
  End();
  executor_.RunAll();
  EXPECT_TRUE(ended_.has_value());
}

}  // namespace
}  // namespace epic
