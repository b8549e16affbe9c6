#include "kernels/row_selection/row_selection_cuda.h"

#include "kernels/simt/simt.h"

namespace epic {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarps = kThreads / simt::kWarp;
constexpr uint32_t kBins = 256;  // a digit of 8 bits

// Ascends with the value; NaN is highest.
EPIC_DEVICE uint32_t KeyOf(float value) {
  const uint32_t bits = simt::FloatToBits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0xffffffffu;
  if (bits == 0x80000000u) return 0x80000000u;  // zeros are equal
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// Rows with a higher key than `key` are picked, and of those with this key the first `ties`.
struct Threshold {
  uint32_t key;
  uint32_t ties;
};

EPIC_DEVICE bool IsEligible(const SelectRowsArgs& args, uint32_t row) {
  return args.eligible == nullptr || args.eligible[row] != 0;
}

// All threads together: the threshold by one digit after another, from the highest. `bins` is the block's.
EPIC_DEVICE Threshold FindThreshold(const SelectRowsArgs& args, const SelectGroup& group,
                                    const simt::SharedArray<uint32_t>& bins,
                                    const simt::SharedArray<uint32_t>& found) {
  uint32_t prefix = 0, wanted = group.count;
  for (int shift = 24; shift >= 0; shift -= 8) {
    const uint32_t above = shift == 24 ? 0 : ~0u << (shift + 8);
    for (uint32_t i = simt::ThreadIndex(); i < kBins; i += kThreads) bins[i] = 0;
    simt::SyncBlock();
    for (uint32_t row = group.begin + simt::ThreadIndex(); row < group.end; row += kThreads) {
      const uint32_t key = KeyOf(args.values[row]);
      if ((key & above) == prefix && IsEligible(args, row))
        simt::AtomicAdd(&bins[key >> shift & (kBins - 1)], 1u);
    }
    simt::SyncBlock();
    if (simt::ThreadIndex() == 0) {
      uint32_t left = wanted, digit = kBins;
      while (digit > 0 && bins[digit - 1] < left) left -= bins[--digit];
      // No digit has enough: all eligible rows are picked.
      found[0] = digit > 0 ? digit - 1 : kBins;
      found[1] = left;
    }
    simt::SyncBlock();
    const uint32_t digit = found[0];
    if (digit == kBins) return {0, ~0u};
    prefix |= digit << shift;
    wanted = found[1];
  }
  return {prefix, wanted};
}

// Exclusive rank of this thread among the block's threads with `flag`, and how many there are.
struct Rank {
  uint32_t before;
  uint32_t all;
};
EPIC_DEVICE Rank RankInBlock(bool flag, const simt::SharedArray<uint32_t>& warp_counts) {
  const uint32_t lanes = simt::Ballot(flag);
  if (simt::Lane() == 0) warp_counts[simt::WarpIndex()] = simt::CountBits(lanes);
  simt::SyncBlock();
  Rank rank = {simt::CountBits(lanes & ((1u << simt::Lane()) - 1)), 0};
  for (uint32_t w = 0; w < kWarps; ++w) {
    if (w < simt::WarpIndex()) rank.before += warp_counts[w];
    rank.all += warp_counts[w];
  }
  simt::SyncBlock();
  return rank;
}

EPIC_KERNEL void EPIC_LAUNCH_BOUNDS(kThreads) Select(const EPIC_GRID_CONSTANT SelectRowsArgs args) {
  EPIC_SHARED(uint32_t, bins, kBins);
  EPIC_SHARED(uint32_t, found, 2);
  EPIC_SHARED(uint32_t, warp_counts, kWarps);
  const uint32_t index = simt::BlockIndex().x;
  const SelectGroup group = args.groups[index];
  Threshold threshold = {~0u, 0};  // nothing, where nothing is asked for
  if (group.count > 0) threshold = FindThreshold(args, group, bins, found);
  uint32_t picked = 0, ties = 0;
  for (uint32_t first = group.begin; first < group.end; first += kThreads) {
    const uint32_t row = first + simt::ThreadIndex();
    const bool eligible = row < group.end && IsEligible(args, row);
    const uint32_t key = eligible ? KeyOf(args.values[row]) : 0;
    const bool ties_here = eligible && key == threshold.key;
    const Rank tie = RankInBlock(ties_here, warp_counts);
    const bool take = eligible && (key > threshold.key || (ties_here && ties + tie.before < threshold.ties));
    const Rank place = RankInBlock(take, warp_counts);
    if (take) args.out[group.out_begin + picked + place.before] = row;
    picked += place.all;
    ties += tie.all;
  }
  if (simt::ThreadIndex() == 0) args.out_counts[index] = picked;
}

}  // namespace

GpuStatus SelectRowsCuda(const SelectRowsArgs& args, GpuStream stream) {
  if (args.group_count == 0) return {};
  if (args.values == nullptr || args.groups == nullptr || args.out == nullptr || args.out_counts == nullptr) {
    return {GpuCode::kInvalid, "values, groups, out or out_counts is missing"};
  }
  return simt::Launch(Select, {args.group_count}, kThreads, 0, stream, args);
}

}  // namespace epic
