// A cache of the simulation of scale: so many contexts, the least recently used goes. One thread at a time.
// Benches and tests only.
#ifndef EPIC_SERVICES_ROUTER_PLACEMENT_BENCH_SIM_CACHE_H_
#define EPIC_SERVICES_ROUTER_PLACEMENT_BENCH_SIM_CACHE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/router/placement/bench/sim_trace.h"

namespace epic::router {

class SimCache {
 public:
  explicit SimCache(uint32_t capacity) : lines_(capacity + 1) { lines_[0] = {}; }

  // When the context is, or was, there; and it is the last to go now. nullptr: a miss.
  double* Use(ContextNumber context) {
    const auto found = where_.find(context);
    if (found == where_.end()) return nullptr;
    Unlink(found->second);
    LinkFirst(found->second);
    return &lines_[found->second].ready_s;
  }
  bool Has(ContextNumber context) const { return where_.contains(context); }
  // Puts in what is not there. Returns what had to go.
  std::optional<ContextNumber> Add(ContextNumber context, double ready_s) {
    std::optional<ContextNumber> gone;
    uint32_t line = static_cast<uint32_t>(where_.size()) + 1;
    if (line == lines_.size()) {
      line = lines_[0].before;
      gone = lines_[line].context;
      where_.erase(*gone);
      Unlink(line);
    }
    lines_[line].context = context;
    lines_[line].ready_s = ready_s;
    LinkFirst(line);
    where_[context] = line;
    return gone;
  }
  template <typename Visit>
  void Each(Visit visit) const {
    for (const auto& [context, line] : where_) visit(context);
  }

 private:
  // Line 0 is the ends of the list.
  struct Line {
    ContextNumber context = 0;
    uint32_t before = 0;
    uint32_t after = 0;
    double ready_s = 0;
  };
  void Unlink(uint32_t line) {
    lines_[lines_[line].before].after = lines_[line].after;
    lines_[lines_[line].after].before = lines_[line].before;
  }
  void LinkFirst(uint32_t line) {
    lines_[line].before = 0;
    lines_[line].after = lines_[0].after;
    lines_[lines_[0].after].before = line;
    lines_[0].after = line;
  }

  std::vector<Line> lines_;
  absl::flat_hash_map<ContextNumber, uint32_t> where_;
};

}  // namespace epic::router

#endif  // EPIC_SERVICES_ROUTER_PLACEMENT_BENCH_SIM_CACHE_H_
