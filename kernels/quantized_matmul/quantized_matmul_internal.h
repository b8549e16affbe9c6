// What the implementations behind quantized_matmul.h share: rows of x in 8 bits, and panels of weights.
// Packed matrices are immutable; all else is the calling thread's. Only the files and tests of this folder
// look here.
#ifndef EPIC_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_INTERNAL_H_
#define EPIC_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_INTERNAL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/quantized_matmul/quantized_matmul.h"

namespace epic::internal {

class MultipliableMatrix : public QuantizedMatrix {
 public:
  // REQUIRES: args.rows > 0 and args.weights == this.
  virtual void Multiply(const QuantizedMatMulArgs& args, ThreadPool* pool) const = 0;
};

using MultipliableMatrixOr = absl::StatusOr<std::unique_ptr<const MultipliableMatrix>>;

// Plain groups, sums in double of x rounded as RoundRow does.
MultipliableMatrixOr PackQuantizedReference(size_t outputs, size_t inputs, uint32_t bits,
                                            const GroupReader& reader, ThreadPool* pool);

// The vector instructions that a panel product is written for.
enum class QuantizedTarget : uint8_t { kPortable, kAvx2, kAvx512Vnni };
// True when this CPU has them.
bool IsSupported(QuantizedTarget target);
QuantizedTarget BestQuantizedTarget();

MultipliableMatrixOr PackQuantizedCpu(size_t outputs, size_t inputs, uint32_t bits, const GroupReader& reader,
                                      ThreadPool* pool, QuantizedTarget target);

// A row of x in groups: x[k] is about scales[g] * levels[k], and sums[g] is the sum of the levels. Levels of
// a group are round(x * (127 / highest magnitude)), ties to even; a group whose magnitudes are all below
// 1e-30 counts as zeros; one with a value that is not finite has scale NaN and levels 0. Values past `count`
// up to the group's end are zeros.
struct RoundedRow {
  int8_t* levels;  // [groups * 32]
  float* scales;   // [groups]
  float* sums;     // [groups]
};
constexpr float kSmallestMagnitude = 1e-30f;
void RoundRowPortable(const float* x, size_t count, const RoundedRow& out);
void RoundRowAvx2(const float* x, size_t count, const RoundedRow& out);
void RoundRowAvx512(const float* x, size_t count, const RoundedRow& out);

// Sixteen outputs. For each group of 32 k: scales [16] and minima [16] in half precision, then the levels of
// four neighbouring k side by side, output by output ("quads"):
//   8 bits: 8 quads of 64 bytes, byte [o * 4 + i] of quad j is k = 4 j + i of output o.
//   4 bits: 4 pairs of quads, quad j in the low halves of the bytes and quad j + 4 in the high ones.
constexpr size_t kPanelOutputs = 16;
constexpr size_t kGroupHead = 2 * kPanelOutputs * sizeof(uint16_t);
constexpr size_t GroupBytes(uint32_t bits) { return kGroupHead + kPanelOutputs * kQuantizedGroup * bits / 8; }

// A panel times `rows` rounded rows, into sums [rows][16].
struct PanelProduct {
  const uint8_t* panel;  // [groups][GroupBytes(bits)], aligned to 64 bytes
  size_t groups;
  uint32_t bits;
  const int8_t* levels;  // [rows][groups * 32]
  const float* scales;   // [rows][groups], times the matrix's power of two
  const float* x_sums;   // [rows][groups]
  size_t rows;
  float* out;  // [rows][16]
};
void MultiplyPanelPortable(const PanelProduct& product);
void MultiplyPanelAvx2(const PanelProduct& product);
void MultiplyPanelAvx512Vnni(const PanelProduct& product);

// IEEE half precision. HalfFrom rounds to nearest, ties to even, and makes NaN of what is not finite.
// REQUIRES: a finite value is below 65520 in magnitude.
float F32FromHalf(uint16_t half);
uint16_t HalfFrom(float value);

}  // namespace epic::internal

#endif  // EPIC_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_INTERNAL_H_
