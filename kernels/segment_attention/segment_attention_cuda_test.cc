// The GPU attention kernels under the emulator: kernels/simt.
#include "kernels/segment_attention/segment_attention_cuda.h"

#include <gtest/gtest.h>

#include "kernels/segment_attention/segment_attention_cuda_sweep.h"
#include "kernels/simt/sweep_test_util.h"

namespace epic {
namespace {

class SegmentAttentionCudaTest : public simt::SweepTest {};

TEST_P(SegmentAttentionCudaTest, LinkRowsEqualTheReferenceAndKeepTheirBytes) { Run(SweepLinkAttention); }

TEST_P(SegmentAttentionCudaTest, DecodeRowsEqualTheReferenceAndKeepTheirBytes) { Run(SweepDecodeAttention); }

INSTANTIATE_TEST_SUITE_P(Orders, SegmentAttentionCudaTest, ::testing::Values(1, 2, 3));

TEST(DecodeAttentionPlanTest, ReadersOfTheSameSplitShareAGroupOfAtMostATile) {
  const float memory[2] = {};
  std::vector<KvSegment> segments(5);
  for (KvSegment& segment : segments) {
    segment.k = segment.v = memory;
    segment.rows = 700;
  }
  segments[4].k = memory + 1;
  segments[4].rows = 10;
  std::vector<std::vector<uint32_t>> reads = {{0, 4}, {1}, {2}, {3}, {}};
  const DecodeAttentionPlan plan = PlanDecodeAttention(segments, reads, 32);
  EXPECT_EQ(plan.row_slots, (std::vector<uint32_t>{0, 3, 5, 7, 9, 9}));
  // Two readers fit a tile: four readers of two splits, and the small object alone.
  ASSERT_EQ(plan.groups.size(), 5u);
  ASSERT_EQ(plan.readers.size(), 9u);
  std::vector<bool> used(9, false);
  for (const AttentionGroup& group : plan.groups) {
    EXPECT_LE(group.reader_count, 2u);
    for (uint32_t i = 0; i < group.reader_count; ++i) {
      const AttentionReader& reader = plan.readers[group.first_reader + i];
      EXPECT_FALSE(used[reader.slot]);
      used[reader.slot] = true;
      EXPECT_EQ(group.first_row, reader.slot == 2 || reader.slot == plan.row_slots[reader.row] ? 0u : 512u);
    }
  }
}

TEST(LinkAttentionPlanTest, SplitsLieAtFixedRowsOfEachSegment) {
  std::vector<KvSegment> segments(3);
  segments[0].rows = 513;
  segments[2].rows = 512;
  const std::vector<AttentionSplit> splits = PlanLinkAttention(segments);
  ASSERT_EQ(splits.size(), 3u);
  EXPECT_EQ(splits[1].first_row, 512u);
  EXPECT_EQ(splits[2].segment, 2u);
  EXPECT_EQ(splits[2].first_row, 0u);
}

}  // namespace
}  // namespace epic
