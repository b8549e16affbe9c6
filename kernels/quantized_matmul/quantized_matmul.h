// Products with weights of few bits, for decode: with few rows the time goes into reading the weights, so
// they are read as the model file keeps them, 4 or 8 bits in groups of 32 along K with a scale and a minimum.
//
// x is rounded, row by row, to 8 bits in the same groups, and the sums within a group are of integers. A
// row's bytes depend on neither the other rows nor the threads: groups add up in ascending order of K, and
// work is split over outputs only. QuantizedMatrix is immutable and shared by threads; QuantizedMatMul is
// called by one thread, which lends its pool. Nothing here knows a file format: the model's reader hands over
// groups.
#ifndef EPIC_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_H_
#define EPIC_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/api/dispatch.h"
#include "kernels/api/thread_pool.h"

namespace epic {

constexpr size_t kQuantizedGroup = 32;  // weights along K that share a scale and a minimum

// w[k] = scale * levels[k] + minimum, for kQuantizedGroup neighbouring k of one output.
struct QuantizedGroup {
  float scale = 0;
  float minimum = 0;
  uint8_t levels[kQuantizedGroup] = {};
};

// Levels of 8 bits for values that come without any: scale = (highest - lowest) / 255, minimum = lowest, so
// no value is off by more than half a scale. A value that is not finite makes the scale NaN. REQUIRES: 1 <=
// values.size() <= 32; the rest of the levels are 0.
QuantizedGroup QuantizeGroup(std::span<const float> values);

// Fills the groups of output `index`; the last one covers K % 32 weights when K is no multiple of 32.
using GroupReader = std::function<void(size_t index, std::span<QuantizedGroup> groups)>;

class QuantizedMatrix {
 public:
  virtual ~QuantizedMatrix() = default;
  virtual size_t outputs() const = 0;  // N
  virtual size_t inputs() const = 0;   // K
  virtual uint32_t bits() const = 0;   // of a level: 4 or 8
  virtual size_t bytes() const = 0;
};

// Packs once. Scales and minima are kept in half precision times one power of two for the matrix: exact for
// formats whose scales are halves, else 2^-11 relative; one that is not finite makes its output NaN.
// `path` forces an implementation. REQUIRES: bits is 4 or 8 and every level fits. Errors: ResourceExhausted.
absl::StatusOr<std::unique_ptr<const QuantizedMatrix>> PackQuantized(size_t outputs, size_t inputs,
                                                                     uint32_t bits, const GroupReader& reader,
                                                                     ThreadPool* pool,
                                                                     KernelPath path = KernelPath::kAuto);

struct QuantizedMatMulArgs {
  const float* x = nullptr;  // [rows][x_stride], the first `inputs` of each row count
  size_t rows = 0;
  size_t x_stride = 0;  // elements
  const QuantizedMatrix* weights = nullptr;
  const float* bias = nullptr;  // [outputs] or null
  float* out = nullptr;         // [rows][out_stride]
  size_t out_stride = 0;        // elements
  bool accumulate = false;      // out += product
};

// out = round8(x) · wᵀ (+ bias) (+ out). A group of x with a value that is not finite makes its whole row
// NaN. rows == 0 is a no-op.
void QuantizedMatMul(const QuantizedMatMulArgs& args, ThreadPool* pool);

}  // namespace epic

#endif  // EPIC_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_H_
