#include <vector>

#include "kernels/api/parallel.h"
#include "kernels/quantized_matmul/quantized_matmul_internal.h"

namespace epic::internal {
namespace {

class ReferenceQuantized final : public MultipliableMatrix {
 public:
  ReferenceQuantized(size_t outputs, size_t inputs, uint32_t bits)
      : outputs_(outputs),
        inputs_(inputs),
        bits_(bits),
        groups_((inputs + kQuantizedGroup - 1) / kQuantizedGroup),
        weights_(outputs * groups_) {}

  size_t outputs() const override { return outputs_; }
  size_t inputs() const override { return inputs_; }
  uint32_t bits() const override { return bits_; }
  size_t bytes() const override { return weights_.size() * sizeof(QuantizedGroup); }

  std::span<QuantizedGroup> row(size_t index) { return {weights_.data() + index * groups_, groups_}; }

  void Multiply(const QuantizedMatMulArgs& args, ThreadPool* pool) const override {
    ForRowBlocks(pool, args.rows, 1, [&](size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r) {
        MultiplyRow(args, args.x + r * args.x_stride, args.out + r * args.out_stride);
      }
    });
  }

 private:
  void MultiplyRow(const QuantizedMatMulArgs& args, const float* x, float* out) const {
    std::vector<int8_t> levels(groups_ * kQuantizedGroup);
    std::vector<float> scales(groups_);
    std::vector<float> sums(groups_);
    RoundRowPortable(x, inputs_, {levels.data(), scales.data(), sums.data()});
    for (size_t n = 0; n < outputs_; ++n) {
      double sum = 0;
      for (size_t k = 0; k < inputs_; ++k) {
        const size_t g = k / kQuantizedGroup;
        const QuantizedGroup& group = weights_[n * groups_ + g];
        const double w = double{group.scale} * group.levels[k % kQuantizedGroup] + group.minimum;
        sum += w * levels[k] * scales[g];
      }
      if (args.bias != nullptr) sum += args.bias[n];
      out[n] = static_cast<float>(args.accumulate ? out[n] + sum : sum);
    }
  }

  size_t outputs_;
  size_t inputs_;
  uint32_t bits_;
  size_t groups_;
  std::vector<QuantizedGroup> weights_;  // [outputs][groups]
};

}  // namespace

MultipliableMatrixOr PackQuantizedReference(size_t outputs, size_t inputs, uint32_t bits,
                                            const GroupReader& reader, ThreadPool* pool) {
  auto matrix = std::make_unique<ReferenceQuantized>(outputs, inputs, bits);
  ForRowBlocks(pool, outputs, 64, [&](size_t begin, size_t end) {
    for (size_t n = begin; n < end; ++n) reader(n, matrix->row(n));
  });
  return matrix;
}

}  // namespace epic::internal
