// How often a key was asked for lately, in two bytes a key: a count-min sketch of 4-bit counters that are
// halved as time goes on (TinyLFU, Einziger et al.). Says more than is true now and then, and never less
// but for the halving and for counts above 15. No locks: one thread at a time.
//
// For admission to disk: what is asked for less often than what it would push out is not written.
#ifndef EPIC_SERVICES_KV_STORE_CORE_EVICTION_FREQUENCY_SKETCH_H_
#define EPIC_SERVICES_KV_STORE_CORE_EVICTION_FREQUENCY_SKETCH_H_

#include <array>
#include <cstdint>
#include <vector>

namespace epic::kv_store {

class FrequencySketch {
 public:
  // For about `keys` keys that matter at a time. REQUIRES: 1 <= keys <= 2^30.
  explicit FrequencySketch(uint64_t keys);

  void Add(uint64_t fingerprint);
  // 0..15.
  uint32_t Estimate(uint64_t fingerprint) const;
  // Counts that are added between two halvings.
  uint64_t period() const { return kPeriodPerKey * width_; }
  uint64_t memory_bytes() const { return sizeof(*this) + counters_.capacity(); }

 private:
  static constexpr int kRows = 4;
  static constexpr uint64_t kPeriodPerKey = 10;

  std::array<uint64_t, kRows> PlacesOf(uint64_t fingerprint) const;
  uint32_t At(uint64_t place) const { return counters_[place / 2] >> (place % 2 * 4) & 15; }
  void Halve();

  const uint64_t width_;           // counters of a row, a power of two
  std::vector<uint8_t> counters_;  // [kRows][width_], two to a byte
  uint64_t added_ = 0;             // since the last halving
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_EVICTION_FREQUENCY_SKETCH_H_
