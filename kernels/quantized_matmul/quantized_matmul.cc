#include "kernels/quantized_matmul/quantized_matmul.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kernels/api/parallel.h"
#include "kernels/api/scratch.h"
#include "kernels/quantized_matmul/quantized_matmul_internal.h"

namespace epic {
namespace internal {
namespace {

constexpr size_t kTasksPerThread = 4;  // enough to even out threads that are disturbed
constexpr size_t kRowsAtOnce = 32;     // of x in 8 bits; more rows go in turns
constexpr float kHighestHalf = 32768.0f;

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

size_t GroupsFor(size_t inputs) { return (inputs + kQuantizedGroup - 1) / kQuantizedGroup; }

using RoundRowFunction = void (*)(const float*, size_t, const RoundedRow&);
using MultiplyPanelFunction = void (*)(const PanelProduct&);

RoundRowFunction RoundRowOf(QuantizedTarget target) {
  switch (target) {
    case QuantizedTarget::kAvx512Vnni:
      return RoundRowAvx512;
    case QuantizedTarget::kAvx2:
      return RoundRowAvx2;
    case QuantizedTarget::kPortable:
      break;
  }
  return RoundRowPortable;
}

MultiplyPanelFunction MultiplyPanelOf(QuantizedTarget target) {
  switch (target) {
    case QuantizedTarget::kAvx512Vnni:
      return MultiplyPanelAvx512Vnni;
    case QuantizedTarget::kAvx2:
      return MultiplyPanelAvx2;
    case QuantizedTarget::kPortable:
      break;
  }
  return MultiplyPanelPortable;
}

class PanelQuantized final : public MultipliableMatrix {
 public:
  PanelQuantized(size_t outputs, size_t inputs, uint32_t bits, QuantizedTarget target)
      : outputs_(outputs),
        inputs_(inputs),
        bits_(bits),
        groups_(GroupsFor(inputs)),
        panels_((outputs + kPanelOutputs - 1) / kPanelOutputs),
        round_row_(RoundRowOf(target)),
        multiply_panel_(MultiplyPanelOf(target)),
        memory_(static_cast<uint8_t*>(std::aligned_alloc(64, bytes()))) {
    if (memory_ == nullptr) throw std::bad_alloc();
  }

  size_t outputs() const override { return outputs_; }
  size_t inputs() const override { return inputs_; }
  uint32_t bits() const override { return bits_; }
  size_t bytes() const override { return panels_ * PanelBytes(); }

  void Fill(const GroupReader& reader, ThreadPool* pool);
  void Multiply(const QuantizedMatMulArgs& args, ThreadPool* pool) const override;

 private:
  size_t PanelBytes() const { return groups_ * GroupBytes(bits_); }
  uint8_t* GroupAt(size_t panel, size_t group) const {
    return memory_.get() + panel * PanelBytes() + group * GroupBytes(bits_);
  }
  void PutGroup(size_t output, size_t index, const QuantizedGroup& group, float factor);
  void MultiplyBlock(const QuantizedMatMulArgs& args, ThreadPool* pool) const;
  void Finish(const QuantizedMatMulArgs& args, size_t panel, const float* sums) const;

  const size_t outputs_;
  const size_t inputs_;
  const uint32_t bits_;
  const size_t groups_;
  const size_t panels_;
  const RoundRowFunction round_row_;
  const MultiplyPanelFunction multiply_panel_;
  float factor_ = 1;  // scales and minima in memory times this are the true ones; a power of two
  std::unique_ptr<uint8_t, FreeMemory> memory_;
};

// The largest power of two that keeps `highest` within half precision.
float FactorFor(float highest) {
  if (highest == 0) return 1;
  int exponent = 0;
  std::frexp(highest / kHighestHalf, &exponent);
  return std::ldexp(1.0f, std::clamp(exponent, -100, 100));
}

void PanelQuantized::Fill(const GroupReader& reader, ThreadPool* pool) {
  // Twice over the source: first for the range of its scales, then to pack.
  std::vector<float> highest(outputs_);
  const auto for_outputs = [&](const auto& use) {
    ForRowBlocks(pool, outputs_, 4 * kPanelOutputs, [&](size_t begin, size_t end) {
      std::vector<QuantizedGroup> groups(groups_);
      for (size_t n = begin; n < end; ++n) {
        reader(n, groups);
        use(n, groups);
      }
    });
  };
  for_outputs([&](size_t n, const std::vector<QuantizedGroup>& groups) {
    for (const QuantizedGroup& group : groups) {
      const float magnitude = std::max(std::fabs(group.scale), std::fabs(group.minimum));
      if (std::isfinite(magnitude)) highest[n] = std::max(highest[n], magnitude);
    }
  });
  factor_ = FactorFor(*std::max_element(highest.begin(), highest.end()));
  std::memset(memory_.get(), 0, bytes());
  for_outputs([&](size_t n, const std::vector<QuantizedGroup>& groups) {
    for (size_t g = 0; g < groups_; ++g) PutGroup(n, g, groups[g], 1 / factor_);
  });
}

// Outputs of a panel are written by one thread: the blocks of Fill hold whole panels.
void PanelQuantized::PutGroup(size_t output, size_t index, const QuantizedGroup& group, float factor) {
  uint8_t* to = GroupAt(output / kPanelOutputs, index);
  const size_t o = output % kPanelOutputs;
  const uint16_t head[2] = {HalfFrom(group.scale * factor), HalfFrom(group.minimum * factor)};
  std::memcpy(to + 2 * o, &head[0], 2);
  std::memcpy(to + 2 * (kPanelOutputs + o), &head[1], 2);
  uint8_t* levels = to + kGroupHead;
  for (size_t k = 0; k < kQuantizedGroup; ++k) {
    const size_t quad = k / 4;
    if (bits_ == 8) {
      levels[quad * 64 + o * 4 + k % 4] = group.levels[k];
    } else {
      EPIC_CHECK(group.levels[k] < 16);
      levels[quad % 4 * 64 + o * 4 + k % 4] |= static_cast<uint8_t>(group.levels[k] << (quad < 4 ? 0 : 4));
    }
  }
}

void PanelQuantized::Multiply(const QuantizedMatMulArgs& args, ThreadPool* pool) const {
  for (size_t begin = 0; begin < args.rows; begin += kRowsAtOnce) {
    QuantizedMatMulArgs block = args;
    block.rows = std::min(kRowsAtOnce, args.rows - begin);
    block.x += begin * args.x_stride;
    block.out += begin * args.out_stride;
    MultiplyBlock(block, pool);
  }
}

void PanelQuantized::MultiplyBlock(const QuantizedMatMulArgs& args, ThreadPool* pool) const {
  static thread_local Scratch scratch;
  const size_t groups = args.rows * groups_;
  auto* scales = scratch.Get<float>(groups * (2 + kQuantizedGroup / sizeof(float)));
  float* sums = scales + groups;
  auto* levels = reinterpret_cast<int8_t*>(sums + groups);
  for (size_t r = 0; r < args.rows; ++r) {
    const RoundedRow row = {levels + r * groups_ * kQuantizedGroup, scales + r * groups_, sums + r * groups_};
    round_row_(args.x + r * args.x_stride, inputs_, row);
  }
  for (size_t i = 0; i < groups; ++i) scales[i] *= factor_;
  const size_t threads = pool == nullptr ? 1 : pool->threads();
  const size_t step = threads == 1 ? panels_ : std::max(panels_ / (threads * kTasksPerThread), size_t{1});
  ForRowBlocks(pool, panels_, step, [&](size_t begin, size_t end) {
    alignas(64) float out[kRowsAtOnce * kPanelOutputs];
    for (size_t panel = begin; panel < end; ++panel) {
      multiply_panel_({.panel = GroupAt(panel, 0),
                       .groups = groups_,
                       .bits = bits_,
                       .levels = levels,
                       .scales = scales,
                       .x_sums = sums,
                       .rows = args.rows,
                       .out = out});
      Finish(args, panel, out);
    }
  });
}

void PanelQuantized::Finish(const QuantizedMatMulArgs& args, size_t panel, const float* sums) const {
  const size_t first = panel * kPanelOutputs;
  const size_t count = std::min(kPanelOutputs, outputs_ - first);
  for (size_t r = 0; r < args.rows; ++r) {
    const float* from = sums + r * kPanelOutputs;
    float* to = args.out + r * args.out_stride + first;
    for (size_t o = 0; o < count; ++o) {
      const float sum = args.bias == nullptr ? from[o] : from[o] + args.bias[first + o];
      to[o] = args.accumulate ? to[o] + sum : sum;
    }
  }
}

}  // namespace

bool IsSupported(QuantizedTarget target) {
  switch (target) {
    case QuantizedTarget::kAvx512Vnni:
      return GetCpuFeatures().avx512_vnni;
    case QuantizedTarget::kAvx2:
      return GetCpuFeatures().avx2;
    case QuantizedTarget::kPortable:
      break;
  }
  return true;
}

QuantizedTarget BestQuantizedTarget() {
  if (IsSupported(QuantizedTarget::kAvx512Vnni)) return QuantizedTarget::kAvx512Vnni;
  return IsSupported(QuantizedTarget::kAvx2) ? QuantizedTarget::kAvx2 : QuantizedTarget::kPortable;
}

MultipliableMatrixOr PackQuantizedCpu(size_t outputs, size_t inputs, uint32_t bits, const GroupReader& reader,
                                      ThreadPool* pool, QuantizedTarget target) {
  auto matrix = std::make_unique<PanelQuantized>(outputs, inputs, bits, target);
  matrix->Fill(reader, pool);
  return matrix;
}

}  // namespace internal

QuantizedGroup QuantizeGroup(std::span<const float> values) {
  EPIC_CHECK(!values.empty() && values.size() <= kQuantizedGroup);
  QuantizedGroup group;
  if (!std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); })) {
    group.scale = std::numeric_limits<float>::quiet_NaN();
    return group;
  }
  const auto [lowest, highest] = std::minmax_element(values.begin(), values.end());
  group.minimum = *lowest;
  group.scale = (*highest - *lowest) / 255.0f;
  if (group.scale == 0) return group;
  for (size_t i = 0; i < values.size(); ++i) {
    const float level = std::nearbyint((values[i] - group.minimum) / group.scale);
    group.levels[i] = static_cast<uint8_t>(std::clamp(level, 0.0f, 255.0f));
  }
  return group;
}

absl::StatusOr<std::unique_ptr<const QuantizedMatrix>> PackQuantized(size_t outputs, size_t inputs,
                                                                     uint32_t bits, const GroupReader& reader,
                                                                     ThreadPool* pool, KernelPath path) {
  EPIC_CHECK(outputs > 0 && inputs > 0 && (bits == 4 || bits == 8));
  try {
    auto packed = path == KernelPath::kReference
                      ? internal::PackQuantizedReference(outputs, inputs, bits, reader, pool)
                      : internal::PackQuantizedCpu(outputs, inputs, bits, reader, pool,
                                                   internal::BestQuantizedTarget());
    if (!packed.ok()) return packed.status();
    return std::unique_ptr<const QuantizedMatrix>(std::move(packed).value());
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("not enough memory for a matrix of quantised weights");
  }
}

void QuantizedMatMul(const QuantizedMatMulArgs& args, ThreadPool* pool) {
  if (args.rows == 0) return;
  EPIC_CHECK(args.weights != nullptr && args.x_stride >= args.weights->inputs() &&
             args.out_stride >= args.weights->outputs());
  // Every QuantizedMatrix is made by PackQuantized.
  static_cast<const internal::MultipliableMatrix*>(args.weights)->Multiply(args, pool);
}

}  // namespace epic
