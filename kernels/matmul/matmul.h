// Products with weights: out = x · wᵀ (+ bias) (+ out). Weights are packed once, in f32 or bf16.
//
// Sums run over K in one fixed order that depends on neither the number of rows nor the threads: the bytes of
// a row are the same whatever shares its batch. Work is split over rows and outputs, never over K.
// PackedMatrix is immutable and shared by threads; MatMul is called by one thread, which lends its pool.
#ifndef EPIC_KERNELS_MATMUL_MATMUL_H_
#define EPIC_KERNELS_MATMUL_MATMUL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/api/dispatch.h"
#include "kernels/api/dtype.h"
#include "kernels/api/thread_pool.h"

namespace epic {

class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  virtual size_t outputs() const = 0;  // N
  virtual size_t inputs() const = 0;   // K
  virtual DType format() const = 0;
  virtual bool gated() const = 0;
  virtual size_t bytes() const = 0;
};

// Fills `row` ([inputs] f32) with row `index` of the matrix ([outputs][inputs]).
using RowReader = std::function<void(size_t index, std::span<float> row)>;

// Packs once. kBf16 rounds to nearest even. `path` forces an implementation; kReference keeps plain rows.
// Errors: Unimplemented when the CPU has no fast product in `format` (ask BestMatMulFormat),
// ResourceExhausted.
absl::StatusOr<std::unique_ptr<const PackedMatrix>> PackMatrix(size_t outputs, size_t inputs, DType format,
                                                               const RowReader& reader, ThreadPool* pool,
                                                               KernelPath path = KernelPath::kAuto);
// A gated matrix: two products with one x, and their gate. Rows [0, outputs) of `reader` make the gate, rows
// [outputs, 2 * outputs) what it lets through; what SwiGlu makes of both (kernels/swiglu) is the product, and
// only its `outputs` values are written. Packs as PackMatrix does.
absl::StatusOr<std::unique_ptr<const PackedMatrix>> PackGatedMatrix(size_t outputs, size_t inputs,
                                                                    DType format, const RowReader& reader,
                                                                    ThreadPool* pool,
                                                                    KernelPath path = KernelPath::kAuto);
// kBf16 where the CPU multiplies bf16 natively, else kF32.
DType BestMatMulFormat();

struct MatMulArgs {
  const float* x = nullptr;  // [rows][x_stride], the first `inputs` of each row count
  size_t rows = 0;
  size_t x_stride = 0;  // elements
  const PackedMatrix* weights = nullptr;
  const float* bias = nullptr;  // [outputs] or null
  float* out = nullptr;         // [rows][out_stride]
  size_t out_stride = 0;        // elements
  bool accumulate = false;      // out += product
};

// bf16 weights: the reference and the path over matrix tiles round x to bf16 first; the Highway path widens
// the weights, which is exact, and keeps x in f32. f32 weights: nothing is rounded. The reference sums in
// f64, the others in f32; results are f32. rows == 0 is a no-op. REQUIRES: a gated matrix has neither bias
// nor accumulation.
void MatMul(const MatMulArgs& args, ThreadPool* pool);

}  // namespace epic

#endif  // EPIC_KERNELS_MATMUL_MATMUL_H_
