#include "kernels/api/roof.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "kernels/api/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/api/roof.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/api/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Ten chains cover the latency of two units; their values differ, or a compiler would make them one. Returns
// the multiply-adds done.
size_t RunFmaLoop(size_t steps, float* sink) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 0.999f);
  const auto b = hn::Set(d, 1e-3f);
  auto s0 = hn::Set(d, 1.0f), s1 = hn::Set(d, 1.1f), s2 = hn::Set(d, 1.2f), s3 = hn::Set(d, 1.3f);
  auto s4 = hn::Set(d, 1.4f), s5 = hn::Set(d, 1.5f), s6 = hn::Set(d, 1.6f), s7 = hn::Set(d, 1.7f);
  auto s8 = hn::Set(d, 1.8f), s9 = hn::Set(d, 1.9f);
  for (size_t i = 0; i < steps; ++i) {
    s0 = hn::MulAdd(s0, a, b);
    s1 = hn::MulAdd(s1, a, b);
    s2 = hn::MulAdd(s2, a, b);
    s3 = hn::MulAdd(s3, a, b);
    s4 = hn::MulAdd(s4, a, b);
    s5 = hn::MulAdd(s5, a, b);
    s6 = hn::MulAdd(s6, a, b);
    s7 = hn::MulAdd(s7, a, b);
    s8 = hn::MulAdd(s8, a, b);
    s9 = hn::MulAdd(s9, a, b);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)),
                           hn::Add(hn::Add(s4, s5), hn::Add(hn::Add(s6, s7), hn::Add(s8, s9))));
  *sink = hn::GetLane(sum);
  return steps * 10 * hn::Lanes(d);
}

// Returns the exponentials done.
size_t RunExpLoop(size_t steps, float* sink) {
  constexpr size_t kValues = 1024;
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  HWY_ALIGN float in[kValues];
  HWY_ALIGN float out[kValues] = {};
  for (size_t i = 0; i < kValues; ++i) in[i] = -0.01f * static_cast<float>(i);
  for (size_t step = 0; step < steps; ++step) {
    for (size_t i = 0; i < kValues; i += lanes) hn::Store(Exp2(hn::Load(d, in + i)), d, out + i);
    in[step % kValues] = -out[(step + 1) % kValues];
  }
  *sink = out[0];
  return steps * kValues;
}

// Four chains of additions; returns a value that depends on all that was read.
uint64_t RunReadLoop(const uint64_t* from, size_t words) {
  const hn::ScalableTag<uint64_t> d;
  const size_t lanes = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (size_t i = 0; i + 4 * lanes <= words; i += 4 * lanes) {
    s0 = hn::Add(s0, hn::LoadU(d, from + i));
    s1 = hn::Add(s1, hn::LoadU(d, from + i + lanes));
    s2 = hn::Add(s2, hn::LoadU(d, from + i + 2 * lanes));
    s3 = hn::Add(s3, hn::LoadU(d, from + i + 3 * lanes));
  }
  return hn::GetLane(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epic {
HWY_EXPORT(RunFmaLoop);
HWY_EXPORT(RunExpLoop);
HWY_EXPORT(RunReadLoop);

namespace {

// Seconds of run(steps, sink) on every thread at once; *done: what the runs return, together.
template <typename Fn>
double TimeLoops(ThreadPool* pool, size_t steps, const Fn& run, double* done) {
  const uint32_t threads = pool == nullptr ? 1 : pool->threads();
  std::vector<float> sinks(threads * 16);
  std::vector<size_t> counts(threads * 8);
  const auto start = std::chrono::steady_clock::now();
  if (pool == nullptr) {
    counts[0] = run(steps, sinks.data());
  } else {
    pool->ParallelFor(
        threads, [&](size_t index, uint32_t) { counts[index * 8] = run(steps, sinks.data() + index * 16); });
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  *done = 0;
  for (const size_t count : counts) *done += static_cast<double>(count);
  return took.count();
}

size_t FmaLoop(size_t steps, float* sink) { return HWY_DYNAMIC_DISPATCH(RunFmaLoop)(steps, sink); }
size_t ExpLoop(size_t steps, float* sink) { return HWY_DYNAMIC_DISPATCH(RunExpLoop)(steps, sink); }

}  // namespace

double MeasureFmaRoof(ThreadPool* pool) {
  constexpr size_t kSteps = 1'000'000;
  constexpr int kRuns = 8;
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    double done = 0;
    const double seconds = TimeLoops(pool, kSteps, FmaLoop, &done);
    best = std::max(best, 2.0 * done / seconds);
  }
  return best;
}

double TimeFma(ThreadPool* pool, double multiply_adds) {
  constexpr size_t kSteps = 500'000;
  double done = 0;
  const double seconds = TimeLoops(pool, kSteps, FmaLoop, &done);
  return seconds * multiply_adds / done;
}

double TimeExp(ThreadPool* pool, double exponentials) {
  constexpr size_t kSteps = 4000;
  double done = 0;
  const double seconds = TimeLoops(pool, kSteps, ExpLoop, &done);
  return seconds * exponentials / done;
}

double MeasureCopyRoof(ThreadPool* pool, size_t bytes) {
  constexpr double kSeconds = 0.05;
  // Below, waking the pool takes longer than the copy.
  constexpr size_t kSmallBytes = 256 << 10;
  if (bytes < kSmallBytes) pool = nullptr;
  const size_t blocks = pool == nullptr ? 1 : pool->threads();
  const size_t block = std::max(bytes / 2 / blocks, size_t{64});
  std::vector<char> from(blocks * block, 1), to(blocks * block);
  const auto copy = [&](size_t index, uint32_t) {
    std::memcpy(to.data() + index * block, from.data() + index * block, block);
  };
  double best = 0, spent = 0;
  // A clock's own cost is small beside so many copies.
  const size_t copies = std::max(kSmallBytes / (2 * blocks * block), size_t{1});
  while (spent < kSeconds) {
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < copies; ++i) {
      if (pool == nullptr) {
        copy(0, 0);
      } else {
        pool->ParallelFor(blocks, copy);
      }
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    spent += took.count();
    best = std::max(best, 2.0 * static_cast<double>(copies * blocks * block) / took.count());
  }
  return best;
}

double MeasureReadRoof(ThreadPool* pool, size_t bytes) {
  constexpr size_t kPieceWords = size_t{1} << 15;
  constexpr int kRuns = 8;
  const std::vector<uint64_t> memory(bytes / sizeof(uint64_t), 1);
  const size_t pieces = memory.size() / kPieceWords;
  std::vector<uint64_t> sinks(pieces);
  const auto read = [&](size_t index, uint32_t /*worker*/) {
    sinks[index] = HWY_DYNAMIC_DISPATCH(RunReadLoop)(memory.data() + index * kPieceWords, kPieceWords);
  };
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    if (pool == nullptr) {
      for (size_t index = 0; index < pieces; ++index) read(index, 0);
    } else {
      pool->ParallelFor(pieces, read);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(pieces * kPieceWords * sizeof(uint64_t)) / took.count());
  }
  return best;
}

}  // namespace epic
#endif  // HWY_ONCE
