// ArenaAllocator against a map with one flag per granule, in random orders that replay by their seed; and how
// much of an arena is in use under the load of a store that evicts its oldest objects.
#include "services/kv_store/core/arena_allocator.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace epic::kv_store {
namespace {

using Extent = ArenaAllocator::Extent;
using Extents = std::vector<Extent>;
constexpr uint64_t kPage = ArenaAllocator::kGranuleBytes;

Extents One(uint64_t page, uint64_t pages, uint64_t pieces = 1) {
  return {{.offset = page * kPage, .bytes = pages * kPage, .pieces = pieces}};
}

TEST(ArenaAllocatorTest, RoundsToGranulesAndNeverGivesMoreThanItHas) {
  ArenaAllocator allocator(3 * kPage + 4095);
  EXPECT_EQ(allocator.numbers().capacity_bytes, 3 * kPage);
  EXPECT_EQ(allocator.Allocate(1), One(0, 1));
  EXPECT_EQ(allocator.Allocate(kPage + 1), One(1, 2));
  EXPECT_EQ(allocator.numbers().free_bytes, 0u);
  EXPECT_EQ(allocator.numbers().largest_hole_bytes, 0u);
  EXPECT_EQ(allocator.Allocate(1), Extents());
  allocator.Free(One(1, 2));
  EXPECT_EQ(allocator.Allocate(2 * kPage + 1), Extents());
  EXPECT_EQ(allocator.Allocate(2 * kPage), One(1, 2));
}

TEST(ArenaAllocatorTest, SizesNearTheLargestNumberAreRefused) {
  ArenaAllocator allocator(4 * kPage);
  for (const uint64_t huge : {UINT64_MAX, UINT64_MAX - kPage, uint64_t{1} << 63, 4 * kPage + 1}) {
    EXPECT_EQ(allocator.Allocate(huge), Extents());
    EXPECT_EQ(allocator.Allocate(1, huge), Extents());
    EXPECT_EQ(allocator.Allocate(huge, huge), Extents());
  }
  EXPECT_EQ(ArenaAllocator(0).Allocate(1), Extents());
  EXPECT_EQ(ArenaAllocator(kPage - 1).Allocate(1), Extents());
}

TEST(ArenaAllocatorTest, TakesTheSmallestHoleThatFitsAndTheLowestOfEquals) {
  ArenaAllocator allocator(12 * kPage);
  std::vector<Extents> regions;
  for (const uint64_t pages : {3, 1, 1, 1, 2, 1, 1, 1}) regions.push_back(allocator.Allocate(pages * kPage));
  // Holes of 3, 1, 2 and 1 pages, then one of 1 at the end.
  for (const int freed : {0, 2, 4, 6}) allocator.Free(regions[freed]);
  EXPECT_EQ(allocator.Allocate(2 * kPage), regions[4]);
  EXPECT_EQ(allocator.Allocate(kPage), regions[2]);
  EXPECT_EQ(allocator.Allocate(kPage), regions[6]);
  EXPECT_EQ(allocator.Allocate(kPage), One(11, 1));
  EXPECT_EQ(allocator.Allocate(kPage), One(0, 1));
}

TEST(ArenaAllocatorTest, PiecesArePackedInOneExtentOrSpreadOverTheLargestHoles) {
  ArenaAllocator allocator(12 * kPage);
  EXPECT_EQ(allocator.Allocate(100, 50), One(0, 2, 50));
  const Extents middle = allocator.Allocate(4 * kPage);
  EXPECT_EQ(middle, One(2, 4));
  EXPECT_EQ(allocator.Allocate(kPage), One(6, 1));
  allocator.Free(middle);
  // Holes of 4 and 5 pages. Four pieces of a page and a half: three in the larger, one in the other.
  const Extents spread = allocator.Allocate(kPage * 3 / 2, 4);
  EXPECT_EQ(spread, (Extents{{.offset = 7 * kPage, .bytes = 5 * kPage, .pieces = 3},
                             {.offset = 2 * kPage, .bytes = 2 * kPage, .pieces = 1}}));
  EXPECT_EQ(allocator.Allocate(kPage * 3 / 2, 2), Extents()) << "there are 2 pages, for one piece";
  allocator.Free(spread);
  EXPECT_EQ(allocator.numbers().free_bytes, 9 * kPage);
  EXPECT_EQ(allocator.numbers().holes, 2u);
}

TEST(ArenaAllocatorDeathTest, FreeingTwiceIsOurMistake) {
  ArenaAllocator allocator(4 * kPage);
  const Extents region = allocator.Allocate(2 * kPage);
  const Extents other = allocator.Allocate(kPage);
  EXPECT_DEATH(allocator.Free(One(3, 2)), "check failed") << "past the end";
  allocator.Free(region);
  EXPECT_DEATH(allocator.Free(region), "check failed");
  EXPECT_DEATH(allocator.Free(One(1, 1)), "check failed");
}

// The slow, obvious allocator: one flag per granule.
class PageMap {
 public:
  explicit PageMap(uint64_t pages) : taken_(pages, false) {}

  std::vector<std::pair<uint64_t, uint64_t>> Holes() const {
    std::vector<std::pair<uint64_t, uint64_t>> holes;
    for (uint64_t page = 0; page < taken_.size(); ++page) {
      if (taken_[page]) continue;
      if (holes.empty() || holes.back().first + holes.back().second != page) holes.emplace_back(page, 0);
      ++holes.back().second;
    }
    return holes;
  }
  // How many extents `pieces` need at least; 0: they do not fit, or in too many.
  uint64_t FewestExtents(uint64_t piece_bytes, uint64_t pieces) const {
    std::vector<uint64_t> room;
    for (const auto& [begin, pages] : Holes()) room.push_back(pages * kPage / piece_bytes);
    std::sort(room.begin(), room.end(), std::greater<>());
    uint64_t held = 0;
    for (size_t extents = 0; extents < std::min(room.size(), ArenaAllocator::kMaxExtents); ++extents) {
      held += room[extents];
      if (held >= pieces) return extents + 1;
    }
    return 0;
  }
  // Pages of the smallest hole that has them all.
  uint64_t SmallestHole(uint64_t pages) const {
    uint64_t smallest = UINT64_MAX;
    for (const auto& [begin, size] : Holes()) {
      if (size >= pages) smallest = std::min(smallest, size);
    }
    return smallest;
  }
  uint64_t HoleAt(uint64_t page) const {
    for (const auto& [begin, size] : Holes()) {
      if (begin == page) return size;
    }
    return 0;
  }
  void Set(const Extent& extent, bool taken) {
    for (uint64_t page = extent.offset / kPage; page < (extent.offset + extent.bytes) / kPage; ++page) {
      ASSERT_LT(page, taken_.size());
      ASSERT_NE(taken_[page], taken) << "page " << page;
      taken_[page] = taken;
    }
  }

 private:
  std::vector<bool> taken_;
};

void CompareNumbers(const ArenaAllocator& allocator, const PageMap& model, uint64_t extents) {
  uint64_t free_pages = 0;
  uint64_t largest = 0;
  const auto holes = model.Holes();
  for (const auto& [begin, size] : holes) {
    free_pages += size;
    largest = std::max(largest, size);
  }
  const ArenaAllocator::Numbers numbers = allocator.numbers();
  EXPECT_EQ(numbers.free_bytes, free_pages * kPage);
  EXPECT_EQ(numbers.largest_hole_bytes, largest * kPage);
  EXPECT_EQ(numbers.holes, holes.size());
  EXPECT_EQ(numbers.extents, extents);
}

// One allocation, compared with what the map says; its extents are marked there.
Extents AllocateAndCompare(uint64_t piece_bytes, uint64_t pieces, ArenaAllocator* allocator, PageMap* model) {
  const uint64_t fewest = model->FewestExtents(piece_bytes, pieces);
  const uint64_t whole = ArenaAllocator::Footprint(piece_bytes * pieces) / kPage;
  const uint64_t smallest_hole = model->SmallestHole(whole);
  const Extents extents = allocator->Allocate(piece_bytes, pieces);
  EXPECT_EQ(extents.size(), fewest) << pieces << " pieces of " << piece_bytes;
  if (extents.size() == 1) {
    EXPECT_EQ(model->HoleAt(extents[0].offset / kPage), smallest_hole);
  }
  uint64_t placed = 0;
  for (const Extent& extent : extents) {
    EXPECT_EQ(extent.offset % kPage, 0u);
    EXPECT_EQ(extent.bytes, ArenaAllocator::Footprint(piece_bytes * extent.pieces));
    model->Set(extent, true);
    placed += extent.pieces;
  }
  EXPECT_EQ(placed, extents.empty() ? 0 : pieces);
  return extents;
}

void RunAgainstTheMap(uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Rng rng(seed);
  const uint64_t pages = 1 + rng.Below(200);
  const uint64_t largest = 1 + rng.Below(pages + 4);
  const uint64_t frees_of_10 = 3 + rng.Below(4);
  ArenaAllocator allocator(pages * kPage);
  PageMap model(pages);
  std::vector<Extents> regions;
  uint64_t extents = 0;
  for (int step = 0; step < 400; ++step) {
    if (!regions.empty() && rng.Below(10) < frees_of_10) {
      std::swap(regions[rng.Below(regions.size())], regions.back());
      allocator.Free(regions.back());
      extents -= regions.back().size();
      for (const Extent& extent : regions.back()) model.Set(extent, false);
      regions.pop_back();
    } else {
      const uint64_t bytes = (1 + rng.Below(largest)) * kPage - rng.Below(kPage);
      const uint64_t pieces = rng.Below(2) == 0 ? 1 : 1 + rng.Below(8);
      Extents region = AllocateAndCompare(1 + bytes / pieces, pieces, &allocator, &model);
      extents += region.size();
      if (!region.empty()) regions.push_back(std::move(region));
    }
    CompareNumbers(allocator, model, extents);
    if (testing::Test::HasFailure()) FAIL() << "at step " << step;
  }
  for (const Extents& region : regions) allocator.Free(region);
  const ArenaAllocator::Numbers empty = allocator.numbers();
  EXPECT_EQ(empty.free_bytes, empty.capacity_bytes);
  EXPECT_EQ(empty.largest_hole_bytes, empty.capacity_bytes);
  EXPECT_EQ(empty.holes, 1u);
}

TEST(ArenaAllocatorTest, DoesWhatAMapOfPagesDoes) {
  constexpr uint64_t kFirstSeed = 1;
  constexpr uint64_t kSeeds = 500;
  std::printf("seeds %llu..%llu\n", static_cast<unsigned long long>(kFirstSeed),
              static_cast<unsigned long long>(kFirstSeed + kSeeds - 1));
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kSeeds; ++seed) {
    RunAgainstTheMap(seed);
    if (HasFailure()) return;
  }
}

// A store's host tier: objects come with sizes spread evenly over their logarithm, and the oldest go until
// the new one fits. Of 100 objects that are the oldest, `reused` were just used and go to the young end
// instead, so that evictions leave gaps.
struct Load {
  const char* name;
  uint64_t smallest_bytes;
  uint64_t largest_bytes;
  uint64_t reused;
};

struct Fragmentation {
  double in_use = 0;         // share of the arena in use when a new object just got its place: the mean,
  double lowest_in_use = 1;  // and the least
  double largest_hole = 0;   // of the free bytes, mean
  double extents = 0;        // of an object, mean
};

Fragmentation RunStore(const Load& load, uint64_t layers, uint64_t seed) {
  constexpr uint64_t kCapacity = uint64_t{1} << 30;
  constexpr int kObjects = 20'000;
  Rng rng(seed);
  ArenaAllocator allocator(kCapacity);
  std::deque<Extents> oldest_first;
  Fragmentation result;
  int measured = 0;
  const double spread = static_cast<double>(load.largest_bytes) / static_cast<double>(load.smallest_bytes);
  for (int object = 0; object < kObjects; ++object) {
    const double bytes = static_cast<double>(load.smallest_bytes) * std::pow(spread, rng.Uniform());
    const auto layer_bytes = static_cast<uint64_t>(bytes) / layers / 64 * 64;
    Extents region = allocator.Allocate(layer_bytes, layers);
    const bool full = region.empty();
    while (region.empty()) {
      Extents victim = std::move(oldest_first.front());
      oldest_first.pop_front();
      if (rng.Below(100) < load.reused) {
        oldest_first.push_back(std::move(victim));
        continue;
      }
      allocator.Free(victim);
      region = allocator.Allocate(layer_bytes, layers);
    }
    oldest_first.push_back(region);
    if (!full || object < kObjects / 4) continue;
    const ArenaAllocator::Numbers numbers = allocator.numbers();
    const double in_use = 1 - static_cast<double>(numbers.free_bytes) / kCapacity;
    result.in_use += in_use;
    result.lowest_in_use = std::min(result.lowest_in_use, in_use);
    result.largest_hole += static_cast<double>(numbers.largest_hole_bytes) /
                           static_cast<double>(std::max<uint64_t>(numbers.free_bytes, 1));
    result.extents += static_cast<double>(region.size());
    ++measured;
  }
  result.in_use /= measured;
  result.largest_hole /= measured;
  result.extents /= measured;
  return result;
}

TEST(ArenaAllocatorTest, AnArenaOfLayeredObjectsStaysInUse) {
  constexpr uint64_t kKib = 1024;
  const Load loads[] = {{"64 KiB to 64 MiB", 64 * kKib, 64 * 1024 * kKib, 0},
                        {"64 KiB to 64 MiB, half used again", 64 * kKib, 64 * 1024 * kKib, 50},
                        {"1 MiB to 16 MiB", 1024 * kKib, 16 * 1024 * kKib, 0},
                        {"1 MiB to 16 MiB, half used again", 1024 * kKib, 16 * 1024 * kKib, 50},
                        {"4 KiB to 1 MiB, half used again", 4 * kKib, 1024 * kKib, 50}};
  for (const Load& load : loads) {
    for (const uint64_t layers : {1, 30}) {
      const Fragmentation result = RunStore(load, layers, 42);
      std::printf(
          "%-34s %2llu pieces: in use %.1f %% (lowest %.1f %%), largest hole %.0f %% of what is free, %.2f "
          "extents\n",
          load.name, static_cast<unsigned long long>(layers), 100 * result.in_use, 100 * result.lowest_in_use,
          100 * result.largest_hole, result.extents);
      EXPECT_GT(result.in_use, layers == 1 ? 0.7 : 0.92) << load.name;
    }
  }
}

}  // namespace
}  // namespace epic::kv_store
