// bf16 products on matrix tiles (AMX) through oneDNN: weights packed once in the layout that oneDNN asks for,
// x rounded to bf16 on the way, one single-threaded primitive call per block of rows and group of outputs. A
// thread stays with a group, whose weights stay in its second-level cache, while rows pass by.
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
#include "kernels/swiglu/swiglu.h"

namespace epic::internal {
namespace {

using dnnl::memory;

constexpr size_t kBlockRows = 32;           // two tiles of rows
constexpr size_t kMostGroupColumns = 1024;  // of one call
constexpr size_t kFewestGroupColumns = 64;
constexpr size_t kGroupBytes = 1 << 20;  // of weights: half of a second-level cache
constexpr size_t kTasksPerThread = 4;    // enough to even out threads that are disturbed

// Columns of a group: in a gated matrix half of them are gates.
size_t GroupColumns(size_t inputs) {
  const size_t fitting = kGroupBytes / (inputs * sizeof(Bf16));
  return std::clamp(fitting / kFewestGroupColumns * kFewestGroupColumns, kFewestGroupColumns,
                    kMostGroupColumns);
}

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

// One group of outputs: a matrix of its own for oneDNN. Of a gated one, the gates' columns first.
struct Group {
  size_t first;
  size_t outputs;
  size_t columns;  // outputs, or twice as many
  dnnl::matmul product;
  memory::desc x_desc, out_desc, scratchpad_desc;
  memory weights;
};

class DnnlMatrix final : public MatMulMatrix {
 public:
  explicit DnnlMatrix(const MatrixShape& shape) : MatMulMatrix(shape), inputs_(shape.inputs) {}

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
    const size_t parts = gated() ? 2 : 1;
    const size_t most = GroupColumns(inputs_) / parts;
    for (size_t first = 0; first < outputs(); first += most) {
      const size_t count = std::min(most, outputs() - first);
      std::vector<Bf16> plain(parts * count * inputs_);
      for (size_t column = 0; column < parts * count; ++column) {
        reader(column / count * outputs() + first + column % count, row);
        F32ToBf16(row.data(), plain.data() + column * inputs_, inputs_);
      }
      Group group = Plan(first, count, parts * count);
      const memory::dims shape = {static_cast<int64_t>(inputs_), static_cast<int64_t>(group.columns)};
      memory from({shape, memory::data_type::bf16, memory::format_tag::ba}, Engine(), plain.data());
      dnnl::reorder(from, group.weights).execute(stream, from, group.weights);
      stream.wait();
      groups_.push_back(std::move(group));
    }
  }

  void Multiply(const MatMulArgs& args, ThreadPool* pool) const override {
    static thread_local Scratch scratch;
    const size_t blocks = (args.rows + kBlockRows - 1) / kBlockRows;
    Bf16* x = scratch.Get<Bf16>(blocks * kBlockRows * inputs_);
    ForRowBlocks(pool, blocks, 1, [&](size_t begin, size_t end) {
      for (size_t block = begin; block < end; ++block) RoundBlock(args, block * kBlockRows, x);
    });
    const size_t calls = blocks * groups_.size();
    const size_t tasks = pool == nullptr ? 1 : pool->threads() * kTasksPerThread;
    ForRowBlocks(pool, calls, std::max(calls / tasks, size_t{1}), [&](size_t begin, size_t end) {
      for (size_t call = begin; call < end; ++call) {
        MultiplyBlock(args, groups_[call / blocks], call % blocks * kBlockRows, x);
      }
    });
  }

 private:
  Group Plan(size_t first, size_t count, size_t columns) const {
    const auto rows = static_cast<int64_t>(kBlockRows);
    const auto inputs = static_cast<int64_t>(inputs_);
    const auto outputs = static_cast<int64_t>(columns);
    Group group;
    group.first = first;
    group.outputs = count;
    group.columns = columns;
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

  // Rows [first_row, first_row + kBlockRows) of x to its place in `to`; zeros where x has no more.
  void RoundBlock(const MatMulArgs& args, size_t first_row, Bf16* to) const {
    for (size_t row = first_row; row < first_row + kBlockRows; ++row) {
      if (row < args.rows) {
        F32ToBf16(args.x + row * args.x_stride, to + row * inputs_, inputs_);
      } else {
        std::fill_n(to + row * inputs_, inputs_, Bf16{0});
      }
    }
  }

  void MultiplyBlock(const MatMulArgs& args, const Group& group, size_t first_row, Bf16* x) const {
    UseOneOpenMpThread();
    static thread_local Scratch out_scratch, pad_scratch;
    static thread_local dnnl::stream stream(Engine());
    const size_t rows = std::min(kBlockRows, args.rows - first_row);
    float* out = out_scratch.Get<float>(kBlockRows * group.columns);
    const memory x_memory(group.x_desc, Engine(), x + first_row * inputs_);
    const memory out_memory(group.out_desc, Engine(), out);
    const memory pad(group.scratchpad_desc, Engine(),
                     pad_scratch.Get<char>(std::max<size_t>(group.scratchpad_desc.get_size(), 64)));
    group.product.execute(stream, {{DNNL_ARG_SRC, x_memory},
                                   {DNNL_ARG_WEIGHTS, group.weights},
                                   {DNNL_ARG_DST, out_memory},
                                   {DNNL_ARG_SCRATCHPAD, pad}});
    stream.wait();
    float* to = args.out + first_row * args.out_stride + group.first;
    if (gated()) {
      const SwiGluArgs gate = {.gate = out,
                               .up = out + group.outputs,
                               .in_stride = group.columns,
                               .rows = rows,
                               .dim = group.outputs,
                               .out = to,
                               .out_stride = args.out_stride};
      return SwiGlu(gate, nullptr);
    }
    const float* bias = args.bias == nullptr ? nullptr : args.bias + group.first;
    for (size_t r = 0; r < rows; ++r) {
      Finish(out + r * group.columns, group.columns, bias, args.accumulate, to + r * args.out_stride);
    }
  }

  static void Finish(const float* sums, size_t count, const float* bias, bool accumulate, float* out) {
    if (bias == nullptr && !accumulate) {
      std::copy_n(sums, count, out);
      return;
    }
    for (size_t n = 0; n < count; ++n) {
      const float sum = bias == nullptr ? sums[n] : sums[n] + bias[n];
      out[n] = accumulate ? out[n] + sum : sum;
    }
  }

  const size_t inputs_;
  std::vector<Group> groups_;
};

}  // namespace

MatMulMatrixOr PackDnnl(const MatrixShape& shape, const RowReader& reader) {
  try {
    auto matrix = std::make_unique<DnnlMatrix>(shape);
    matrix->Fill(reader);
    return matrix;
  } catch (const dnnl::error& error) {
    return absl::UnimplementedError(std::string("oneDNN has no bf16 product here: ") + error.what());
  }
}

}  // namespace epic::internal
