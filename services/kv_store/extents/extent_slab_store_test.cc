// ExtentSlabStore: the contract of every SlabStore, on real files and on files in memory; space and its
// reuse, limits, erasure, faults of the disk, damaged files.
#include "services/kv_store/extents/extent_slab_store.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/extents/posix_file_system.h"
#include "services/kv_store/testing/faulty_file_system.h"
#include "services/kv_store/testing/slab_store_contract.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr const char* kFolder = "/slabs";

ExtentOptions SmallOptions(std::string folder) {
  return {.folder = std::move(folder),
          .max_bytes = 64 * kMiB,
          .file_bytes = 8 * kMiB,
          .grow_bytes = kMiB,
          .piece_bytes = 16 << 10};
}

class ExtentWorld final : public SlabWorld {
 public:
  explicit ExtentWorld(bool real) {
    if (real) {
      files_ = MakePosixFileSystem();
    } else {
      auto memory = std::make_unique<FaultyFileSystem>(5);
      memory_ = memory.get();
      files_ = std::move(memory);
    }
  }
  SlabStore* Open(std::function<absl::Status()> sync_index) override {
    store_.reset();
    const std::string folder = memory_ != nullptr ? kFolder : dir_.path() + "/slabs";
    auto store = ExtentSlabStore::Open(files_, SmallOptions(folder), std::move(sync_index));
    EXPECT_OK(store);
    store_ = *std::move(store);
    return store_.get();
  }
  absl::Status WriteIndex(const WriteBatch& /*batch*/, Sync /*sync*/) override { return absl::OkStatus(); }
  void Crash(Rng* rng) override {
    store_.reset();
    if (memory_ != nullptr) memory_->Crash(rng);
  }

 private:
  const epic::testing::TempDir dir_;
  std::shared_ptr<FileSystem> files_;
  FaultyFileSystem* memory_ = nullptr;
  std::unique_ptr<SlabStore> store_;
};

INSTANTIATE_TEST_SUITE_P(
    Extents, SlabStoreContractTest,
    ::testing::Values(SlabBackEnd{"files", [] { return std::make_unique<ExtentWorld>(true); }},
                      SlabBackEnd{"memory", [] { return std::make_unique<ExtentWorld>(false); }}),
    [](const auto& instance) { return instance.param.name; });

class ExtentSlabStoreTest : public ::testing::Test {
 protected:
  void SetUp() override { Open({}); }
  std::vector<uint64_t> Open(const std::vector<LiveSlabs>& live) {
    store_.reset();
    auto store = ExtentSlabStore::Open(files_, options_, [this] {
      ++index_syncs_;
      return index_status_;
    });
    EXPECT_OK(store);
    store_ = *std::move(store);
    const auto wrong = store_->Load(live, false);
    EXPECT_OK(wrong);
    return *wrong;
  }
  static TestImage ImageOf(uint64_t seed, uint64_t bytes = kMiB) { return TestImage::Of(seed, 4, bytes / 4); }
  absl::StatusOr<SlabExtents> Write(uint64_t number, const TestImage& image) {
    return store_->Write(number, image.shape, image.spans());
  }
  absl::Status Read(uint64_t number, const TestImage& image) {
    return ReadAndCompare(store_.get(), number, image, image.shape.All());
  }

  const std::shared_ptr<FaultyFileSystem> files_ = std::make_shared<FaultyFileSystem>(11);
  ExtentOptions options_ = SmallOptions(kFolder);
  absl::Status index_status_;
  int index_syncs_ = 0;
  std::unique_ptr<ExtentSlabStore> store_;
};

TEST_F(ExtentSlabStoreTest, FreedSpaceIsUsedAgainAfterOneSyncOfTheIndex) {
  options_.max_bytes = 4 * kMiB;
  Open({});
  for (uint64_t number = 1; number <= 4; ++number) ASSERT_OK(Write(number, ImageOf(number)));
  EXPECT_THAT(Write(5, ImageOf(5)), epic::testing::StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(store_->ReusableBytes(), 0u);
  const uint64_t physical = store_->PhysicalBytes();
  store_->Free(2);
  store_->Free(3);
  EXPECT_EQ(store_->ReusableBytes(), 2 * kMiB);
  index_status_ = absl::UnavailableError("the index's disk is gone");
  EXPECT_THAT(Write(6, ImageOf(6)), epic::testing::StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(store_->ReusableBytes(), 2 * kMiB) << "nothing is lost";
  index_status_ = absl::OkStatus();
  ASSERT_OK(Write(7, ImageOf(7, 2 * kMiB)));
  EXPECT_EQ(index_syncs_, 2);
  EXPECT_EQ(store_->PhysicalBytes(), physical);
  EXPECT_OK(Read(1, ImageOf(1)));
  EXPECT_OK(Read(4, ImageOf(4)));
  EXPECT_OK(Read(7, ImageOf(7, 2 * kMiB)));
  store_->Free(7);
  ASSERT_OK(Write(8, ImageOf(8)));
  EXPECT_EQ(index_syncs_, 3);
}

TEST_F(ExtentSlabStoreTest, SpaceInPiecesIsUsedAndAcrossFiles) {
  options_.max_bytes = 20 * kMiB;
  Open({});
  for (uint64_t number = 1; number <= 20; ++number) ASSERT_OK(Write(number, ImageOf(number)));
  for (uint64_t number = 2; number <= 20; number += 2) store_->Free(number);
  const TestImage large = ImageOf(99, 10 * kMiB);
  ASSERT_OK_AND_ASSIGN(const SlabExtents extents, Write(99, large));
  EXPECT_GE(extents.size(), 5u);
  EXPECT_OK(Read(99, large));
  for (uint32_t layer = 0; layer < 4; ++layer) {
    EXPECT_OK(ReadAndCompare(store_.get(), 99, large, {layer, layer + 1}));
  }
  EXPECT_TRUE(Open({{99, extents}}).empty());
  EXPECT_OK(Read(99, large));
  EXPECT_GT(extents.back().file, 0u);
}

TEST_F(ExtentSlabStoreTest, TheFilesStayWithinTheLimitAndAPageOfHeaderEach) {
  options_.max_bytes = 10 * kMiB;
  Open({});
  Rng rng(3);
  std::vector<uint64_t> live;
  for (uint64_t number = 1; number <= 300; ++number) {
    const uint64_t bytes = 4 * (1 + rng.Below(300'000));
    if (Write(number, ImageOf(number, bytes)).ok()) {
      live.push_back(number);
    } else {
      const size_t at = rng.Below(live.size());
      store_->Free(live[at]);
      live.erase(live.begin() + static_cast<ptrdiff_t>(at));
    }
    EXPECT_LE(store_->PhysicalBytes(), options_.max_bytes + 2 * kSlabPageBytes);
  }
  EXPECT_GT(live.size(), 5u);
}

TEST_F(ExtentSlabStoreTest, AReaderKeepsWhatIsFreedUnderIt) {
  options_.max_bytes = kMiB;
  Open({});
  const TestImage image = ImageOf(1);
  ASSERT_OK(Write(1, image));
  files_->SetGate(false);
  std::thread reader([&] { EXPECT_OK(Read(1, image)); });
  files_->AwaitHeld(1);
  store_->Free(1);
  EXPECT_FALSE(store_->Holds(1));
  EXPECT_EQ(CodeOf(store_->Write(2, image.shape, image.spans()).status()), ErrorCode::kStorageFull)
      << "its pages are not free while it reads";
  files_->SetGate(true);
  reader.join();
  EXPECT_OK(Write(3, ImageOf(3)));
}

TEST_F(ExtentSlabStoreTest, ReclaimErasesWhatWasFreedAndGivesItsSpaceBack) {
  const TestImage image = ImageOf(1);
  const std::string trace = image.slabs[2].substr(1000, 64);
  ASSERT_OK(Write(1, image));
  ASSERT_OK(Write(2, ImageOf(2)));
  const uint64_t before = store_->PhysicalBytes();
  EXPECT_TRUE(files_->Contains(trace));
  store_->Free(1);
  EXPECT_TRUE(files_->Contains(trace));
  ASSERT_OK(store_->Reclaim());
  EXPECT_FALSE(files_->Contains(trace));
  EXPECT_EQ(store_->PhysicalBytes(), before - kMiB);
  EXPECT_OK(Read(2, ImageOf(2)));
  ASSERT_OK(store_->Reclaim());
  EXPECT_EQ(store_->ReusableBytes(), 0u) << "what was given back is to be taken from the disk again";
  ASSERT_OK(Write(3, ImageOf(3)));
  EXPECT_OK(Read(3, ImageOf(3)));
}

TEST_F(ExtentSlabStoreTest, WhatACrashLeftIsErasedByTheFirstReclaimOfTheNextLife) {
  const TestImage image = ImageOf(1);
  ASSERT_OK(Write(1, image));
  ASSERT_OK_AND_ASSIGN(const SlabExtents kept, Write(2, ImageOf(2)));
  Open({{2, kept}});
  EXPECT_TRUE(files_->Contains(image.slabs[0].substr(0, 64)));
  ASSERT_OK(store_->Reclaim());
  EXPECT_FALSE(files_->Contains(image.slabs[0].substr(0, 64)));
  EXPECT_OK(Read(2, ImageOf(2)));
}

TEST_F(ExtentSlabStoreTest, AFullDiskIsStorageFullAndNothingLeaks) {
  files_->SetCapacity(3 * kMiB);
  ASSERT_OK(Write(1, ImageOf(1)));
  ASSERT_OK(Write(2, ImageOf(2)));
  for (uint64_t number = 3; number < 20; ++number) {
    EXPECT_EQ(CodeOf(Write(number, ImageOf(number)).status()), ErrorCode::kStorageFull);
  }
  store_->Free(1);
  EXPECT_OK(Write(20, ImageOf(20)));
  files_->SetCapacity(30 * kMiB);
  EXPECT_OK(Write(21, ImageOf(21)));
  for (const uint64_t number : {2, 20, 21}) EXPECT_OK(Read(number, ImageOf(number)));
}

TEST_F(ExtentSlabStoreTest, AFailingDiskIsAnErrorNeverAWrongByteAndNothingLeaks) {
  options_.max_bytes = 6 * kMiB;
  Open({});
  uint64_t written = 0;
  uint64_t read = 0;
  for (uint64_t number = 1; number <= 200; ++number) {
    files_->SetFaults({.write_error = 1, .torn_write = 1, .short_write = 10, .sync_error = 10});
    const TestImage image = ImageOf(number);
    const auto extents = Write(number, image);
    files_->SetFaults({.read_error = 1, .short_read = 20});
    if (!extents.ok()) {
      EXPECT_EQ(extents.status().code(), absl::StatusCode::kUnavailable);
      EXPECT_FALSE(store_->Holds(number));
      continue;
    }
    ++written;
    const absl::Status status = Read(number, image);  // compares
    if (status.ok()) ++read;
    store_->Free(number);
  }
  EXPECT_GT(written, 5u);
  EXPECT_GT(read, 3u);
  files_->SetFaults({});
  for (uint64_t number = 1001; number <= 1006; ++number) EXPECT_OK(Write(number, ImageOf(number)));
}

TEST_F(ExtentSlabStoreTest, EntriesThatCannotBeRightAreReported) {
  ASSERT_OK_AND_ASSIGN(const SlabExtents first, Write(1, ImageOf(1)));
  ASSERT_OK_AND_ASSIGN(const SlabExtents second, Write(2, ImageOf(2)));
  SlabExtents outside = second;
  outside[0].page += 100'000;
  std::vector<uint64_t> wrong = Open({{1, first},
                                      {2, second},
                                      {3, first},                     // claims pages of 1, and is newer
                                      {4, outside},                   // behind the end
                                      {5, {{9, 1, 4}}},               // no such file
                                      {6, {{0, 0, 1}}},               // the header
                                      {7, {}},                        // nowhere
                                      {8, {second[0], {0, 0, 0}}}});  // an empty run, and pages of 2
  std::sort(wrong.begin(), wrong.end());
  EXPECT_EQ(wrong, (std::vector<uint64_t>{1, 4, 5, 6, 7, 8}));
  EXPECT_OK(Read(2, ImageOf(2)));
  EXPECT_THAT(Read(1, ImageOf(1)), epic::testing::StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ExtentSlabStoreTest, AMissingFileLosesItsImagesOnly) {
  std::vector<LiveSlabs> live;
  for (uint64_t number = 1; number <= 20; ++number) {
    ASSERT_OK_AND_ASSIGN(const SlabExtents extents, Write(number, ImageOf(number)));
    live.push_back({number, extents});
  }
  store_.reset();
  files_->Remove(std::string(kFolder) + "/extents-000001.dat");
  const std::vector<uint64_t> wrong = Open(live);
  for (const LiveSlabs& slabs : live) {
    const bool lost = std::any_of(slabs.extents.begin(), slabs.extents.end(),
                                  [](const SlabExtent& extent) { return extent.file == 1; });
    EXPECT_EQ(std::count(wrong.begin(), wrong.end(), slabs.number), lost ? 1 : 0);
    if (!lost) {
      EXPECT_OK(Read(slabs.number, ImageOf(slabs.number)));
    }
  }
  EXPECT_FALSE(wrong.empty());
  for (uint64_t number = 101; number <= 108; ++number) EXPECT_OK(Write(number, ImageOf(number)));
}

TEST_F(ExtentSlabStoreTest, ADamagedHeaderIsWrittenAnewAndOneOfANewerVersionRefused) {
  ASSERT_OK_AND_ASSIGN(const SlabExtents extents, Write(1, ImageOf(1)));
  store_.reset();
  const std::string path = std::string(kFolder) + "/extents-000000.dat";
  ASSERT_TRUE(files_->Damage(path, 13));
  EXPECT_TRUE(Open({{1, extents}}).empty());
  EXPECT_OK(Read(1, ImageOf(1)));
  store_.reset();
  ASSERT_TRUE(files_->Damage(path, 9));  // the version is 257 now
  EXPECT_THAT(ExtentSlabStore::Open(files_, options_, [] { return absl::OkStatus(); }),
              epic::testing::StatusIs(absl::StatusCode::kUnimplemented));
}

}  // namespace
}  // namespace epic::kv_store
