// Products by Highway: weights in panels of 32 outputs, f32 or bf16, sums by fused multiply-adds in f32.
//
// bf16 weights are widened, exactly, and x stays f32: on CPUs without matrix tiles that is twice as fast as
// their bf16 dot product. A panel is widened once into the worker's scratch when many rows share it. In a
// gated matrix each panel of gates stands before the panel that it gates, and the worker's scratch takes
// their sums.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "kernels/api/parallel.h"
#include "kernels/api/scratch.h"
#include "kernels/api/simd_targets.h"
#include "kernels/matmul/matmul_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/matmul_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/api/micro_kernel-inl.h"
#include "kernels/swiglu/gate-inl.h"

#ifndef EPIC_KERNELS_MATMUL_MATMUL_CPU_ONCE_
#define EPIC_KERNELS_MATMUL_MATMUL_CPU_ONCE_
namespace epic::internal {

// One task: rows [row_begin, row_end) times panels [panel_begin, panel_end), whole pairs of a gated matrix.
struct PanelTask {
  const MatMulArgs* args;
  const void* panels;   // of float or of words with two bf16
  size_t panel_stride;  // elements
  bool bf16;
  size_t row_begin;
  size_t row_end;
  size_t panel_begin;
  size_t panel_end;
};

}  // namespace epic::internal
#endif  // EPIC_KERNELS_MATMUL_MATMUL_CPU_ONCE_

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {

// From this many rows on, widening a panel first costs less than widening it in every tile.
constexpr size_t kWidenRows = 48;
// Tiles of this target take two panels of f32 at once.
constexpr bool kHasPairs = kTileRows == 12;
// A widened panel larger than this would push x out of the second-level cache.
constexpr size_t kWidenBytes = 512 << 10;

// Adds bias and what was there, and stores; the last panel may have fewer columns than 32.
struct ProductSink {
  float* out;
  size_t out_stride;
  const float* bias;  // null or at the first panel's first column
  bool accumulate;
  size_t columns;  // from the first panel's first column to the end of the matrix

  HWY_INLINE ProductSink AtPanel(size_t panel) const {
    const size_t at = panel * kPanelColumns;
    return {out + at, out_stride, bias == nullptr ? nullptr : bias + at, accumulate, columns - at};
  }
  HWY_INLINE ProductSink AtRow(size_t row) const {
    return {out + row * out_stride, out_stride, bias, accumulate, columns};
  }
  HWY_INLINE void Finish(size_t row, size_t panel, size_t column, VF sum) const {
    const DF d;
    const size_t at = panel * kPanelColumns + column;
    float* to = out + row * out_stride + at;
    if (HWY_LIKELY(at + kLanes <= columns)) {
      if (bias != nullptr) sum = hn::Add(sum, hn::LoadU(d, bias + at));
      if (accumulate) sum = hn::Add(hn::LoadU(d, to), sum);
      hn::StoreU(sum, d, to);
    } else if (at < columns) {
      FinishPart(to, bias == nullptr ? nullptr : bias + at, columns - at, sum);
    }
  }
  HWY_NOINLINE void FinishPart(float* to, const float* bias_at, size_t count, VF sum) const {
    HWY_ALIGN float lanes[kLanes];
    hn::Store(sum, DF(), lanes);
    for (size_t i = 0; i < count; ++i) {
      if (bias_at != nullptr) lanes[i] += bias_at[i];
      to[i] = accumulate ? to[i] + lanes[i] : lanes[i];
    }
  }
};

// Of a panel of gates and the panel behind it: keeps the sums of one tile of the first, gates those of the
// second with them, and stores.
struct GatedSink {
  float* gates;  // [kTileRows][kPanelColumns]
  ProductSink product;
  size_t first_panel;

  HWY_INLINE GatedSink AtPanel(size_t panel) const { return {gates, product, first_panel + panel}; }
  HWY_INLINE GatedSink AtRow(size_t row) const { return {gates, product.AtRow(row), first_panel}; }
  HWY_INLINE void Finish(size_t row, size_t panel, size_t column, VF sum) const {
    float* gate = gates + row * kPanelColumns + column;
    if (first_panel + panel == 0) {
      hn::Store(sum, DF(), gate);
    } else {
      product.Finish(row, 0, column, Gate(hn::Load(DF(), gate), sum));
    }
  }
};

// Panels [first, first + count) in memory, which begin at `panels`, times the task's rows. Of a gated matrix:
// two.
template <class Element>
HWY_INLINE void RowsTimesPanels(const internal::PanelTask& task, const Element* panels, size_t first,
                                size_t count) {
  const MatMulArgs& args = *task.args;
  const bool gated = args.weights->gated();
  const size_t column = (gated ? first / 2 : first) * kPanelColumns;
  const size_t rows = task.row_end - task.row_begin;
  const float* x = args.x + task.row_begin * args.x_stride;
  const size_t k_count = args.weights->inputs();
  const size_t panel_stride = k_count * PanelStep(panels);
  const ProductSink sink = {args.out + task.row_begin * args.out_stride + column, args.out_stride,
                            args.bias == nullptr ? nullptr : args.bias + column, args.accumulate,
                            args.weights->outputs() - column};
  if (!gated) return MicroBlock(rows, x, args.x_stride, panels, panel_stride, count, k_count, sink);
  HWY_ALIGN float gates[kTileRows * kPanelColumns];
  MicroBlock(rows, x, args.x_stride, panels, panel_stride, count, k_count, GatedSink{gates, sink, 0});
}

// Two panels at a time (one, where tiles take no pairs) under many rows; four under few, whose tiles take
// several at once.
template <class Element>
HWY_NOINLINE void PlainPanels(const internal::PanelTask& task, const Element* panels) {
  // Widening in every tile costs more for two panels than it gains.
  const size_t many = task.row_end - task.row_begin < kTileRows ? 4 : kHasPairs && !task.bf16 ? 2 : 1;
  const size_t step = task.args->weights->gated() ? 2 : many;
  for (size_t panel = task.panel_begin; panel < task.panel_end; panel += step) {
    RowsTimesPanels(task, panels + panel * task.panel_stride, panel, std::min(step, task.panel_end - panel));
  }
}

// bf16 panels, each widened once.
HWY_NOINLINE void WidenedPanels(const internal::PanelTask& task, const uint32_t* panels) {
  static thread_local Scratch scratch;
  const size_t wide_stride = task.args->weights->inputs() * kPanelColumns;
  const size_t step = kHasPairs || task.args->weights->gated() ? 2 : 1;
  float* wide = scratch.Get<float>(step * wide_stride);
  for (size_t panel = task.panel_begin; panel < task.panel_end; panel += step) {
    const size_t count = std::min(step, task.panel_end - panel);
    const uint32_t* from = panels + panel * task.panel_stride;
    for (size_t i = 0; i < count * wide_stride / 2; i += kHalfPanel) {
      for (size_t h = 0; h < kHalfPanel; h += kLanes) {
        VF left, right;
        LoadPair(from + i + h, left, right);
        hn::StoreU(left, DF(), wide + 2 * i + h);
        hn::StoreU(right, DF(), wide + 2 * i + kHalfPanel + h);
      }
    }
    RowsTimesPanels(task, wide, panel, count);
  }
}

void RunPanelTask(const internal::PanelTask& task) {
  if (!task.bf16) return PlainPanels(task, static_cast<const float*>(task.panels));
  const auto* panels = static_cast<const uint32_t*>(task.panels);
  const size_t wide_bytes = task.args->weights->inputs() * kPanelColumns * sizeof(float);
  if (task.row_end - task.row_begin >= kWidenRows && wide_bytes <= kWidenBytes) {
    return WidenedPanels(task, panels);
  }
  PlainPanels(task, panels);
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epic {
HWY_EXPORT(RunPanelTask);

namespace internal {
namespace {

constexpr size_t kPanelWidth = 32;
constexpr size_t kTileRowsAll = 12;      // a multiple of the tile rows of every target
constexpr size_t kBlockBytes = 1 << 20;  // of x: half of a second-level cache
constexpr size_t kTasksPerThread = 4;    // enough to even out threads that are disturbed
constexpr size_t kHugePage = size_t{2} << 20;

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

std::unique_ptr<void, FreeMemory> AllocatePanels(size_t bytes) {
  const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  std::unique_ptr<void, FreeMemory> memory(std::aligned_alloc(alignment, rounded));
  if (memory == nullptr) throw std::bad_alloc();
  // An advice only: without huge pages the product is a little slower.
  if (alignment == kHugePage) ::madvise(memory.get(), rounded, MADV_HUGEPAGE);
  return memory;
}

class PanelMatrix final : public MatMulMatrix {
 public:
  PanelMatrix(const MatrixShape& shape, DType format)
      : MatMulMatrix(shape),
        inputs_(shape.inputs),
        parts_(shape.gated ? 2 : 1),
        format_(format),
        panels_((shape.outputs + kPanelWidth - 1) / kPanelWidth),
        memory_(AllocatePanels(bytes())) {}

  DType format() const override { return format_; }
  DType input_format() const override { return DType::kF32; }
  size_t bytes() const override { return parts_ * panels_ * inputs_ * kPanelWidth * SizeOf(format_); }

  void Fill(const RowReader& reader, ThreadPool* pool) {
    ForRowBlocks(pool, parts_ * panels_, 1, [&](size_t begin, size_t end) {
      std::vector<float> row(inputs_);
      for (size_t at = begin * kPanelWidth; at < end * kPanelWidth; ++at) {
        const size_t panel = at / kPanelWidth;
        const size_t column = panel / parts_ * kPanelWidth + at % kPanelWidth;
        if (column < outputs()) {
          reader(panel % parts_ * outputs() + column, row);
        } else {
          std::fill(row.begin(), row.end(), 0.0f);
        }
        PutColumn(at, row);
      }
    });
  }

  void Multiply(const MatMulArgs& args, ThreadPool* pool) const override {
    const size_t threads = pool == nullptr ? 1 : pool->threads();
    const size_t wanted = threads == 1 ? 1 : threads * kTasksPerThread;
    // Rows first: a block of x that stays in the second-level cache. Then panels, then rows again where the
    // matrix is too narrow for the threads.
    size_t block_rows = std::max(kBlockBytes / (inputs_ * sizeof(float)), size_t{1});
    block_rows = std::min(RoundUp(block_rows, kTileRowsAll), RoundUp(args.rows, kTileRowsAll));
    size_t row_blocks = (args.rows + block_rows - 1) / block_rows;
    const size_t most_blocks = (args.rows + 4 * kTileRowsAll - 1) / (4 * kTileRowsAll);
    row_blocks = std::max(row_blocks, std::min(most_blocks, (wanted + panels_ - 1) / panels_));
    block_rows = RoundUp((args.rows + row_blocks - 1) / row_blocks, kTileRowsAll);
    row_blocks = (args.rows + block_rows - 1) / block_rows;
    // Groups of panels are multiples of four while there are enough of them, for the few-rows kernel.
    size_t group = std::max(panels_ * row_blocks / wanted, size_t{1});
    if (group > 4) group = group / 4 * 4;
    const size_t groups = (panels_ + group - 1) / group;
    const auto task = [&](size_t index, uint32_t /*worker*/) {
      const size_t block = index / groups;
      const size_t first = index % groups * group;
      const PanelTask work{&args,
                           memory_.get(),
                           inputs_ * (format_ == DType::kF32 ? kPanelWidth : kPanelWidth / 2),
                           format_ == DType::kBf16,
                           block * block_rows,
                           std::min(args.rows, (block + 1) * block_rows),
                           parts_ * first,
                           parts_ * std::min(panels_, first + group)};
      HWY_DYNAMIC_DISPATCH(RunPanelTask)(work);
    };
    if (pool == nullptr) {
      for (size_t index = 0; index < groups * row_blocks; ++index) task(index, 0);
    } else {
      pool->ParallelFor(groups * row_blocks, task);
    }
  }

 private:
  static size_t RoundUp(size_t value, size_t step) { return (value + step - 1) / step * step; }

  // Writes one column's weights into its lane of its panel.
  void PutColumn(size_t column, std::span<const float> row) {
    const size_t panel = column / kPanelWidth;
    const size_t lane = column % kPanelWidth;
    if (format_ == DType::kF32) {
      float* to = static_cast<float*>(memory_.get()) + panel * inputs_ * kPanelWidth + lane;
      for (size_t k = 0; k < inputs_; ++k) to[k * kPanelWidth] = row[k];
      return;
    }
    // Words of two: the lower half is column i, the upper one column i + 16.
    Bf16* to = static_cast<Bf16*>(memory_.get()) + panel * inputs_ * kPanelWidth;
    to += lane < kPanelWidth / 2 ? 2 * lane : 2 * (lane - kPanelWidth / 2) + 1;
    for (size_t k = 0; k < inputs_; ++k) to[k * kPanelWidth] = ToBf16(row[k]);
  }

  const size_t inputs_;
  const size_t parts_;  // 2: gates too
  const DType format_;
  const size_t panels_;  // of outputs
  std::unique_ptr<void, FreeMemory> memory_;
};

}  // namespace

MatMulMatrixOr PackCpu(const MatrixShape& shape, DType format, const RowReader& reader, ThreadPool* pool) {
  auto matrix = std::make_unique<PanelMatrix>(shape, format);
  matrix->Fill(reader, pool);
  return matrix;
}

}  // namespace internal
}  // namespace epic
#endif  // HWY_ONCE
