// Whole objects of 2.1 GiB in one layer, and of 4 GiB to the byte: written to the disk through each back-end,
// evicted from memory, read back, sent and fetched over gRPC, every byte compared. Needs memory and disk;
// says so where they are short.
#include <sys/statvfs.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "common/rpc/kv_store/remote_kv_store.h"
#include "common/status/error.h"
#include "common/storage/object_codec.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/node/store_node.h"
#include "services/kv_store/embedded_store.h"
#include "services/kv_store/rpc/store_door.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr std::string_view kTenant = "default";
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint32_t kTokens = 512;

// A word of what an object of `seed` holds at `index`.
uint64_t WordOf(uint64_t seed, uint64_t index) { return (index + 1) * 0x9e3779b97f4a7c15u ^ seed << 7; }

void Fill(MutableByteSpan bytes, uint64_t seed) {
  for (uint64_t at = 0; at + 8 <= bytes.size(); at += 8) {
    const uint64_t word = WordOf(seed, at / 8);
    std::memcpy(bytes.data() + at, &word, 8);
  }
}

// Where it differs from what `seed` has; -1: nowhere.
int64_t FirstDifference(ByteSpan bytes, uint64_t seed) {
  for (uint64_t at = 0; at + 8 <= bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    if (word != WordOf(seed, at / 8)) return static_cast<int64_t>(at);
  }
  return -1;
}

uint64_t AvailableMemoryBytes() {
  std::ifstream info("/proc/meminfo");
  for (std::string name, unit; info >> name;) {
    uint64_t kib = 0;
    info >> kib;
    std::getline(info, unit);
    if (name == "MemAvailable:") return kib << 10;
  }
  return 0;
}

uint64_t FreeDiskBytes(const std::string& folder) {
  struct statvfs info = {};
  return statvfs(folder.c_str(), &info) == 0 ? uint64_t{info.f_bavail} * info.f_frsize : 0;
}

class LargeObjectSlowTest : public ::testing::TestWithParam<SlabBackEnd> {
 protected:
  void SetUp() override {
    if (AvailableMemoryBytes() < 11 * kGiB || FreeDiskBytes(dir_.path()) < 20 * kGiB) {
      GTEST_SKIP() << "needs 11 GiB of memory and 20 GiB of disk that nobody else uses";
    }
    ASSERT_GT(large_.LayerBytes(), 2 * kGiB);
    ASSERT_EQ(ObjectBytes(most_), 4 * kGiB);
    ASSERT_EQ(ObjectBytes(too_much_), 4 * kGiB + 20);
    Open();
  }
  void Open() {
    store_.reset();
    EmbeddedStoreOptions options{
        .dir = dir_.path() + "/data",
        .store = {.memory_bytes = 4 * kGiB + (64 << 20), .disk_bytes_max = 18 * kGiB, .writer = {}},
        .slabs = GetParam(),
        .scrub_bytes_per_s = 0,
        .warm_up_bytes_per_s = 0};
    auto store = EmbeddedStore::OpenCore(options);
    ASSERT_OK(store);
    store_ = *std::move(store);
  }
  static ObjectKey KeyOf(uint64_t seed, const KvLayout& layout) {
    return {CacheId::Of(kTenant, {}, TokensOf(seed, layout.tokens)), {}};
  }
  void Put(uint64_t seed, const KvLayout& layout) {
    ASSERT_OK(store_->CreateContext(ContextOf(seed, layout.tokens)));
    auto writer = store_->ReserveInArena(kTenant, KeyOf(seed, layout), layout);
    ASSERT_OK(writer);
    const MutableByteSpan slab = (*writer)->Buffer(0);
    Fill(slab, seed);
    std::vector<uint32_t> crcs(BlocksPerLayer(layout));
    ComputeBlockCrcs(layout, slab, crcs);
    ASSERT_OK((*writer)->FinishLayer(0, crcs));
    ASSERT_OK((*writer)->Commit());
    store_->DrainWrites();
    EXPECT_TRUE(store_->Where(kTenant, KeyOf(seed, layout)).on_disk);
  }
  void ExpectHolds(KvStore* store, uint64_t seed, const KvLayout& layout) {
    const auto hit = store->Acquire(kTenant, KeyOf(seed, layout), layout);
    ASSERT_OK(hit);
    ASSERT_NE(hit->object, nullptr) << static_cast<int>(hit->cause);
    ASSERT_EQ(hit->object->Layer(0).size(), layout.LayerBytes());
    EXPECT_EQ(FirstDifference(hit->object->Layer(0), seed), -1);
  }
  bool InMemory(uint64_t seed, const KvLayout& layout) {
    return store_->Where(kTenant, KeyOf(seed, layout)).in_memory;
  }

  const KvLayout large_ = LayoutOf(kTokens, 1, 1100, 1024);
  const KvLayout most_ = LayoutOf(kTokens, 1, 3806, 551);
  const KvLayout too_much_ = LayoutOf(413, 1, 1397, 1861);
  epic::testing::TempDir dir_;
  std::unique_ptr<StoreCore> store_;
};

TEST_P(LargeObjectSlowTest, ObjectsUpToFourGiBGoToTheDiskAndComeBackToTheByte) {
  Put(1, large_);
  Put(2, most_);
  EXPECT_FALSE(InMemory(1, large_)) << "evicted for the other";
  ExpectHolds(store_.get(), 1, large_);
  EXPECT_FALSE(InMemory(2, most_));
  ExpectHolds(store_.get(), 2, most_);
  Open();
  ExpectHolds(store_.get(), 1, large_);
  ExpectHolds(store_.get(), 2, most_);
  ASSERT_OK(store_->CreateContext(ContextOf(3, too_much_.tokens)));
  EXPECT_EQ(CodeOf(store_->Reserve(kTenant, KeyOf(3, too_much_), too_much_).status()),
            ErrorCode::kBodyTooLarge);
}

TEST_P(LargeObjectSlowTest, AndOverGrpcBothWays) {
  if (GetParam() != SlabBackEnd::kExtents) GTEST_SKIP() << "the door knows no back-end: once is enough";
  Put(2, most_);
  const auto node = StoreNode::Open(store_.get(), {});
  ASSERT_OK(node);
  const auto door = StoreDoor::Start({.address = "127.0.0.1:0"}, node->get());
  ASSERT_OK(door);
  const auto remote =
      MakeRemoteKvStore({.address = "127.0.0.1:" + std::to_string((*door)->port()), .call_ms = 120'000});
  ASSERT_OK(remote);
  ExpectHolds(remote->get(), 2, most_);
  ASSERT_OK((*remote)->CreateContext(ContextOf(1, kTokens)).status());
  {
    auto writer = (*remote)->Reserve(kTenant, KeyOf(1, large_), large_);
    ASSERT_OK(writer);
    std::vector<std::byte> slab(large_.LayerBytes());
    Fill(slab, 1);
    ASSERT_OK((*writer)->WriteLayer(0, slab));
    ASSERT_OK((*writer)->Commit());
  }
  store_->DrainWrites();
  EXPECT_FALSE(InMemory(2, most_));
  ExpectHolds(store_.get(), 1, large_);
  ExpectHolds(remote->get(), 2, most_);
  ExpectHolds(remote->get(), 1, large_);
  ASSERT_OK((*remote)->CreateContext(ContextOf(3, too_much_.tokens)).status());
  EXPECT_EQ(CodeOf((*remote)->Reserve(kTenant, KeyOf(3, too_much_), too_much_).status()),
            ErrorCode::kBodyTooLarge);
  (*door)->Stop();
}

INSTANTIATE_TEST_SUITE_P(BackEnds, LargeObjectSlowTest,
                         ::testing::Values(SlabBackEnd::kExtents, SlabBackEnd::kBlobFiles),
                         [](const auto& param) {
                           return std::string(param.param == SlabBackEnd::kExtents ? "Extents" : "BlobFiles");
                         });

}  // namespace
}  // namespace epic::kv_store
