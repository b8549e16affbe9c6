#include "common/transport/ucx/piece_plan.h"

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/transport/range_check.h"
#include "common/transport/ucx/wire.h"

namespace epic::transport {
namespace {

TEST(PiecePlanTest, PiecesAreWholeBlocksWithinTheLimitsAndLeaveNothingOut) {
  const uint64_t seed = 5;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  for (int round = 0; round < 300; ++round) {
    const KvLayout layout{.layers = 1,
                          .kv_heads = 1 + static_cast<uint32_t>(rng.Below(16)),
                          .head_dim = 64,
                          .tokens = 1 + static_cast<uint32_t>(rng.Below(round % 2 == 0 ? 30 : 20'000))};
    uint64_t at = 0;
    while (at < layout.LayerBytes()) {
      const uint64_t end = PieceEnd(layout, at, layout.LayerBytes());
      ASSERT_GT(end, at);
      ASSERT_LE(end - at, wire::kMaxPieceBytes);
      const auto blocks = BlocksOf(layout, at, end - at);
      ASSERT_TRUE(blocks.has_value());
      ASSERT_EQ(BlockOffset(layout, blocks->first), at);
      ASSERT_EQ(BlockOffset(layout, blocks->first + blocks->count), end);
      ASSERT_LE(blocks->count, wire::kMaxPieceBlocks);
      // One block more would have been too much, or there is none.
      if (end < layout.LayerBytes() && blocks->count < wire::kMaxPieceBlocks) {
        ASSERT_GT(BlockOffset(layout, blocks->first + blocks->count + 1) - at, wire::kMaxPieceBytes);
      }
      at = end;
    }
    ASSERT_EQ(at, layout.LayerBytes());
  }
}

TEST(PiecePlanTest, WhatIsNotWholeBlocksOfTheLayerIsRefused) {
  const KvLayout layout{.layers = 1, .kv_heads = 2, .head_dim = 16, .tokens = 10'000};  // 312.5 KiB a head
  const uint64_t block = uint64_t{256} << 10;
  EXPECT_TRUE(BlocksOf(layout, 0, block).has_value());
  EXPECT_TRUE(BlocksOf(layout, 0, layout.HeadBytes()).has_value());
  EXPECT_FALSE(BlocksOf(layout, 0, 0).has_value());
  EXPECT_FALSE(BlocksOf(layout, 1, block).has_value());
  EXPECT_FALSE(BlocksOf(layout, 0, block + 1).has_value());
  EXPECT_FALSE(BlocksOf(layout, 0, layout.LayerBytes() + 1).has_value());
  EXPECT_FALSE(BlocksOf(layout, ~uint64_t{0}, 2).has_value());
  EXPECT_FALSE(BlocksOf(layout, layout.LayerBytes(), 1).has_value());
  const KvLayout tiny{.layers = 1, .kv_heads = 1000, .head_dim = 16, .tokens = 1};
  EXPECT_FALSE(BlocksOf(tiny, 0, tiny.LayerBytes()).has_value()) << "2000 blocks";
}

}  // namespace
}  // namespace epic::transport
