// bf16 products on matrix tiles (AMX) through oneDNN: weights packed once in the layout that oneDNN asks for,
// x rounded to bf16 on the way, one single-threaded primitive call per block of rows and group of outputs.
//
// A call always has kBlockRows rows, the last block padded with zeros, so every row meets the same kernel and
// its bytes do not depend on the batch.
#include <omp.h>

#include <algorithm>
#include <dnnl.hpp>
#include <memory>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "kernels/api/parallel.h"
#include "kernels/api/scratch.h"
#include "kernels/convert/convert.h"
#include "kernels/matmul/matmul_internal.h"

namespace epic::internal {
namespace {

using dnnl::memory;

constexpr size_t kBlockRows = 32;           // two tiles of rows
constexpr size_t kMostGroupOutputs = 1024;  // of one call

const dnnl::engine& Engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// Products run inside the pool's tasks, and oneDNN plans for the threads of whoever creates a primitive.
void UseOneOpenMpThread() {
  static thread_local bool done = false;
  if (done) return;
  omp_set_num_threads(1);
  done = true;
}

// One group of outputs: a matrix of its own for oneDNN.
struct Group {
  size_t first;
  size_t outputs;
  dnnl::matmul product;
  memory::desc x_desc, out_desc, scratchpad_desc;
  memory weights;
};

class DnnlMatrix final : public MatMulMatrix {
 public:
  DnnlMatrix(size_t outputs, size_t inputs) : outputs_(outputs), inputs_(inputs) {}

  size_t outputs() const override { return outputs_; }
  size_t inputs() const override { return inputs_; }
  DType format() const override { return DType::kBf16; }
  DType input_format() const override { return DType::kBf16; }
  size_t bytes() const override {
    size_t total = 0;
    for (const Group& group : groups_) total += group.weights.get_desc().get_size();
    return total;
  }

  // Throws dnnl::error.
  void Fill(const RowReader& reader) {
    UseOneOpenMpThread();
    dnnl::stream stream(Engine());
    std::vector<float> row(inputs_);
    for (size_t first = 0; first < outputs_; first += kMostGroupOutputs) {
      const size_t count = std::min(kMostGroupOutputs, outputs_ - first);
      std::vector<Bf16> plain(count * inputs_);
      for (size_t n = 0; n < count; ++n) {
        reader(first + n, row);
        F32ToBf16(row.data(), plain.data() + n * inputs_, inputs_);
      }
      Group group = Plan(first, count);
      const memory::dims shape = {static_cast<int64_t>(inputs_), static_cast<int64_t>(count)};
      memory from({shape, memory::data_type::bf16, memory::format_tag::ba}, Engine(), plain.data());
      dnnl::reorder(from, group.weights).execute(stream, from, group.weights);
      stream.wait();
      groups_.push_back(std::move(group));
    }
  }

  void Multiply(const MatMulArgs& args, ThreadPool* pool) const override {
    const size_t blocks = (args.rows + kBlockRows - 1) / kBlockRows;
    // A few groups of one block at a time: the block's x is rounded by each task that needs it.
    ForRowBlocks(pool, blocks * groups_.size(), 1, [&](size_t begin, size_t end) {
      for (size_t index = begin; index < end; ++index) {
        MultiplyBlock(args, groups_[index % groups_.size()], index / groups_.size() * kBlockRows);
      }
    });
  }

 private:
  Group Plan(size_t first, size_t count) const {
    const auto rows = static_cast<int64_t>(kBlockRows);
    const auto inputs = static_cast<int64_t>(inputs_);
    const auto outputs = static_cast<int64_t>(count);
    Group group;
    group.first = first;
    group.outputs = count;
    group.x_desc = {{rows, inputs}, memory::data_type::bf16, memory::format_tag::ab};
    group.out_desc = {{rows, outputs}, memory::data_type::f32, memory::format_tag::ab};
    const memory::desc weights({inputs, outputs}, memory::data_type::bf16, memory::format_tag::any);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::matmul::primitive_desc plan({group.x_desc, weights, group.out_desc}, attributes, Engine());
    group.product = dnnl::matmul(plan);
    group.scratchpad_desc = plan.scratchpad_desc();
    group.weights = memory(plan.weights_desc(), Engine());
    return group;
  }

  void MultiplyBlock(const MatMulArgs& args, const Group& group, size_t first_row) const {
    UseOneOpenMpThread();
    static thread_local Scratch x_scratch, out_scratch, pad_scratch;
    static thread_local dnnl::stream stream(Engine());
    const size_t rows = std::min(kBlockRows, args.rows - first_row);
    Bf16* x = x_scratch.Get<Bf16>(kBlockRows * inputs_);
    float* out = out_scratch.Get<float>(kBlockRows * group.outputs);
    for (size_t r = 0; r < rows; ++r) {
      F32ToBf16(args.x + (first_row + r) * args.x_stride, x + r * inputs_, inputs_);
    }
    std::fill(x + rows * inputs_, x + kBlockRows * inputs_, Bf16{0});
    const memory x_memory(group.x_desc, Engine(), x);
    const memory out_memory(group.out_desc, Engine(), out);
    const memory pad(group.scratchpad_desc, Engine(),
                     pad_scratch.Get<char>(std::max<size_t>(group.scratchpad_desc.get_size(), 64)));
    group.product.execute(stream, {{DNNL_ARG_SRC, x_memory},
                                   {DNNL_ARG_WEIGHTS, group.weights},
                                   {DNNL_ARG_DST, out_memory},
                                   {DNNL_ARG_SCRATCHPAD, pad}});
    stream.wait();
    for (size_t r = 0; r < rows; ++r) {
      float* to = args.out + (first_row + r) * args.out_stride + group.first;
      const float* from = out + r * group.outputs;
      const float* bias = args.bias == nullptr ? nullptr : args.bias + group.first;
      for (size_t n = 0; n < group.outputs; ++n) {
        const float sum = bias == nullptr ? from[n] : from[n] + bias[n];
        to[n] = args.accumulate ? to[n] + sum : sum;
      }
    }
  }

  size_t outputs_;
  size_t inputs_;
  std::vector<Group> groups_;
};

}  // namespace

MatMulMatrixOr PackDnnl(size_t outputs, size_t inputs, const RowReader& reader) {
  try {
    auto matrix = std::make_unique<DnnlMatrix>(outputs, inputs);
    matrix->Fill(reader);
    return matrix;
  } catch (const dnnl::error& error) {
    return absl::UnimplementedError(std::string("oneDNN has no bf16 product here: ") + error.what());
  }
}

}  // namespace epic::internal
