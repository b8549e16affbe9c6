// Power cuts at every step of what ExtentSlabStore does to its files: what the synced index names is there
// to the byte, whatever was written, freed, used again and erased since. Each seed runs several lives on one
// disk, with an index that loses its unsynced end too. Prints the seed that fails.
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "services/kv_store/extents/extent_slab_store.h"
#include "services/kv_store/testing/faulty_file_system.h"
#include "services/kv_store/testing/slab_images.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// An index whose changes are durable in their order, from a sync on.
class CrashingIndex {
 public:
  struct Entry {
    uint64_t seed = 0;
    uint32_t layers = 0;
    uint64_t layer_bytes = 0;
    SlabExtents extents;
    TestImage image() const { return TestImage::Of(seed, layers, layer_bytes); }
  };
  using Entries = std::map<uint64_t, Entry>;

  void Put(uint64_t number, Entry entry) {
    Change([&](Entries* all) { (*all)[number] = entry; });
  }
  void Remove(uint64_t number) {
    Change([&](Entries* all) { all->erase(number); });
  }
  void Sync() { versions_.erase(versions_.begin(), versions_.end() - 1); }
  // Some of the unsynced changes survive, the first ones.
  void Crash(Rng* rng) { versions_ = {versions_[rng->Below(versions_.size())]}; }
  const Entries& now() const { return versions_.back(); }

 private:
  template <typename Fn>
  void Change(Fn fn) {
    versions_.push_back(versions_.back());
    fn(&versions_.back());
  }
  std::vector<Entries> versions_ = {{}};  // the durable one first
};

class Lives {
 public:
  // `steps_fail`: some do, now and then, before the power goes.
  explicit Lives(uint64_t seed, bool steps_fail)
      : rng_(seed),
        steps_fail_(steps_fail),
        files_(std::make_shared<FaultyFileSystem>(seed + 1, std::numeric_limits<uint64_t>::max(), power_)) {
    Open();
  }

  // One life: calls until the power is cut.
  void Live() {
    files_->CutPowerAfter(rng_.Below(60));
    if (steps_fail_) power_->FailAfter(rng_.Below(20), 1 + rng_.Below(2));
    for (int step = 0; step < 30 && !files_->power_is_cut(); ++step) Step();
    store_.reset();
    files_->Crash(&rng_);
    index_.Crash(&rng_);
    Open();
    CheckAll();
  }
  uint64_t checked() const { return checked_; }

 private:
  void Open() {
    auto store = ExtentSlabStore::Open(files_,
                                       {.folder = "/slabs",
                                        .max_bytes = kMiB,
                                        .file_bytes = 256 << 10,
                                        .grow_bytes = 64 << 10,
                                        .piece_bytes = 8 << 10},
                                       [this] {
                                         if (files_->power_is_cut())
                                           return absl::UnavailableError("no power");
                                         index_.Sync();
                                         return absl::OkStatus();
                                       });
    ASSERT_OK(store);
    store_ = *std::move(store);
    std::vector<LiveSlabs> live;
    for (const auto& [number, entry] : index_.now()) live.push_back({number, entry.extents});
    ASSERT_OK_AND_ASSIGN(const std::vector<uint64_t> wrong, store_->Load(live, false));
    EXPECT_TRUE(wrong.empty()) << "an entry of the index names pages that it cannot have";
  }
  void Step() {
    const uint64_t action = rng_.Below(10);
    if (action < 5) {
      CrashingIndex::Entry entry{.seed = rng_.Next(),
                                 .layers = static_cast<uint32_t>(1 + rng_.Below(3)),
                                 .layer_bytes = 1 + rng_.Below(60'000),
                                 .extents = {}};
      const TestImage image = entry.image();
      const uint64_t number = next_number_++;
      const auto extents = store_->Write(number, image.shape, image.spans());
      if (!extents.ok()) return;
      entry.extents = *extents;
      index_.Put(number, entry);
    } else if (action < 8 && !index_.now().empty()) {
      auto victim = index_.now().begin();
      std::advance(victim, static_cast<ptrdiff_t>(rng_.Below(index_.now().size())));
      const uint64_t number = victim->first;
      index_.Remove(number);
      store_->Free(number);
    } else if (action == 8) {
      store_->Reclaim().IgnoreError();
    } else if (!files_->power_is_cut()) {
      index_.Sync();
    }
  }
  void CheckAll() {
    for (const auto& [number, entry] : index_.now()) {
      const TestImage image = entry.image();
      EXPECT_OK(ReadAndCompare(store_.get(), number, image, image.shape.All()));
      ++checked_;
    }
  }

  Rng rng_;
  const bool steps_fail_;
  const std::shared_ptr<Power> power_ = std::make_shared<Power>();
  const std::shared_ptr<FaultyFileSystem> files_;
  CrashingIndex index_;
  std::unique_ptr<ExtentSlabStore> store_;
  uint64_t next_number_ = 1;
  uint64_t checked_ = 0;
};

// Returns how many images were compared.
uint64_t RunLives(uint64_t seeds, bool steps_fail) {
  uint64_t checked = 0;
  for (uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Lives run(seed, steps_fail);
    for (int life = 0; life < 8 && !::testing::Test::HasFailure(); ++life) run.Live();
    checked += run.checked();
    if (::testing::Test::HasFailure())
      std::printf("seed %llu fails\n", static_cast<unsigned long long>(seed));
  }
  std::printf("%llu seeds of 8 power cuts, %llu images compared\n", static_cast<unsigned long long>(seeds),
              static_cast<unsigned long long>(checked));
  return checked;
}

TEST(ExtentCrashTest, WhatTheIndexNamesSurvivesEveryPowerCut) {
  EXPECT_GT(RunLives(200, /*steps_fail=*/false), 1600u) << "too few images to prove anything";
}

TEST(ExtentCrashTest, AndStepsThatFailedBeforeTheCut) {
  EXPECT_GT(RunLives(100, /*steps_fail=*/true), 800u) << "too few images to prove anything";
}

// One write, cut at each of its steps: before it returned OK it may be lost, afterwards it may not.
TEST(ExtentCrashTest, AWriteCutAtAnyOfItsStepsIsWholeOnceItReturned) {
  const TestImage before = TestImage::Of(1, 3, 30'000);
  const TestImage image = TestImage::Of(2, 3, 50'000);
  bool finished = false;
  for (uint64_t steps = 0; !finished; ++steps) {
    ASSERT_LT(steps, 200u);
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE("cut after " + std::to_string(steps) + " steps, seed " + std::to_string(seed));
      const auto files = std::make_shared<FaultyFileSystem>(seed);
      const auto open = [&] {
        auto store = ExtentSlabStore::Open(files,
                                           {.folder = "/slabs",
                                            .max_bytes = kMiB,
                                            .file_bytes = 128 << 10,
                                            .grow_bytes = 4096,
                                            .piece_bytes = 4096},
                                           [] { return absl::OkStatus(); });
        EXPECT_OK(store);
        return *std::move(store);
      };
      auto store = open();
      ASSERT_OK(store->Load({}, false));
      ASSERT_OK_AND_ASSIGN(const SlabExtents first, store->Write(1, before.shape, before.spans()));
      files->CutPowerAfter(steps);
      const auto second = store->Write(2, image.shape, image.spans());
      finished = second.ok();
      store.reset();
      Rng rng(seed * 1000 + steps);
      files->Crash(&rng);
      store = open();
      std::vector<LiveSlabs> live = {{1, first}};
      if (second.ok()) live.push_back({2, *second});
      ASSERT_OK_AND_ASSIGN(const std::vector<uint64_t> wrong, store->Load(live, false));
      EXPECT_TRUE(wrong.empty());
      EXPECT_OK(ReadAndCompare(store.get(), 1, before, before.shape.All()));
      if (second.ok()) {
        EXPECT_OK(ReadAndCompare(store.get(), 2, image, image.shape.All()));
      }
    }
  }
}

}  // namespace
}  // namespace epic::kv_store
