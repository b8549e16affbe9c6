// How much attention keys get from a few rows, and how much that changes with other keys: what strategies
// that choose rows by attention measure. Streams over tiles of keys; nothing grows with rows times keys.
//
// Weights are those of SegmentAttention with the same arguments: softmax over all keys that a row sees. They
// are added up as whole multiples of 2^-24, each rounded alone, so that sums are the same however the rows
// are split over calls and threads. Stateless; called by one thread, which may lend a pool.
#ifndef EPIC_KERNELS_ATTENTION_MASS_ATTENTION_MASS_H_
#define EPIC_KERNELS_ATTENTION_MASS_ATTENTION_MASS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/api/dispatch.h"
#include "kernels/api/thread_pool.h"
#include "kernels/segment_attention/segment_attention.h"

namespace epic {

// One unit of a sum of weights.
inline constexpr double kAttentionMassUnit = 0x1.0p-24;

struct AttentionMassArgs {
  SegmentAttentionArgs attention;  // `out` and `out_stride` are not used
  // [heads][mass_stride]: mass[h * mass_stride + p] grows by the weights that the rows give, in head h, to
  // the key at absolute position p. At most rows << 24 a call.
  uint64_t* mass = nullptr;
  size_t mass_stride = 0;  // elements; above the highest position of a visible key
};

// False when a row's weights are not finite numbers: a key or a query was not. Such rows add nothing.
bool AttentionMass(const AttentionMassArgs& args, ThreadPool* pool, KernelPath path = KernelPath::kAuto);

struct AttentionChangeArgs {
  // Rows, queries and the map with fresh keys. REQUIRES: one segment, private, whose row r stands at position
  // r, with row_positions set. `out` and `out_stride` are not used.
  SegmentAttentionArgs fresh;
  // The other map: the same queries over stored keys; private segments among them hold rows that both maps
  // share. REQUIRES: each visible position once.
  std::span<const KvSegment> stored;
  // [positions]: change[p] grows by the sum over rows and heads of |fresh weight - stored weight| of the key
  // at position p, for keys of shared segments of `stored`. At most heads * rows << 24 a call.
  uint64_t* change = nullptr;
};

// False as above.
bool AttentionChange(const AttentionChangeArgs& args, ThreadPool* pool, KernelPath path = KernelPath::kAuto);

}  // namespace epic

#endif  // EPIC_KERNELS_ATTENTION_MASS_ATTENTION_MASS_H_
