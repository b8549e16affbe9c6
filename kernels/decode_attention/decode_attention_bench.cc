// Decode rows over eight contexts of 512 tokens at the shapes of a 135M model (9 heads, 3 kv heads of 64,
// bf16): sequences that share the contexts in shuffled orders, beside sequences with copies of their own, and
// beside segment_attention row by row. Checked against the reference first; rows per second of the best
// iteration, and GFLOP/s with % of the measured FMA roof, a pair of row and key counting 4 * head_dim FLOP a
// head.
#include <benchmark/benchmark.h>

#include <cmath>
#include <memory>
#include <vector>

#include "kernels/api/bench_harness.h"
#include "kernels/decode_attention/decode_attention.h"

namespace epic {
namespace {

using bench::Pool;

constexpr uint32_t kHeads = 9, kKvHeads = 3, kHeadDim = 64;
constexpr size_t kRowWidth = size_t{kHeads} * kHeadDim;
constexpr uint32_t kContexts = 8, kContextRows = 512, kOwnRows = 64;
constexpr uint32_t kKeys = kContexts * kContextRows + kOwnRows;

std::vector<Bf16> RandomHalves(size_t count, uint64_t seed) {
  std::vector<Bf16> halves;
  for (const float value : bench::RandomValues(count, seed)) halves.push_back(ToBf16(value));
  return halves;
}

class Case {
 public:
  Case(size_t sequences, bool shared)
      : q_(bench::RandomValues(sequences * kRowWidth, 1)),
        out_(q_.size()),
        rope_(RopePairs::kNorm, Frequencies(), 2 * kKeys, 1.0) {
    const size_t object = size_t{2} * kKvHeads * kContextRows * kHeadDim;
    objects_ = RandomHalves(object * kContexts * (shared ? 1 : sequences), 2);
    const size_t own = size_t{2} * kKvHeads * kOwnRows * kHeadDim;
    own_ = RandomHalves(own * sequences, 3);
    for (uint32_t r = 0; r < kOwnRows; ++r) own_positions_.push_back(kContexts * kContextRows + r);
    segments_.resize(sequences);
    for (size_t s = 0; s < sequences; ++s) {
      for (uint32_t c = 0; c < kContexts; ++c) {
        // Each sequence has the contexts in an order of its own.
        const size_t which = (c + s) % kContexts + (shared ? 0 : s * kContexts);
        KvSegment segment = View(objects_.data() + which * object, kContextRows);
        segment.position = c * kContextRows;
        segment.first_row = 16;
        segments_[s].push_back(segment);
      }
      segments_[s].push_back(View(own_.data() + s * own, kOwnRows));
      segments_[s].back().row_positions = own_positions_.data();
    }
    for (size_t s = 0; s < sequences; ++s) {
      rows_.push_back({q_.data() + s * kRowWidth, kKeys - 1, segments_[s], out_.data() + s * kRowWidth});
    }
  }

  void Run(KernelPath path) {
    DecodeAttention({.rows = rows_,
                     .heads = kHeads,
                     .kv_heads = kKvHeads,
                     .head_dim = kHeadDim,
                     .scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim)),
                     .rope = &rope_},
                    Pool(), path);
  }

  void RunOneByOne() {
    for (const DecodeRow& row : rows_) {
      SegmentAttentionArgs args;
      args.q = row.q;
      args.q_stride = kRowWidth;
      args.q_positions = &row.position;
      args.rows = 1;
      args.heads = kHeads;
      args.kv_heads = kKvHeads;
      args.head_dim = kHeadDim;
      args.scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
      args.segments = row.segments;
      args.rope = &rope_;
      args.out = row.out;
      args.out_stride = kRowWidth;
      SegmentAttention(args, Pool());
    }
  }

  bool Agrees() {
    Run(KernelPath::kReference);
    const std::vector<float> expected = out_;
    Run(KernelPath::kCpu);
    return bench::Agree(out_, expected, 1e-5);
  }

 private:
  static std::vector<double> Frequencies() {
    std::vector<double> out(kHeadDim / 2);
    for (size_t j = 0; j < out.size(); ++j)
      out[j] = std::pow(10000.0, -static_cast<double>(j) / (kHeadDim / 2));
    return out;
  }
  static KvSegment View(const Bf16* memory, uint32_t rows) {
    KvSegment segment;
    segment.k = memory;
    segment.v = memory + size_t{kKvHeads} * rows * kHeadDim;
    segment.head_stride = size_t{rows} * kHeadDim;
    segment.rows = rows;
    return segment;
  }

  std::vector<float> q_, out_;
  RopeTable rope_;
  std::vector<Bf16> objects_, own_;
  std::vector<uint32_t> own_positions_;
  std::vector<std::vector<KvSegment>> segments_;
  std::vector<DecodeRow> rows_;
};

template <typename Fn>
void Measure(benchmark::State& state, Case* all, const Fn& run) {
  if (!all->Agrees()) {
    state.SkipWithError("differs from the reference");
    return;
  }
  const double best = bench::BestSeconds(state, run);
  const auto sequences = static_cast<double>(state.range(0));
  state.counters["rows/s"] = sequences / best;
  bench::ReportFlop(state, sequences * kHeads * (kKeys - 16 * kContexts) * 4 * kHeadDim, best);
}

void BM_SharedContexts(benchmark::State& state) {
  Case all(static_cast<size_t>(state.range(0)), true);
  Measure(state, &all, [&] { all.Run(KernelPath::kCpu); });
}
void BM_CopiesOfContexts(benchmark::State& state) {
  Case all(static_cast<size_t>(state.range(0)), false);
  Measure(state, &all, [&] { all.Run(KernelPath::kCpu); });
}
void BM_RowByRow(benchmark::State& state) {
  Case all(static_cast<size_t>(state.range(0)), true);
  Measure(state, &all, [&] { all.RunOneByOne(); });
}

void Counts(benchmark::internal::Benchmark* bench) {
  bench->ArgName("sequences")
      ->Arg(1)
      ->Arg(2)
      ->Arg(4)
      ->Arg(8)
      ->Arg(16)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

BENCHMARK(BM_SharedContexts)->Apply(Counts);
BENCHMARK(BM_CopiesOfContexts)->Apply(Counts);
BENCHMARK(BM_RowByRow)->Apply(Counts);

}  // namespace
}  // namespace epic

BENCHMARK_MAIN();
