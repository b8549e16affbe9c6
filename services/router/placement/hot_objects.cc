#include "services/router/placement/hot_objects.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/check.h"

namespace epic::router {

HotObjects::HotObjects(size_t buckets, int64_t half_life_ns)
    : half_life_ns_(half_life_ns), buckets_(buckets) {
  EPIC_CHECK(buckets > 0 && (buckets & (buckets - 1)) == 0 && half_life_ns > 0);
}

double HotObjects::DecayOf(const Counter& counter, int64_t now_ns) const {
  const double passed = static_cast<double>(std::max<int64_t>(0, now_ns - counter.last_ns));
  return std::exp2(-passed / static_cast<double>(half_life_ns_));
}

void HotObjects::Count(const PlaceKey& key, uint64_t bytes, int64_t now_ns) {
  auto& bucket = buckets_[key.low & (buckets_.size() - 1)];
  Counter* coldest = &bucket[0];
  double least = 0;
  for (Counter& counter : bucket) {
    if (counter.key == key) {
      const double decay = DecayOf(counter, now_ns);
      counter.bytes = counter.bytes * decay + static_cast<double>(bytes);
      counter.inherited *= decay;
      counter.last_ns = std::max(counter.last_ns, now_ns);
      return;
    }
    const double value = counter.bytes * DecayOf(counter, now_ns);
    if (&counter == &bucket[0] || value < least) {
      coldest = &counter;
      least = value;
    }
  }
  *coldest = {.key = key, .bytes = least + static_cast<double>(bytes), .inherited = least, .last_ns = now_ns};
}

std::vector<HotObjects::Hot> HotObjects::Above(double bytes_per_s, int64_t now_ns) const {
  // At a steady rate r the decayed sum is r * half life / ln 2.
  const double per_s = std::numbers::ln2 / (static_cast<double>(half_life_ns_) * 1e-9);
  std::vector<Hot> hot;
  for (const auto& bucket : buckets_) {
    for (const Counter& counter : bucket) {
      const double scale = DecayOf(counter, now_ns) * per_s;
      const Hot each{counter.key, counter.bytes * scale, counter.inherited * scale};
      if (each.bytes_per_s - each.inherited_per_s >= bytes_per_s) hot.push_back(each);
    }
  }
  std::sort(hot.begin(), hot.end(), [](const Hot& a, const Hot& b) { return a.bytes_per_s > b.bytes_per_s; });
  return hot;
}

}  // namespace epic::router
