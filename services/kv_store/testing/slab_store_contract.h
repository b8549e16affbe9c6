// What every SlabStore promises, as tests that run against each back-end (a parameterised suite): bytes come
// back exactly, alone and in order; freed numbers are gone; what the index names survives a crash, nothing
// else is kept. A back-end brings a SlabWorld: its disk, its index, and how it crashes. Tests only.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_SLAB_STORE_CONTRACT_H_
#define EPIC_SERVICES_KV_STORE_TESTING_SLAB_STORE_CONTRACT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/aligned_buffer.h"
#include "services/kv_store/core/slab_store.h"
#include "services/kv_store/testing/slab_images.h"

namespace epic::kv_store {

// A disk with the slab store on it. The index is a map in the test; where slabs are rows, its batches go to
// the tables too.
class SlabWorld {
 public:
  virtual ~SlabWorld() = default;
  // A store over what the disk holds; ends the one before. `sync_index` is what the store calls before it
  // uses freed space again.
  virtual SlabStore* Open(std::function<absl::Status()> sync_index) = 0;
  // The batch of an index change; nothing to do where slabs are not rows.
  virtual absl::Status WriteIndex(const WriteBatch& batch, Sync sync) = 0;
  // Power is cut: the store is gone, unsynced data too.
  virtual void Crash(Rng* rng) = 0;
};

struct SlabBackEnd {
  std::string name;
  std::function<std::unique_ptr<SlabWorld>()> make;
};

class SlabStoreContractTest : public ::testing::TestWithParam<SlabBackEnd> {
 protected:
  void SetUp() override {
    world_ = GetParam().make();
    Reopen();
  }
  void Reopen() {
    store_ = world_->Open([this] {
      synced_index_ = index_;
      return world_->WriteIndex({}, Sync::kYes);
    });
    std::vector<LiveSlabs> live;
    for (const auto& [number, entry] : index_) live.push_back({number, entry.extents});
    ASSERT_OK_AND_ASSIGN(const std::vector<uint64_t> wrong, store_->Load(live, false));
    for (const uint64_t number : wrong) {
      EXPECT_TRUE(undone_.contains(number)) << "number " << number;
      index_.erase(number);
    }
    synced_index_ = index_;
  }
  // The index falls back to what was synced, as after a crash. A removal that was not synced is undone: then
  // the object is there as it was, or gone.
  void Crash(Rng* rng) {
    world_->Crash(rng);
    undone_.clear();
    for (const auto& [number, entry] : synced_index_) {
      if (!index_.contains(number)) undone_.insert(number);
    }
    index_ = synced_index_;
    Reopen();
    for (const uint64_t number : undone_) {
      const auto entry = index_.find(number);
      if (entry == index_.end()) continue;
      const TestImage& image = entry->second.image;
      const absl::Status status = ReadAndCompare(store_, number, image, image.shape.All());
      if (status.ok()) continue;
      EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
      index_.erase(entry);
    }
    synced_index_ = index_;
    undone_.clear();
  }
  uint64_t Put(const TestImage& image, Sync sync = Sync::kYes) {
    const uint64_t number = next_number_++;
    const auto extents = store_->Write(number, image.shape, image.spans());
    EXPECT_OK(extents);
    if (!extents.ok()) return 0;
    index_[number] = {image, *extents};
    WriteIndex({}, sync);
    return number;
  }
  void Remove(uint64_t number, Sync sync = Sync::kNo) {
    WriteBatch batch;
    store_->AddRemoval(number, &batch);
    index_.erase(number);
    WriteIndex(batch, sync);
    store_->Free(number);
  }
  void WriteIndex(const WriteBatch& batch, Sync sync) {
    ASSERT_OK(world_->WriteIndex(batch, sync));
    if (sync == Sync::kYes) synced_index_ = index_;
  }
  void CheckAll() {
    for (const auto& [number, entry] : index_) {
      EXPECT_OK(ReadAndCompare(store_, number, entry.image, entry.image.shape.All())) << number;
    }
  }

  struct Entry {
    TestImage image;
    SlabExtents extents;
  };
  std::unique_ptr<SlabWorld> world_;
  SlabStore* store_ = nullptr;
  std::map<uint64_t, Entry> index_;
  std::map<uint64_t, Entry> synced_index_;
  std::set<uint64_t> undone_;
  uint64_t next_number_ = 1;
};

TEST_P(SlabStoreContractTest, ImagesOfEveryShapeComeBackWholeAndByLayer) {
  const std::pair<uint32_t, uint64_t> shapes[] = {{1, 1},    {1, 4096},  {3, 4096},  {2, 4095},
                                                  {5, 4097}, {7, 12345}, {40, 1000}, {2, 3 << 20}};
  for (const auto& [layers, bytes] : shapes) {
    SCOPED_TRACE(std::to_string(layers) + " layers of " + std::to_string(bytes));
    const TestImage image = TestImage::Of(bytes, layers, bytes);
    const uint64_t number = Put(image);
    EXPECT_TRUE(store_->Holds(number));
    EXPECT_OK(ReadAndCompare(store_, number, image, image.shape.All()));
    for (uint32_t layer = 0; layer < layers; ++layer) {
      EXPECT_OK(ReadAndCompare(store_, number, image, {layer, layer + 1}));
    }
    if (layers > 2) {
      EXPECT_OK(ReadAndCompare(store_, number, image, {1, layers - 1}));
    }
  }
  CheckAll();
  Reopen();
  CheckAll();
}

TEST_P(SlabStoreContractTest, AnErrorOfTheReaderEndsTheRead) {
  const TestImage image = TestImage::Of(1, 4, 5000);
  const uint64_t number = Put(image);
  AlignedBuffer out(image.shape.ReadBytes(image.shape.All()));
  int layers = 0;
  const auto refuse = [&](uint32_t layer, ByteSpan) {
    ++layers;
    return layer == 1 ? absl::DataLossError("wrong") : absl::OkStatus();
  };
  EXPECT_THAT(store_->Read(number, image.shape, image.shape.All(), out.bytes(), refuse),
              epic::testing::StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(layers, 2);
  CheckAll();
}

TEST_P(SlabStoreContractTest, WhatIsFreedOrWasNeverWrittenIsNotFound) {
  const TestImage image = TestImage::Of(1, 2, 5000);
  const uint64_t number = Put(image);
  const uint64_t other = Put(image);
  Remove(number);
  EXPECT_FALSE(store_->Holds(number));
  EXPECT_THAT(ReadAndCompare(store_, number, image, image.shape.All()),
              epic::testing::StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(ReadAndCompare(store_, 999, image, image.shape.All()),
              epic::testing::StatusIs(absl::StatusCode::kNotFound));
  EXPECT_OK(ReadAndCompare(store_, other, image, image.shape.All()));
  Reopen();
  EXPECT_FALSE(store_->Holds(number));
  CheckAll();
}

TEST_P(SlabStoreContractTest, SlabsWithoutAnEntryAreGoneAtTheNextOpen) {
  const TestImage image = TestImage::Of(1, 2, 50'000);
  Put(image);
  const uint64_t number = next_number_++;
  ASSERT_OK(store_->Write(number, image.shape, image.spans()));
  Reopen();
  EXPECT_FALSE(store_->Holds(number));
  CheckAll();
}

TEST_P(SlabStoreContractTest, RandomWritesFreesReadsAndCrashesNeverGiveWrongBytes) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    for (int step = 0; step < 60; ++step) {
      const uint64_t action = rng.Below(10);
      if (action < 5) {
        Put(TestImage::Of(rng.Next(), 1 + rng.Below(4), 1 + rng.Below(3) * rng.Below(60'000)),
            rng.Below(2) == 0 ? Sync::kYes : Sync::kNo);
      } else if (action < 8 && !index_.empty()) {
        Remove(std::next(index_.begin(), static_cast<ptrdiff_t>(rng.Below(index_.size())))->first,
               rng.Below(2) == 0 ? Sync::kYes : Sync::kNo);
      } else if (action == 8) {
        ASSERT_OK(store_->Reclaim());
      } else {
        Crash(&rng);
      }
    }
    CheckAll();
    while (!index_.empty()) Remove(index_.begin()->first);
    if (HasFailure()) return;
  }
}

TEST_P(SlabStoreContractTest, SeveralReadersAndAWriterWorkAtATime) {
  const TestImage image = TestImage::Of(1, 6, 70'000);
  const uint64_t number = Put(image);
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 4; ++reader) {
    readers.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        EXPECT_OK(ReadAndCompare(store_, number, image, image.shape.All()));
      }
    });
  }
  for (uint64_t seed = 2; seed < 12; ++seed) {
    const uint64_t brief = Put(TestImage::Of(seed, 3, 70'000));
    if (seed % 2 == 0) Remove(brief);
  }
  for (std::thread& reader : readers) reader.join();
  CheckAll();
}

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TESTING_SLAB_STORE_CONTRACT_H_
