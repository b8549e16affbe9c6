// The implementations behind matmul.h. Only matmul.cc and the tests of this folder look here.
#ifndef EPIC_KERNELS_MATMUL_MATMUL_INTERNAL_H_
#define EPIC_KERNELS_MATMUL_MATMUL_INTERNAL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/matmul/matmul.h"

namespace epic::internal {

// What is packed. A gated matrix has 2 * outputs rows in its reader.
struct MatrixShape {
  size_t outputs;
  size_t inputs;
  bool gated = false;
};

// A packed matrix that can multiply itself with rows.
class MatMulMatrix : public PackedMatrix {
 public:
  explicit MatMulMatrix(const MatrixShape& shape) : shape_(shape) {}
  size_t outputs() const override { return shape_.outputs; }
  size_t inputs() const override { return shape_.inputs; }
  bool gated() const override { return shape_.gated; }
  // To what x is rounded before it is multiplied.
  virtual DType input_format() const = 0;
  // REQUIRES: args.rows > 0 and args.weights == this.
  virtual void Multiply(const MatMulArgs& args, ThreadPool* pool) const = 0;

 private:
  const MatrixShape shape_;
};

using MatMulMatrixOr = absl::StatusOr<std::unique_ptr<const MatMulMatrix>>;

// Plain rows; every sum in double.
MatMulMatrixOr PackReference(const MatrixShape& shape, DType format, const RowReader& reader,
                             ThreadPool* pool);

// Panels for Highway, any CPU; f32 sums of f32 x.
MatMulMatrixOr PackCpu(const MatrixShape& shape, DType format, const RowReader& reader, ThreadPool* pool);

// bf16 weights and x on matrix tiles through oneDNN. Errors: Unimplemented where oneDNN has no bf16 product.
MatMulMatrixOr PackDnnl(const MatrixShape& shape, const RowReader& reader);

}  // namespace epic::internal

#endif  // EPIC_KERNELS_MATMUL_MATMUL_INTERNAL_H_
