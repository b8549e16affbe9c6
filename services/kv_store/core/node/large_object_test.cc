// Objects of sizes around 2^31 and 2^32 bytes without their bytes: memory that nobody touches costs nothing.
// Whole ones, on disk and over gRPC, are in services/kv_store/rpc/large_object_slow_test.cc.
#include <cstring>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/storage/object_codec.h"
#include "services/kv_store/core/node/store_node_fixture.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kLimit = uint64_t{4} << 30;

KvLayout LayoutFor(uint32_t layers, uint32_t heads, uint32_t tokens, uint32_t head_dim) {
  return LayoutOf(tokens, layers, heads, head_dim);
}

class LargeObjectTest : public StoreNodeFixture {
 protected:
  void SetUp() override { OpenStore(uint64_t{5} << 30); }
  ReserveResult ReserveOf(const KvLayout& layout) {
    const auto created = store_->CreateContext(ContextOf(1, layout.tokens));
    EXPECT_OK(created);
    const std::vector<ReserveItem> items = {
        {.tenant = kTenant, .key = {created->record.id, {}}, .layout = layout, .source = "w", .request = {}}};
    return node_->Reserve(1, items).front();
  }
};

TEST_F(LargeObjectTest, TheLimitIsMetToTheByteAndWhatIsAboveIsRefusedByName) {
  const KvLayout exact = LayoutFor(1, 3806, 512, 551);
  ASSERT_EQ(ObjectBytes(exact), kLimit);
  const ReserveResult taken = ReserveOf(exact);
  EXPECT_EQ(taken.outcome, ReserveOutcome::kReserved) << taken.status;
  EXPECT_EQ(store_->Usage().memory_bytes, RoundUpToPage(exact.LayerBytes()));
  Abort(taken.token);
  const KvLayout above = LayoutFor(1, 1397, 413, 1861);
  ASSERT_EQ(ObjectBytes(above), kLimit + 20);
  EXPECT_EQ(CodeOf(ReserveOf(above).status), ErrorCode::kBodyTooLarge);
  const CacheId id = CacheId::Of(kTenant, {}, TokensOf(1, above.tokens));
  EXPECT_EQ(CodeOf(store_->Reserve(kTenant, {id, {}}, above).status()), ErrorCode::kBodyTooLarge);
  EXPECT_EQ(store_->Usage().reservations, 0u);
  EXPECT_EQ(store_->Usage().memory_bytes, 0u);
}

TEST_F(LargeObjectTest, LayersLieWhereTheyShallAlsoBeyondTwoAndFourGiB) {
  for (const KvLayout& layout : {LayoutFor(3, 2589, 512, 270), LayoutFor(2, 1024, 512, 1000),
                                 LayoutFor(1, 1100, 512, 1024), LayoutFor(1, 3806, 512, 551)}) {
    const ReserveResult reserved = ReserveOf(layout);
    ASSERT_EQ(reserved.outcome, ReserveOutcome::kReserved) << reserved.status;
    std::vector<LayerFill> fills;
    for (uint32_t layer = 0; layer < layout.layers; ++layer) {
      auto fill = node_->BeginLayer(reserved.token, layer);
      ASSERT_OK(fill);
      ASSERT_EQ(fill->bytes().size(), layout.LayerBytes());
      // The ends of each: a page that two share would have the later value.
      std::memset(fill->bytes().data(), static_cast<int>(2 * layer + 1), 64);
      std::memset(fill->bytes().data() + fill->bytes().size() - 64, static_cast<int>(2 * layer + 2), 64);
      fills.push_back(*std::move(fill));
    }
    for (const LayerFill& fill : fills) {
      EXPECT_EQ(static_cast<uint32_t>(fill.bytes().front()), 2 * fill.layer() + 1);
      EXPECT_EQ(static_cast<uint32_t>(fill.bytes().back()), 2 * fill.layer() + 2);
      EXPECT_EQ(static_cast<uint32_t>(fill.bytes()[64]), 0u);
    }
    fills.clear();
    Abort(reserved.token);
  }
}

// Sums of whole numbers as wide as they need be, beside those of the layout and the shape on disk.
TEST_F(LargeObjectTest, SizesDoNotWrap) {
  __extension__ using Wide = unsigned __int128;
  for (const KvLayout& layout :
       {LayoutFor(1, 3806, 512, 551), LayoutFor(3, 2038, 512, 343), LayoutFor(2, 1024, 512, 1000),
        LayoutFor(4096, 64, 4096, 1), LayoutFor(1, 4096, 1u << 15, 64)}) {
    const Wide layer = Wide{4} * layout.kv_heads * layout.tokens * layout.head_dim;
    const Wide stride = (layer + 4095) / 4096 * 4096;
    EXPECT_TRUE(layout.LayerBytes() == layer);
    EXPECT_TRUE(layout.TotalBytes() == layer * layout.layers);
    const SlabShape shape = SlabShapeOf(layout);
    EXPECT_TRUE(shape.ImageBytes() == stride * layout.layers);
    EXPECT_TRUE(shape.PageBegin(layout.layers - 1) == stride * (layout.layers - 1));
    EXPECT_TRUE(shape.PageEnd(layout.layers - 1) == stride * layout.layers);
    EXPECT_TRUE(ObjectBytes(layout) >= layer * layout.layers + layout.tokens * 4);
  }
}

}  // namespace
}  // namespace epic::kv_store
