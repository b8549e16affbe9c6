#include "kernels/sampling/sampling_cuda.h"

#include <cmath>

#include "kernels/simt/simt.h"

namespace epic {
namespace {

constexpr uint32_t kThreads = 512;
constexpr uint32_t kWarps = kThreads / simt::kWarp;
constexpr uint32_t kBins = 2048;  // digits of 11, 11 and 10 bits
constexpr uint32_t kBinsAThread = kBins / kThreads;
constexpr double kOne = 0x1.0p45;  // the most probable token's weight
constexpr uint32_t kMaxVocab = 1u << 18;
constexpr uint32_t kAllKeys = 0;  // below every key

// Ascends with the logit; equal for equal ones.
EPIC_DEVICE uint32_t KeyOf(float logit) {
  const uint32_t bits = simt::FloatToBits(logit);
  if (bits == 0x80000000u) return bits;
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
EPIC_DEVICE float LogitOf(uint32_t key) {
  return simt::BitsToFloat((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

// A token by its place among those with equal logits, in order of the id.
struct Place {
  uint32_t key;
  uint32_t tie;
  uint64_t above;  // the sum over all higher keys
};

enum class Measure : uint8_t { kCount, kWeight };

// One row of logits. Methods are of all threads together, with the same arguments, unless they say otherwise.
class Row {
 public:
  EPIC_DEVICE Row(const float* logits, uint32_t vocab, float temperature,
                  const simt::SharedArray<uint64_t>& bins, const simt::SharedArray<uint64_t>& sums,
                  const simt::SharedArray<uint32_t>& found)
      : logits_(logits), vocab_(vocab), temperature_(temperature), bins_(bins), sums_(sums), found_(found) {}

  // The token with the highest logit, kNoToken when the row is not fit for sampling.
  EPIC_DEVICE uint32_t Best() {
    if (simt::ThreadIndex() == 0) {
      found_[0] = 0;
      found_[1] = vocab_;
    }
    simt::SyncBlock();
    uint32_t highest = 0;
    bool bad = false;
    for (uint32_t id = simt::ThreadIndex(); id < vocab_; id += kThreads) {
      bad = bad || !(logits_[id] < simt::BitsToFloat(0x7f800000u));
      const uint32_t key = KeyOf(logits_[id]);
      highest = key > highest ? key : highest;
    }
    simt::AtomicMax(&found_[0], highest);
    bad = simt::SyncBlockOr(bad);
    best_key_ = found_[0];
    if (bad || best_key_ <= KeyOf(simt::BitsToFloat(0xff800000u))) return kNoToken;
    for (uint32_t id = simt::ThreadIndex(); id < vocab_; id += kThreads) {
      if (KeyOf(logits_[id]) == best_key_) simt::AtomicMin(&found_[1], id);
    }
    simt::SyncBlock();
    return found_[1];
  }

  // Of one key, by one thread. REQUIRES: Best() came before.
  EPIC_DEVICE double Share(uint32_t key) const {
    return exp((double{LogitOf(key)} - double{LogitOf(best_key_)}) / double{temperature_});
  }
  EPIC_DEVICE uint64_t Weight(uint32_t key) const { return static_cast<uint64_t>(Share(key) * kOne + 0.5); }

  // The weight of all tokens with a key above `key` and a share of at least `min_share`.
  EPIC_DEVICE uint64_t WeightAbove(uint32_t key, double min_share) {
    uint64_t sum = 0;
    for (uint32_t id = simt::ThreadIndex(); id < vocab_; id += kThreads) {
      const uint32_t at = KeyOf(logits_[id]);
      if (at > key && (min_share <= 0 || Share(at) >= min_share)) sum += Weight(at);
    }
    if (simt::ThreadIndex() == 0) sums_[0] = 0;
    simt::SyncBlock();
    simt::AtomicAdd(&sums_[0], sum);
    simt::SyncBlock();
    sum = sums_[0];
    simt::SyncBlock();
    return sum;
  }

  // Where the running sum, from the best token down, first exceeds `target`. REQUIRES: the whole sum does.
  EPIC_DEVICE Place Find(Measure measure, uint64_t target) {
    uint32_t prefix = 0, known = 0;  // `known`: bits of the key that are decided
    uint64_t above = 0;
    for (uint32_t level = 0; level < 3; ++level) {
      const uint32_t shift = level == 0 ? 21 : level == 1 ? 10 : 0;
      Fill(measure, prefix, known, shift);
      const uint64_t before = FindBin(target - above);
      above += before;
      prefix |= found_[0] << shift;
      known = ~0u << shift;
      simt::SyncBlock();
    }
    const uint64_t each = measure == Measure::kCount ? 1 : Weight(prefix);
    return {prefix, static_cast<uint32_t>((target - above) / each), above};
  }

  // The token at a place.
  EPIC_DEVICE uint32_t TokenAt(const Place& place) {
    const uint32_t share = (vocab_ + kThreads - 1) / kThreads;
    const uint32_t begin = simt::ThreadIndex() * share < vocab_ ? simt::ThreadIndex() * share : vocab_;
    const uint32_t end = begin + share < vocab_ ? begin + share : vocab_;
    uint32_t count = 0;
    for (uint32_t id = begin; id < end; ++id) count += KeyOf(logits_[id]) == place.key ? 1 : 0;
    uint64_t seen = SumBefore(count);
    for (uint32_t id = begin; id < end; ++id) {
      if (KeyOf(logits_[id]) != place.key) continue;
      if (seen == place.tie) found_[0] = id;
      ++seen;
    }
    simt::SyncBlock();
    return found_[0];
  }

 private:
  // Sums the tokens that agree with `prefix` in the `known` bits, by their next digit.
  EPIC_DEVICE void Fill(Measure measure, uint32_t prefix, uint32_t known, uint32_t shift) {
    for (uint32_t i = simt::ThreadIndex(); i < kBins; i += kThreads) bins_[i] = 0;
    simt::SyncBlock();
    for (uint32_t id = simt::ThreadIndex(); id < vocab_; id += kThreads) {
      const uint32_t key = KeyOf(logits_[id]);
      if ((key & known) != prefix) continue;
      const uint64_t amount = measure == Measure::kCount ? 1 : Weight(key);
      if (amount > 0) simt::AtomicAdd(&bins_[(key & ~known) >> shift], amount);
    }
    simt::SyncBlock();
  }

  // Leaves in found_[0] the bin where the sum from the highest bin down first exceeds `target`; returns the
  // sum over the bins above it.
  EPIC_DEVICE uint64_t FindBin(uint64_t target) {
    const uint32_t top = kBins - 1 - simt::ThreadIndex() * kBinsAThread;
    uint64_t own = 0;
    for (uint32_t i = 0; i < kBinsAThread; ++i) own += bins_[top - i];
    uint64_t before = SumBefore(own);
    if (before <= target && target < before + own) {
      uint32_t bin = top;
      while (before + bins_[bin] <= target) before += bins_[bin--];
      found_[0] = bin;
      sums_[kWarps] = before;
    }
    simt::SyncBlock();
    return sums_[kWarps];
  }

  // The sum of `value` over all threads before this one.
  EPIC_DEVICE uint64_t SumBefore(uint64_t value) {
    uint64_t sum = value;
    for (uint32_t delta = 1; delta < simt::kWarp; delta *= 2) {
      const uint64_t other = simt::ShuffleUp(sum, delta);
      if (simt::Lane() >= delta) sum += other;
    }
    if (simt::Lane() == simt::kWarp - 1) sums_[simt::WarpIndex()] = sum;
    simt::SyncBlock();
    uint64_t before = sum - value;
    for (uint32_t w = 0; w < simt::WarpIndex(); ++w) before += sums_[w];
    simt::SyncBlock();
    return before;
  }

  const float* logits_;
  const uint32_t vocab_;
  const float temperature_;
  const simt::SharedArray<uint64_t> bins_;   // [kBins]
  const simt::SharedArray<uint64_t> sums_;   // [kWarps + 1]
  const simt::SharedArray<uint32_t> found_;  // [2]
  uint32_t best_key_ = 0;
};

EPIC_DEVICE uint64_t Bounded(double target, uint64_t total) {
  const uint64_t bound = static_cast<uint64_t>(target);
  return bound < total ? bound : total - 1;
}

// How much weight the filters leave: they cut the order of tokens at its end.
EPIC_DEVICE uint64_t FilteredWeight(Row* row, const FilterParams& params, uint32_t vocab) {
  uint32_t last = kAllKeys;
  uint64_t weight;
  if (params.top_k > 0 && params.top_k < vocab) {
    const Place place = row->Find(Measure::kCount, params.top_k - 1);
    weight = row->WeightAbove(place.key, 0) + (place.tie + 1) * row->Weight(place.key);
    last = place.key;
  } else {
    weight = row->WeightAbove(kAllKeys, 0);
  }
  if (params.top_p < 1) {
    // The first place where the sum reaches top_p of the weight.
    const double bound = ceil(double{params.top_p} * static_cast<double>(weight));
    const Place place = row->Find(Measure::kWeight, Bounded(bound > 1 ? bound - 1 : 0, weight));
    weight = place.above + (place.tie + 1) * row->Weight(place.key);
    last = place.key;
  }
  if (params.min_p > 0 && (last == kAllKeys || row->Share(last) < double{params.min_p})) {
    weight = row->WeightAbove(kAllKeys, double{params.min_p});
  }
  return weight;
}

EPIC_KERNEL void EPIC_LAUNCH_BOUNDS(kThreads) Sample(const EPIC_GRID_CONSTANT SampleCudaArgs args) {
  EPIC_SHARED(uint64_t, bins, kBins);
  EPIC_SHARED(uint64_t, sums, kWarps + 1);
  EPIC_SHARED(uint32_t, found, 2);
  const uint32_t index = simt::BlockIndex().x;
  const FilterParams params = args.params[index];
  Row row(args.logits + index * args.stride, args.vocab, params.temperature, bins, sums, found);
  uint32_t token = row.Best();
  if (token != kNoToken && params.temperature > 0) {
    const uint64_t weight = FilteredWeight(&row, params, args.vocab);
    const double target = args.uniforms[index] * static_cast<double>(weight);
    token = row.TokenAt(row.Find(Measure::kWeight, Bounded(target, weight)));
  }
  if (simt::ThreadIndex() == 0) args.out[index] = token;
}

}  // namespace

GpuStatus SampleCuda(const SampleCudaArgs& args, GpuStream stream) {
  if (args.rows == 0) return {};
  if (args.vocab == 0 || args.stride < args.vocab || args.rows > 0x7fffffffu) {
    return {GpuCode::kInvalid, "the vocabulary is empty or longer than a row, or there are too many rows"};
  }
  if (args.vocab > kMaxVocab) return {GpuCode::kUnsupported, "more than 2^18 tokens: sample on the CPU"};
  return simt::Launch(Sample, {static_cast<uint32_t>(args.rows)}, kThreads, 0, stream, args);
}

}  // namespace epic
