#include "services/kv_store/extents/free_map.h"

#include <algorithm>

#include "common/base/check.h"

namespace epic::kv_store {

void FreeMap::Insert(uint64_t begin, uint64_t pages) {
  by_begin_[begin] = pages;
  by_size_.insert({pages, begin});
  pages_ += pages;
}

void FreeMap::Erase(ByBegin::iterator run) {
  by_size_.erase({run->second, run->first});
  pages_ -= run->second;
  by_begin_.erase(run);
}

void FreeMap::Add(const PageRun& run) {
  EPIC_CHECK(run.pages > 0);
  uint64_t begin = run.begin;
  uint64_t end = run.end();
  auto next = by_begin_.lower_bound(begin);
  if (next != by_begin_.begin()) {
    const auto before = std::prev(next);
    const uint64_t before_end = before->first + before->second;
    EPIC_CHECK(before_end <= begin);
    if (before_end == begin) {
      begin = before->first;
      Erase(before);
    }
  }
  if (next != by_begin_.end()) {
    EPIC_CHECK(end <= next->first);
    if (end == next->first) {
      end += next->second;
      Erase(next);
    }
  }
  Insert(begin, end - begin);
}

bool FreeMap::Take(const PageRun& run) {
  EPIC_CHECK(run.pages > 0);
  auto found = by_begin_.upper_bound(run.begin);
  if (found == by_begin_.begin()) return false;
  --found;
  const PageRun whole{found->first, found->second};
  if (run.pages > whole.pages || run.begin - whole.begin > whole.pages - run.pages) return false;
  Erase(found);
  if (whole.begin < run.begin) Insert(whole.begin, run.begin - whole.begin);
  if (run.end() < whole.end()) Insert(run.end(), whole.end() - run.end());
  return true;
}

void FreeMap::Subtract(const PageRun& run) {
  auto found = by_begin_.upper_bound(run.begin);
  if (found != by_begin_.begin()) --found;
  while (found != by_begin_.end() && found->first < run.end()) {
    const PageRun whole{found->first, found->second};
    const auto next = std::next(found);
    if (whole.end() > run.begin) {
      Erase(found);
      if (whole.begin < run.begin) Insert(whole.begin, run.begin - whole.begin);
      if (run.end() < whole.end()) Insert(run.end(), whole.end() - run.end());
    }
    found = next;
  }
}

std::vector<PageRun> FreeMap::Within(const PageRun& run) const {
  std::vector<PageRun> parts;
  auto found = by_begin_.upper_bound(run.begin);
  if (found != by_begin_.begin()) --found;
  for (; found != by_begin_.end() && found->first < run.end(); ++found) {
    const uint64_t begin = std::max(found->first, run.begin);
    const uint64_t end = std::min(found->first + found->second, run.end());
    if (begin < end) parts.push_back({begin, end - begin});
  }
  return parts;
}

std::vector<PageRun> FreeMap::Allocate(uint64_t pages, size_t max_runs) {
  EPIC_CHECK(pages > 0 && max_runs > 0);
  if (pages > pages_) return {};
  std::vector<PageRun> taken;
  uint64_t missing = pages;
  while (missing > 0 && taken.size() < max_runs) {
    const auto fits = by_size_.lower_bound({missing, 0});
    const auto [size, begin] = fits != by_size_.end() ? *fits : *by_size_.rbegin();
    taken.push_back({begin, std::min(size, missing)});
    missing -= taken.back().pages;
    Take(taken.back());
  }
  if (missing == 0) return taken;
  for (const PageRun& run : taken) Add(run);
  return {};
}

std::vector<PageRun> FreeMap::runs() const {
  std::vector<PageRun> runs;
  for (const auto& [begin, pages] : by_begin_) runs.push_back({begin, pages});
  return runs;
}

}  // namespace epic::kv_store
