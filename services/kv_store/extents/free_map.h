// Which pages are free: a set of runs with the one that fits best found in logarithmic time. Runs that touch
// become one. Pure logic, numbers only. One thread at a time: the owner (extent_slab_store.h) has the lock.
#ifndef EPIC_SERVICES_KV_STORE_EXTENTS_FREE_MAP_H_
#define EPIC_SERVICES_KV_STORE_EXTENTS_FREE_MAP_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace epic::kv_store {

struct PageRun {
  uint64_t begin = 0;
  uint64_t pages = 0;
  uint64_t end() const { return begin + pages; }
  bool operator==(const PageRun&) const = default;
};

class FreeMap {
 public:
  // REQUIRES of all runs that are handed in: pages > 0.

  // REQUIRES: no page of the run is in the set.
  void Add(const PageRun& run);
  // Takes the run out if all of it is in the set; else changes nothing and returns false.
  bool Take(const PageRun& run);
  // Takes out those pages of the run that are in the set.
  void Subtract(const PageRun& run);
  // Those pages of the run that are in the set, in order of place.
  std::vector<PageRun> Within(const PageRun& run) const;
  // Takes out `pages` pages: the smallest run that holds them (of equal ones the first), else several, the
  // largest first. Empty, and nothing changed, when there are too few or it would take more than `max_runs`.
  // REQUIRES: pages > 0, max_runs > 0.
  std::vector<PageRun> Allocate(uint64_t pages, size_t max_runs);

  uint64_t pages() const { return pages_; }
  uint64_t largest_run() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }
  // In order of place.
  std::vector<PageRun> runs() const;

 private:
  using ByBegin = std::map<uint64_t, uint64_t>;  // begin → pages
  void Insert(uint64_t begin, uint64_t pages);
  void Erase(ByBegin::iterator run);

  ByBegin by_begin_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // {pages, begin}
  uint64_t pages_ = 0;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_EXTENTS_FREE_MAP_H_
