#include "common/storage/object_codec.h"

#include <functional>

#include <gtest/gtest.h>

#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"

namespace epic {
namespace {

using epic::testing::StatusIs;

std::string Golden(const std::string& name) {
  return epic::testing::ReadFileOrDie(epic::testing::SourceDir() + "/common/storage/golden/" + name);
}

// The bytes that golden/make_golden.py puts into a slab.
std::string GoldenSlab(uint32_t layer, size_t size) {
  std::string slab(size, '\0');
  for (size_t i = 0; i < size; ++i) slab[i] = static_cast<char>(31 * layer + 7 * i + (i >> 8));
  return slab;
}

struct Object {
  ObjectHead head;
  std::vector<std::string> slabs;
  std::string Encode() const {
    std::vector<ByteSpan> views;
    for (const std::string& slab : slabs) views.push_back(AsBytes(slab));
    return EncodeObject(head, views);
  }
};

Object MakeObject(const KvLayout& layout, const std::vector<TokenId>& tokens,
                  const std::function<std::string(uint32_t)>& slab) {
  Object object;
  object.head.id = CacheId::Of("default", Digest{}, tokens);
  object.head.variant = ObjectVariant{.dtype = layout.dtype}.ToDigest();
  object.head.layout = layout;
  object.head.tokens = tokens;
  object.head.block_crcs.resize(BlockCount(layout));
  const uint64_t blocks = BlocksPerLayer(layout);
  for (uint32_t layer = 0; layer < layout.layers; ++layer) {
    object.slabs.push_back(slab(layer));
    ComputeBlockCrcs(layout, AsBytes(object.slabs.back()),
                     std::span(object.head.block_crcs).subspan(layer * blocks, blocks));
  }
  object.head.build = BuildDigest(object.head.block_crcs);
  return object;
}

Object RandomObject(Rng* rng) {
  KvLayout layout{.layers = static_cast<uint32_t>(1 + rng->Below(4)),
                  .kv_heads = static_cast<uint32_t>(1 + rng->Below(3)),
                  .head_dim = static_cast<uint32_t>(1 + rng->Below(33)),
                  .tokens = static_cast<uint32_t>(1 + rng->Below(50)),
                  .dtype = rng->Below(2) == 0 ? KvDtype::kF32 : KvDtype::kBf16,
                  .first_position = static_cast<uint32_t>(rng->Below(100))};
  std::vector<TokenId> tokens(layout.tokens);
  for (TokenId& token : tokens) token = static_cast<TokenId>(rng->Next());
  return MakeObject(layout, tokens, [&](uint32_t) {
    std::string slab(layout.LayerBytes(), '\0');
    for (char& byte : slab) byte = static_cast<char>(rng->Next());
    return slab;
  });
}

TEST(ObjectCodecTest, WritesTheGoldenFilesOfVersion1) {
  const KvLayout small{.layers = 2, .kv_heads = 2, .head_dim = 4, .tokens = 3, .dtype = KvDtype::kBf16};
  EXPECT_EQ(
      MakeObject(small, {1, 2, 3}, [&](uint32_t l) { return GoldenSlab(l, small.LayerBytes()); }).Encode(),
      Golden("object_small.v1.bin"));
  const KvLayout aligned{
      .layers = 2, .kv_heads = 1, .head_dim = 64, .tokens = 16, .dtype = KvDtype::kF32, .first_position = 4};
  std::vector<TokenId> tokens(16);
  for (uint32_t i = 0; i < 16; ++i) tokens[i] = i;
  EXPECT_EQ(
      MakeObject(aligned, tokens, [&](uint32_t l) { return GoldenSlab(l, aligned.LayerBytes()); }).Encode(),
      Golden("object_aligned.v1.bin"));
}

TEST(ObjectCodecTest, ReadsTheGoldenFilesOfVersion1) {
  const std::string bytes = Golden("object_aligned.v1.bin");
  ASSERT_OK_AND_ASSIGN(const DecodedObject object, DecodeObject(AsBytes(bytes)));
  EXPECT_EQ(object.head.layout.first_position, 4u);
  EXPECT_EQ(object.head.tokens.size(), 16u);
  EXPECT_EQ(AsText(object.slabs[1]), GoldenSlab(1, object.head.layout.LayerBytes()));
  EXPECT_EQ(SlabOffset(object.head.layout, 1) % 4096, 0u);
}

TEST(ObjectCodecTest, RoundTripsAnyShape) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const Object object = RandomObject(&rng);
    const std::string bytes = object.Encode();
    EXPECT_EQ(bytes.size(), ObjectBytes(object.head.layout));
    ASSERT_OK_AND_ASSIGN(const DecodedObject decoded, DecodeObject(AsBytes(bytes)));
    EXPECT_EQ(decoded.head, object.head);
    for (uint32_t layer = 0; layer < object.head.layout.layers; ++layer) {
      EXPECT_EQ(AsText(decoded.slabs[layer]), object.slabs[layer]);
    }
  }
}

TEST(ObjectCodecTest, BlocksEndAtHeadsAndAt256KiB) {
  const KvLayout layout{.layers = 1, .kv_heads = 2, .head_dim = 128, .tokens = 1025, .dtype = KvDtype::kBf16};
  EXPECT_EQ(BlocksPerHead(layout), 2u);  // 262,400 bytes: one block and 256 bytes
  EXPECT_EQ(BlockCount(layout), 8u);
  std::string slab(layout.LayerBytes(), 'x');
  std::string copy(slab.size(), '\0');
  std::vector<uint32_t> crcs(8);
  CopyWithBlockCrcs(layout, AsBytes(slab), std::as_writable_bytes(std::span(copy)), crcs);
  EXPECT_EQ(copy, slab);
  EXPECT_EQ(crcs[0], Crc32c(0, AsBytes(slab).first(262'144)));
  EXPECT_EQ(crcs[1], Crc32c(0, AsBytes(slab).subspan(262'144, 256)));
}

TEST(ObjectCodecTest, ACopyMatchesOnlyIfEveryBlockDoes) {
  const KvLayout layout{.layers = 1, .kv_heads = 2, .head_dim = 64, .tokens = 2050, .dtype = KvDtype::kBf16};
  std::string slab(layout.LayerBytes(), '\0');
  Rng rng(3);
  for (char& byte : slab) byte = static_cast<char>(rng.Next());
  std::vector<uint32_t> crcs(BlocksPerLayer(layout));
  ComputeBlockCrcs(layout, AsBytes(slab), crcs);
  std::string copy(slab.size(), '\0');
  const MutableByteSpan to = std::as_writable_bytes(std::span(copy));
  EXPECT_TRUE(CopyIfMatches(layout, AsBytes(slab), to, crcs));
  EXPECT_EQ(copy, slab);
  for (const size_t at : {size_t{0}, size_t{262'143}, size_t{262'144}, slab.size() - 1}) {
    slab[at] ^= 1;
    EXPECT_FALSE(CopyIfMatches(layout, AsBytes(slab), to, crcs)) << at;
    slab[at] ^= 1;
  }
}

TEST(ObjectCodecTest, NamesTheFieldThatIsOutOfBounds) {
  const KvLayout good{.layers = 1, .kv_heads = 1, .head_dim = 1, .tokens = 1};
  EXPECT_OK(ValidateLayout(good));
  const auto expect = [&](const KvLayout& layout, const std::string& field) {
    EXPECT_THAT(ValidateLayout(layout),
                StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr(field)));
  };
  KvLayout bad = good;
  bad.layers = 0;
  expect(bad, "layers");
  bad = good;
  bad.tokens = 0xffffffff;
  expect(bad, "tokens");
  bad = good;
  bad.kv_heads = 4097;
  expect(bad, "kv_heads");
  bad = good;
  bad.head_dim = 0;
  expect(bad, "head_dim");
  bad = {.layers = 4096, .kv_heads = 4096, .head_dim = 8192, .tokens = 1u << 24};
  expect(bad, "blocks");
}

// Every byte but the padding is covered: whichever of its bits flips, the object is refused.
TEST(ObjectCodecTest, RefusesEveryFlippedBit) {
  Rng rng(5);
  const KvLayout layout{.layers = 2, .kv_heads = 1, .head_dim = 4, .tokens = 5, .dtype = KvDtype::kBf16};
  const Object object =
      MakeObject(layout, {1, 2, 3, 4, 5}, [&](uint32_t l) { return GoldenSlab(l, layout.LayerBytes()); });
  std::string bytes = object.Encode();
  for (size_t at = 0; at < bytes.size(); ++at) {
    const bool padding = at >= HeadBytes(layout) &&
                         (at < SlabOffset(layout, 0) ||
                          (at >= SlabOffset(layout, 0) + layout.LayerBytes() && at < SlabOffset(layout, 1)));
    if (padding) continue;
    const char mask = static_cast<char>(1 << rng.Below(8));
    bytes[at] ^= mask;
    EXPECT_FALSE(DecodeObject(AsBytes(bytes)).ok()) << "byte " << at;
    bytes[at] ^= mask;
  }
  EXPECT_OK(DecodeObject(AsBytes(bytes)));
}

TEST(ObjectCodecTest, RefusesAnotherVersionAndAnythingElse) {
  std::string bytes = Golden("object_small.v1.bin");
  bytes[8] = 2;
  EXPECT_THAT(DecodeHead(AsBytes(bytes)), StatusIs(absl::StatusCode::kUnimplemented));
  bytes[0] = 'X';
  EXPECT_THAT(DecodeHead(AsBytes(bytes)), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(DecodeHead({}), StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace epic
