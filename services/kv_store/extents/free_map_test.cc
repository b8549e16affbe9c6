// FreeMap against the simplest thing that could be right: a flag per page. Prints the seed that fails.
#include "services/kv_store/extents/free_map.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace epic::kv_store {
namespace {

// One flag per page; runs, largest run and the choice of a run by looking at all of them.
class FlagMap {
 public:
  explicit FlagMap(uint64_t pages) : free_(pages, false) {}
  bool All(const PageRun& run, bool value) const {
    for (uint64_t page = run.begin; page < run.end(); ++page) {
      if (free_[page] != value) return false;
    }
    return true;
  }
  void Set(const PageRun& run, bool value) {
    for (uint64_t page = run.begin; page < run.end(); ++page) free_[page] = value;
  }
  std::vector<PageRun> runs() const {
    std::vector<PageRun> runs;
    for (uint64_t page = 0; page < free_.size(); ++page) {
      if (!free_[page]) continue;
      if (runs.empty() || runs.back().end() != page) runs.push_back({page, 0});
      ++runs.back().pages;
    }
    return runs;
  }
  // The smallest run that holds `pages`; pages == 0: none does.
  PageRun BestFit(uint64_t pages) const {
    PageRun best;
    for (const PageRun& run : runs()) {
      if (run.pages >= pages && (best.pages == 0 || run.pages < best.pages)) best = run;
    }
    return best;
  }

 private:
  std::vector<bool> free_;
};

TEST(FreeMapTest, RunsThatTouchBecomeOne) {
  FreeMap map;
  map.Add({10, 5});
  map.Add({20, 5});
  EXPECT_EQ(map.runs(), (std::vector<PageRun>{{10, 5}, {20, 5}}));
  map.Add({15, 5});
  EXPECT_EQ(map.runs(), (std::vector<PageRun>{{10, 15}}));
  EXPECT_EQ(map.largest_run(), 15u);
  EXPECT_TRUE(map.Take({12, 2}));
  EXPECT_FALSE(map.Take({13, 2})) << "its first page is taken";
  EXPECT_FALSE(map.Take({24, 2})) << "its last page lies outside";
  EXPECT_EQ(map.runs(), (std::vector<PageRun>{{10, 2}, {14, 11}}));
}

TEST(FreeMapTest, ThePartsOfARunThatAreInTheSetAreCutAtItsEnds) {
  FreeMap map;
  map.Add({10, 5});
  map.Add({20, 5});
  map.Add({30, 5});
  EXPECT_EQ(map.Within({12, 20}), (std::vector<PageRun>{{12, 3}, {20, 5}, {30, 2}}));
  EXPECT_EQ(map.Within({11, 2}), (std::vector<PageRun>{{11, 2}}));
  EXPECT_TRUE(map.Within({15, 5}).empty());
  EXPECT_TRUE(map.Within({0, 10}).empty());
}

TEST(FreeMapTest, TheSmallestRunThatFitsIsUsedAndElseTheLargestFirst) {
  FreeMap map;
  map.Add({0, 8});
  map.Add({100, 4});
  map.Add({200, 6});
  EXPECT_EQ(map.Allocate(4, 8), (std::vector<PageRun>{{100, 4}}));
  EXPECT_EQ(map.Allocate(5, 8), (std::vector<PageRun>{{200, 5}}));
  EXPECT_TRUE(map.Allocate(9, 1).empty()) << "not in one run";
  EXPECT_EQ(map.pages(), 9u);
  EXPECT_EQ(map.Allocate(9, 2), (std::vector<PageRun>{{0, 8}, {205, 1}}));
  EXPECT_TRUE(map.Allocate(1, 8).empty());
}

TEST(FreeMapTest, NumbersNearTheEndOfTheirRangeDoNotWrap) {
  FreeMap map;
  const uint64_t last = ~uint64_t{0} - 100;
  map.Add({last, 50});
  EXPECT_FALSE(map.Take({last + 49, 2}));
  EXPECT_FALSE(map.Take({last, ~uint64_t{0}}));
  EXPECT_TRUE(map.Take({last + 49, 1}));
}

TEST(FreeMapTest, AgreesWithAFlagPerPage) {
  constexpr uint64_t kPages = 300;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    FreeMap map;
    FlagMap flags(kPages);
    for (int step = 0; step < 300; ++step) {
      const uint64_t begin = rng.Below(kPages);
      const PageRun run{begin, 1 + rng.Below(std::min<uint64_t>(kPages - begin, 40))};
      const uint64_t action = rng.Below(4);
      if (action == 0 && flags.All(run, false)) {
        map.Add(run);
        flags.Set(run, true);
      } else if (action == 1) {
        EXPECT_EQ(map.Take(run), flags.All(run, true));
        if (flags.All(run, true)) flags.Set(run, false);
      } else if (action == 2 && rng.Below(4) == 0) {
        map.Subtract(run);
        flags.Set(run, false);
      } else if (action == 3) {
        const size_t max_runs = 1 + rng.Below(4);
        const PageRun best = flags.BestFit(run.pages);
        const uint64_t before = map.pages();
        const std::vector<PageRun> taken = map.Allocate(run.pages, max_runs);
        if (best.pages > 0) {
          EXPECT_EQ(taken, (std::vector<PageRun>{{best.begin, run.pages}}));
        }
        uint64_t pages = 0;
        for (const PageRun& part : taken) {
          EXPECT_TRUE(flags.All(part, true)) << "pages that were not free, or twice";
          flags.Set(part, false);
          pages += part.pages;
        }
        EXPECT_LE(taken.size(), max_runs);
        EXPECT_EQ(before - map.pages(), pages);
        if (!taken.empty()) {
          EXPECT_EQ(pages, run.pages);
        }
      }
      const std::vector<PageRun> runs = flags.runs();
      ASSERT_EQ(map.runs(), runs) << "step " << step;
      uint64_t largest = 0;
      for (const PageRun& free : runs) largest = std::max(largest, free.pages);
      ASSERT_EQ(map.largest_run(), largest);
    }
  }
}

}  // namespace
}  // namespace epic::kv_store
