// The objects of the transport bench, the same in both of its processes: one for each size, of one layer,
// made by its size. Header only; one thread.
#ifndef EPIC_COMMON_TRANSPORT_BENCH_TESTING_BENCH_OBJECTS_H_
#define EPIC_COMMON_TRANSPORT_BENCH_TESTING_BENCH_OBJECTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "common/base/check.h"
#include "common/transport/testing/test_source.h"

namespace epic::transport {

// One layer of so many bytes: heads of at most 512 KiB. REQUIRES: 4 KiB times a power of two.
inline KvLayout BenchLayout(uint64_t bytes) {
  KvLayout layout{.layers = 1, .kv_heads = 1, .head_dim = 64, .tokens = 4096, .dtype = KvDtype::kBf16};
  while (layout.LayerBytes() < bytes) layout.kv_heads *= 2;
  while (layout.LayerBytes() > bytes) layout.tokens /= 2;
  EPIC_CHECK(layout.LayerBytes() == bytes);
  return layout;
}

struct BenchObjects {
  static constexpr uint64_t kIncarnation = 1;

  explicit BenchObjects(const std::vector<uint64_t>& sizes) {
    for (const uint64_t bytes : sizes) regions[bytes] = source.Put(bytes, BenchLayout(bytes));
  }
  TestSource source{kIncarnation};
  std::map<uint64_t, std::shared_ptr<const Region>> regions;  // by size
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_BENCH_TESTING_BENCH_OBJECTS_H_
