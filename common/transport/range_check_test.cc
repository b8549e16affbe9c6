#include "common/transport/range_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/base/random.h"
#include "common/status/error.h"
#include "common/storage/object_codec.h"
#include "common/testing/status_matchers.h"
#include "common/transport/testing/test_source.h"

namespace epic::transport {
namespace {

struct Sample {
  explicit Sample(uint32_t tokens) : region(source.Put(7, SmallLayout(2, tokens))) {
    const KvLayout& layout = region->layout;
    const ByteSpan slab = source.Bytes(*region, 1);
    bytes.assign(slab.begin(), slab.end());
    crcs.resize(BlocksPerLayer(layout));
    ComputeBlockCrcs(layout, bytes, crcs);
    to.resize(bytes.size());
  }
  FetchRange Range(uint64_t first, uint64_t last) {
    const uint64_t at = BlockOffset(region->layout, first);
    const uint64_t size = BlockOffset(region->layout, last) - at;
    return {.layer = 1, .offset = at, .to = MutableByteSpan(to).subspan(at, size)};
  }
  TestSource source{1};
  std::shared_ptr<const Region> region;
  std::vector<std::byte> bytes;
  std::vector<std::byte> to;
  std::vector<uint32_t> crcs;
};

TEST(RangeCheckTest, BlocksBeginAtEachHeadAndEvery256KiBOfIt) {
  const KvLayout layout = SmallLayout(1, 20'000);  // heads of 640,000 bytes: 2.44 blocks
  EXPECT_EQ(BlocksPerHead(layout), 3u);
  EXPECT_EQ(BlockAt(layout, 0), 0u);
  EXPECT_EQ(BlockAt(layout, 262'144), 1u);
  EXPECT_EQ(BlockAt(layout, 640'000), 3u);
  EXPECT_EQ(BlockAt(layout, 640'000 + 2 * 262'144), 5u);
  EXPECT_EQ(BlockAt(layout, layout.LayerBytes()), 12u);
  EXPECT_EQ(BlockAt(layout, 786'432), std::nullopt);
  EXPECT_EQ(BlockAt(layout, 1), std::nullopt);
  EXPECT_EQ(BlockAt(layout, layout.LayerBytes() + 1), std::nullopt);
  for (uint64_t block = 0; block <= 12; ++block)
    EXPECT_EQ(BlockAt(layout, BlockOffset(layout, block)), block);
}

TEST(RangeCheckTest, PiecesOfAnySizeAreCheckedAndCopied) {
  const uint64_t seed = 5;
  Rng rng(seed);
  for (const uint32_t tokens : {1u, 64u, 8192u, 20'000u}) {
    Sample sample(tokens);
    const uint64_t blocks = BlocksPerLayer(sample.region->layout);
    for (int round = 0; round < 20; ++round) {
      const uint64_t first = rng.Below(blocks);
      const uint64_t last = first + 1 + rng.Below(blocks - first);
      const FetchRange range = sample.Range(first, last);
      std::fill(sample.to.begin(), sample.to.end(), std::byte{0});
      RangeCheck check(*sample.region, range, sample.crcs);
      for (uint64_t at = 0; at < range.to.size();) {
        const uint64_t size = std::min<uint64_t>(1 + rng.Below(300'000), range.to.size() - at);
        EXPECT_FALSE(check.Finish().ok());
        ASSERT_OK(check.Copy(ByteSpan(sample.bytes).subspan(range.offset + at, size)));
        at += size;
      }
      EXPECT_OK(check.Finish());
      EXPECT_TRUE(std::equal(range.to.begin(), range.to.end(),
                             sample.bytes.begin() + static_cast<ptrdiff_t>(range.offset)));
      EXPECT_EQ(check.block_crcs().size(), last - first);
      EXPECT_OK(CheckRange(*sample.region, range, std::span(sample.crcs).subspan(first, last - first)));
    }
  }
}

TEST(RangeCheckTest, AnyWrongByteIsFound) {
  Sample sample(20'000);
  Rng rng(9);
  const FetchRange range = sample.Range(1, 9);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::byte> wrong = sample.bytes;
    const uint64_t at = rng.Below(range.to.size());
    wrong[range.offset + at] ^= std::byte{1};
    RangeCheck check(*sample.region, range, sample.crcs);
    EXPECT_FALSE(check.Copy(ByteSpan(wrong).subspan(range.offset, range.to.size())).ok());
    EXPECT_THAT(check.Finish(), testing::StatusIs(absl::StatusCode::kDataLoss));
    EXPECT_EQ(EndOf(CheckRange(*sample.region, range, std::span(sample.crcs).subspan(1, 8))),
              FetchEnd::kDamaged);
  }
}

TEST(RangeCheckTest, TooManyTooFewAndForeignChecksumsAreDamage) {
  Sample sample(64);
  const FetchRange range = sample.Range(0, 4);
  const ByteSpan bytes = sample.bytes;
  RangeCheck few(*sample.region, range, sample.crcs);
  EXPECT_OK(few.Copy(bytes.first(bytes.size() - 1)));
  EXPECT_EQ(EndOf(few.Finish()), FetchEnd::kDamaged);
  RangeCheck many(*sample.region, range, sample.crcs);
  EXPECT_OK(many.Copy(bytes));
  EXPECT_EQ(EndOf(many.Copy(bytes.first(1))), FetchEnd::kDamaged);
  EXPECT_EQ(EndOf(many.Finish()), FetchEnd::kDamaged);
  RangeCheck short_list(*sample.region, range, std::span(sample.crcs).first(3));
  EXPECT_EQ(EndOf(short_list.Copy(bytes)), FetchEnd::kDamaged);
  // The peer's word fits the bytes, but not what the region said.
  Region other = *sample.region;
  other.block_crcs[BlocksPerLayer(other.layout) + 2] ^= 1;
  RangeCheck foreign(other, range, sample.crcs);
  EXPECT_EQ(EndOf(foreign.Copy(bytes)), FetchEnd::kDamaged);
  other.block_crcs.clear();
  RangeCheck unknown(other, range, sample.crcs);
  EXPECT_OK(unknown.Copy(bytes));
  EXPECT_OK(unknown.Finish());
}

TEST(RangeCheckTest, TheMeaningOfEachStatus) {
  EXPECT_EQ(EndOf(absl::OkStatus()), FetchEnd::kOk);
  EXPECT_EQ(EndOf(CancelledStatus()), FetchEnd::kCancelled);
  EXPECT_EQ(EndOf(DeadlineStatus()), FetchEnd::kDeadline);
  EXPECT_EQ(EndOf(LeaseEndedStatus()), FetchEnd::kLeaseEnded);
  EXPECT_EQ(EndOf(DamagedStatus(3)), FetchEnd::kDamaged);
  EXPECT_EQ(EndOf(NotOnThisPathStatus("x")), FetchEnd::kNotOnThisPath);
  EXPECT_EQ(EndOf(PathDownStatus("x")), FetchEnd::kPathDown);
  EXPECT_EQ(EndOf(Error(ErrorCode::kDraining, "x")), FetchEnd::kPathDown);
  EXPECT_EQ(EndOf(Error(ErrorCode::kQueueFull, "x")), FetchEnd::kPathDown);
  EXPECT_EQ(EndOf(Error(ErrorCode::kContextCompiling, "x")), FetchEnd::kRefused);
  EXPECT_EQ(EndOf(Error(ErrorCode::kContextFailed, "x")), FetchEnd::kRefused);
  EXPECT_EQ(EndOf(absl::AbortedError("x")), FetchEnd::kRefused);
  EXPECT_EQ(EndOf(absl::DataLossError("x")), FetchEnd::kRefused);
  EXPECT_EQ(EndOf(absl::InternalError("x")), FetchEnd::kRefused);
}

}  // namespace
}  // namespace epic::transport
