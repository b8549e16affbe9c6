// The implementations behind matmul.h. Only matmul.cc and the tests of this folder look here.
#ifndef EPIC_KERNELS_MATMUL_MATMUL_INTERNAL_H_
#define EPIC_KERNELS_MATMUL_MATMUL_INTERNAL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/matmul/matmul.h"

namespace epic::internal {

// A packed matrix that can multiply itself with rows.
class MatMulMatrix : public PackedMatrix {
 public:
  // To what x is rounded before it is multiplied.
  virtual DType input_format() const = 0;
  // REQUIRES: args.rows > 0 and args.weights == this.
  virtual void Multiply(const MatMulArgs& args, ThreadPool* pool) const = 0;
};

using MatMulMatrixOr = absl::StatusOr<std::unique_ptr<const MatMulMatrix>>;

// Plain rows; every sum in double.
MatMulMatrixOr PackReference(size_t outputs, size_t inputs, DType format, const RowReader& reader,
                             ThreadPool* pool);

// Panels for Highway, any CPU; f32 sums of f32 x.
MatMulMatrixOr PackCpu(size_t outputs, size_t inputs, DType format, const RowReader& reader,
                       ThreadPool* pool);

// bf16 weights and x on matrix tiles through oneDNN. Errors: Unimplemented where oneDNN has no bf16 product.
MatMulMatrixOr PackDnnl(size_t outputs, size_t inputs, const RowReader& reader);

}  // namespace epic::internal

#endif  // EPIC_KERNELS_MATMUL_MATMUL_INTERNAL_H_
