// Layers that are filled in place: accepted only with the sender's checksums.
#include "services/kv_store/core/arena_writer.h"

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/storage/object_codec.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

using ::epic::testing::StatusIs;

std::vector<uint32_t> CrcsOf(const KvLayout& layout, std::string_view slab) {
  std::vector<uint32_t> crcs(BlocksPerLayer(layout));
  ComputeBlockCrcs(layout, AsBytes(slab), crcs);
  return crcs;
}

class ArenaWriterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = StoreCore::Open(std::make_unique<MemoryTableStore>(std::make_shared<MemoryDisk>()),
                                 {.memory_bytes = 1 << 20, .clock = &clock_, .writer = {}});
    ASSERT_OK(store);
    store_ = *std::move(store);
    const auto created = store_->CreateContext(ContextOf(1));
    ASSERT_OK(created);
    key_ = {created->record.id, {}};
    auto writer = store_->ReserveInArena("default", key_, layout_);
    ASSERT_OK(writer);
    writer_ = *std::move(writer);
  }
  void Fill(uint32_t layer, std::string_view slab) {
    const MutableByteSpan to = writer_->Buffer(layer);
    ASSERT_EQ(to.size(), slab.size());
    std::memcpy(to.data(), slab.data(), slab.size());
  }

  ManualClock clock_;
  const KvLayout layout_ = LayoutOf(8);
  ObjectKey key_;
  std::unique_ptr<StoreCore> store_;
  std::unique_ptr<ArenaWriter> writer_;
};

TEST_F(ArenaWriterTest, WhatWasFilledInPlaceIsReadAndHasTheBuildOfItsBytes) {
  std::vector<uint32_t> all;
  for (const uint32_t layer : {1, 0}) {
    const std::string slab = SlabOf(layout_, layer, 7);
    Fill(layer, slab);
    const std::vector<uint32_t> crcs = CrcsOf(layout_, slab);
    EXPECT_OK(writer_->FinishLayer(layer, crcs));
    all.insert(all.begin(), crcs.begin(), crcs.end());
  }
  EXPECT_EQ(writer_->Build(), BuildDigest(all));
  ASSERT_OK_AND_ASSIGN(const auto object, writer_->Commit());
  EXPECT_TRUE(Holds(*object, 7));
  EXPECT_EQ(object->build(), BuildDigest(all));
}

TEST_F(ArenaWriterTest, ALayerWithOtherChecksumsIsRefusedAndMayBeSentAgain) {
  const std::string slab = SlabOf(layout_, 0, 7);
  std::string damaged = slab;
  damaged[damaged.size() - 1] = static_cast<char>(damaged.back() ^ 1);
  Fill(0, damaged);
  const absl::Status refused = writer_->FinishLayer(0, CrcsOf(layout_, slab));
  EXPECT_EQ(CodeOf(refused), ErrorCode::kLayerDamaged);
  EXPECT_THAT(writer_->Commit(), StatusIs(absl::StatusCode::kFailedPrecondition));
  Fill(0, slab);
  EXPECT_OK(writer_->FinishLayer(0, CrcsOf(layout_, slab)));
  EXPECT_OK(writer_->WriteLayer(1, AsBytes(SlabOf(layout_, 1, 7))));
  ASSERT_OK_AND_ASSIGN(const auto object, writer_->Commit());
  EXPECT_TRUE(Holds(*object, 7));
}

TEST_F(ArenaWriterTest, ALayerIsFinishedOnceAndWithAllOfItsChecksums) {
  const std::string slab = SlabOf(layout_, 0, 7);
  std::vector<uint32_t> crcs = CrcsOf(layout_, slab);
  Fill(0, slab);
  EXPECT_THAT(writer_->FinishLayer(0, std::span(crcs).first(crcs.size() - 1)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(writer_->FinishLayer(2, crcs), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(writer_->FinishLayer(0, crcs));
  EXPECT_THAT(writer_->FinishLayer(0, crcs), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(writer_->WriteLayer(0, AsBytes(slab)), StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace epic::kv_store
