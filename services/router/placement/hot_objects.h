// Which objects are pulled from stores so much that they should lie on more of them: a bounded table of
// decaying rates. A decision only: who copies, and where to, is repair's. One thread at a time.
//
// A bucket of eight for each hash; a new object takes the place of the coldest one and inherits its rate, so
// that a rate is never too low by more than the coldest of its bucket, and a rising object is not thrown out.
#ifndef EPIC_SERVICES_ROUTER_PLACEMENT_HOT_OBJECTS_H_
#define EPIC_SERVICES_ROUTER_PLACEMENT_HOT_OBJECTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "services/router/placement/place_types.h"

namespace epic::router {

class HotObjects {
 public:
  struct Hot {
    PlaceKey key;
    double bytes_per_s = 0;
    double inherited_per_s = 0;  // of it, at most, those of others
  };

  // REQUIRES: buckets is a power of two.
  explicit HotObjects(size_t buckets = 512, int64_t half_life_ns = 10'000'000'000);

  void Count(const PlaceKey& key, uint64_t bytes, int64_t now_ns);
  // Those that are pulled at this rate or more, for certain; hottest first.
  std::vector<Hot> Above(double bytes_per_s, int64_t now_ns) const;

 private:
  static constexpr size_t kWays = 8;
  struct Counter {
    PlaceKey key;
    double bytes = 0;  // decayed, as of `last_ns`
    double inherited = 0;
    int64_t last_ns = 0;
  };
  double DecayOf(const Counter& counter, int64_t now_ns) const;

  const int64_t half_life_ns_;
  std::vector<std::array<Counter, kWays>> buckets_;
};

}  // namespace epic::router

#endif  // EPIC_SERVICES_ROUTER_PLACEMENT_HOT_OBJECTS_H_
