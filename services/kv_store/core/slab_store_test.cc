// The contract of SlabStore against the back-ends of the core: rows of tables in memory, and memory.
#include <memory>

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "services/kv_store/core/memory_slab_store.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/row_slab_store.h"
#include "services/kv_store/testing/slab_store_contract.h"

namespace epic::kv_store {
namespace {

class RowWorld final : public SlabWorld {
 public:
  SlabStore* Open(std::function<absl::Status()> /*sync_index*/) override {
    store_.reset();
    tables_ = std::make_unique<MemoryTableStore>(disk_);
    store_ = std::make_unique<RowSlabStore>(tables_.get());
    return store_.get();
  }
  absl::Status WriteIndex(const WriteBatch& batch, Sync sync) override { return tables_->Write(batch, sync); }
  void Crash(Rng* rng) override {
    store_.reset();
    tables_.reset();
    disk_->Crash(rng);
  }

 private:
  const std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  std::unique_ptr<TableStore> tables_;
  std::unique_ptr<SlabStore> store_;
};

class MemoryWorld final : public SlabWorld {
 public:
  SlabStore* Open(std::function<absl::Status()> /*sync_index*/) override {
    store_ = std::make_unique<MemorySlabStore>(disk_);
    return store_.get();
  }
  absl::Status WriteIndex(const WriteBatch& /*batch*/, Sync /*sync*/) override { return absl::OkStatus(); }
  void Crash(Rng* /*rng*/) override { store_.reset(); }

 private:
  const std::shared_ptr<MemorySlabDisk> disk_ = std::make_shared<MemorySlabDisk>();
  std::unique_ptr<SlabStore> store_;
};

INSTANTIATE_TEST_SUITE_P(Core, SlabStoreContractTest,
                         ::testing::Values(SlabBackEnd{"rows", [] { return std::make_unique<RowWorld>(); }},
                                           SlabBackEnd{"memory",
                                                       [] { return std::make_unique<MemoryWorld>(); }}),
                         [](const auto& instance) { return instance.param.name; });

TEST(SlabShapeTest, KeepsSlabsOnPagesAndPacksSmallOnes) {
  const KvLayout pages = {.layers = 3, .kv_heads = 2, .head_dim = 64, .tokens = 20};  // 10,240 bytes a slab
  EXPECT_EQ(SlabShapeOf(pages), (SlabShape{.layers = 3, .layer_bytes = 10'240, .stride = 12'288}));
  EXPECT_EQ(SlabShapeOf(pages).ReadBytes({1, 3}), 2u * 12'288);
  const KvLayout small = {.layers = 3, .kv_heads = 1, .head_dim = 16, .tokens = 29};  // 1,856 bytes a slab
  const SlabShape packed = SlabShapeOf(small);
  EXPECT_EQ(packed.stride, 1'856u);
  EXPECT_EQ(packed.PageBegin(2), 0u);
  EXPECT_EQ(packed.PageEnd(2), 8'192u);
}

TEST(MemorySlabStoreTest, AFullDiskIsAnErrorAndFreedSpaceIsNot) {
  MemorySlabStore store(std::make_shared<MemorySlabDisk>(8192));
  const TestImage image = TestImage::Of(1, 1, 8000);
  ASSERT_OK(store.Load({}, false));
  ASSERT_OK(store.Write(1, image.shape, image.spans()));
  EXPECT_THAT(store.Write(2, image.shape, image.spans()),
              epic::testing::StatusIs(absl::StatusCode::kResourceExhausted));
  store.Free(1);
  EXPECT_OK(store.Write(3, image.shape, image.spans()));
}

}  // namespace
}  // namespace epic::kv_store
