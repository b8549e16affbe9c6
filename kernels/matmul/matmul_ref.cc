#include <vector>

#include "kernels/api/parallel.h"
#include "kernels/matmul/matmul_internal.h"

namespace epic::internal {
namespace {

// Values of a bf16 matrix are kept as f32 after rounding: slow and obvious.
class ReferenceMatrix final : public MatMulMatrix {
 public:
  ReferenceMatrix(size_t outputs, size_t inputs, DType format)
      : outputs_(outputs), inputs_(inputs), format_(format), values_(outputs * inputs) {}

  size_t outputs() const override { return outputs_; }
  size_t inputs() const override { return inputs_; }
  DType format() const override { return format_; }
  DType input_format() const override { return format_; }
  size_t bytes() const override { return values_.size() * sizeof(float); }

  std::span<float> row(size_t index) { return {values_.data() + index * inputs_, inputs_}; }
  float Round(float value) const { return format_ == DType::kBf16 ? ToF32(ToBf16(value)) : value; }

  void Multiply(const MatMulArgs& args, ThreadPool* pool) const override {
    ForRowBlocks(pool, args.rows, 1, [&](size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r) MultiplyRow(args, args.x + r * args.x_stride, r);
    });
  }

 private:
  void MultiplyRow(const MatMulArgs& args, const float* x, size_t r) const {
    std::vector<double> rounded(inputs_);
    for (size_t k = 0; k < inputs_; ++k) rounded[k] = Round(x[k]);
    float* out = args.out + r * args.out_stride;
    for (size_t n = 0; n < outputs_; ++n) {
      const float* w = values_.data() + n * inputs_;
      double sum = 0;
      for (size_t k = 0; k < inputs_; ++k) sum += rounded[k] * w[k];
      if (args.bias != nullptr) sum += args.bias[n];
      out[n] = static_cast<float>(args.accumulate ? out[n] + sum : sum);
    }
  }

  size_t outputs_;
  size_t inputs_;
  DType format_;
  std::vector<float> values_;
};

}  // namespace

MatMulMatrixOr PackReference(size_t outputs, size_t inputs, DType format, const RowReader& reader,
                             ThreadPool* pool) {
  auto matrix = std::make_unique<ReferenceMatrix>(outputs, inputs, format);
  ForRowBlocks(pool, outputs, 64, [&](size_t begin, size_t end) {
    for (size_t n = begin; n < end; ++n) {
      reader(n, matrix->row(n));
      for (float& value : matrix->row(n)) value = matrix->Round(value);
    }
  });
  return matrix;
}

}  // namespace epic::internal
