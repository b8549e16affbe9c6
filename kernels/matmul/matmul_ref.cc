#include <cmath>
#include <vector>

#include "kernels/api/parallel.h"
#include "kernels/matmul/matmul_internal.h"

namespace epic::internal {
namespace {

// Values of a bf16 matrix are kept as f32 after rounding: slow and obvious.
class ReferenceMatrix final : public MatMulMatrix {
 public:
  ReferenceMatrix(const MatrixShape& shape, DType format)
      : MatMulMatrix(shape), format_(format), values_(shape.outputs * (shape.gated ? 2 : 1) * shape.inputs) {}

  DType format() const override { return format_; }
  DType input_format() const override { return format_; }
  size_t bytes() const override { return values_.size() * sizeof(float); }

  std::span<float> row(size_t index) { return {values_.data() + index * inputs(), inputs()}; }
  float Round(float value) const { return format_ == DType::kBf16 ? ToF32(ToBf16(value)) : value; }

  void Multiply(const MatMulArgs& args, ThreadPool* pool) const override {
    ForRowBlocks(pool, args.rows, 1, [&](size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r) MultiplyRow(args, args.x + r * args.x_stride, r);
    });
  }

 private:
  void MultiplyRow(const MatMulArgs& args, const float* x, size_t r) const {
    std::vector<double> rounded(inputs());
    for (size_t k = 0; k < inputs(); ++k) rounded[k] = Round(x[k]);
    float* out = args.out + r * args.out_stride;
    for (size_t n = 0; n < outputs(); ++n) {
      double sum = Dot(rounded, n);
      if (gated()) sum = sum / (1.0 + std::exp(-sum)) * Dot(rounded, outputs() + n);
      if (args.bias != nullptr) sum += args.bias[n];
      out[n] = static_cast<float>(args.accumulate ? out[n] + sum : sum);
    }
  }

  double Dot(const std::vector<double>& x, size_t index) const {
    const float* w = values_.data() + index * inputs();
    double sum = 0;
    for (size_t k = 0; k < inputs(); ++k) sum += x[k] * w[k];
    return sum;
  }

  DType format_;
  std::vector<float> values_;
};

}  // namespace

MatMulMatrixOr PackReference(const MatrixShape& shape, DType format, const RowReader& reader,
                             ThreadPool* pool) {
  auto matrix = std::make_unique<ReferenceMatrix>(shape, format);
  ForRowBlocks(pool, shape.outputs * (shape.gated ? 2 : 1), 64, [&](size_t begin, size_t end) {
    for (size_t n = begin; n < end; ++n) {
      reader(n, matrix->row(n));
      for (float& value : matrix->row(n)) value = matrix->Round(value);
    }
  });
  return matrix;
}

}  // namespace epic::internal
