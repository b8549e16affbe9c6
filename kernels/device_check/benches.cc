#include "kernels/device_check/benches.h"

#include <algorithm>

#include "kernels/kv_write/kv_write_cuda.h"
#include "kernels/rms_norm/rms_norm_cuda.h"
#include "kernels/row_copy/row_copy_cuda.h"
#include "kernels/row_selection/row_selection_cuda.h"
#include "kernels/sampling/sampling_cuda.h"
#include "kernels/segment_attention/segment_attention_cuda_fixture.h"
#include "kernels/simt/device_memory.h"
#include "kernels/simt/sweep.h"
#include "kernels/swiglu/swiglu_cuda.h"
#include "kernels/value_distance/value_distance_cuda.h"

namespace epic {
namespace {

constexpr int kRounds = 20;

class Benches {
 public:
  void Add(const std::string& name, double amount, bool is_flop, const std::function<GpuStatus()>& launch) {
    BenchResult result;
    result.name = name;
    result.is_flop = is_flop;
    const GpuStatus status = Measure(launch, kRounds, &result.timing);
    if (status.ok()) {
      result.rate = amount / result.timing.median_seconds;
    } else {
      result.error = status.message;
    }
    results_.push_back(result);
  }
  std::vector<BenchResult> Take() { return std::move(results_); }

 private:
  std::vector<BenchResult> results_;
};

struct Model {
  std::string name;
  uint32_t heads, kv_heads, head_dim;
};
const Model kModels[] = {{"9/3x64", 9, 3, 64}, {"32/8x128", 32, 8, 128}};

// A product and an addition for each element of Q·K and of P·V, over the pairs that causality leaves.
double AttentionFlop(const Model& model, const std::vector<uint32_t>& positions) {
  double pairs = 0;
  for (const uint32_t position : positions) pairs += position + 1.0;
  return pairs * model.heads * model.head_dim * 4;
}

// Eight chunks of 512 rows, 16 of each recomputed, and 64 rows of own text.
void BenchLink(const Model& model, Benches* benches) {
  Rng rng(1);
  AttentionFixture problem(model.heads, model.kv_heads, model.head_dim, RopePairs::kNeox);
  std::vector<SegmentFixture> segments;
  std::vector<uint32_t> own;
  for (uint32_t c = 0; c < 8; ++c) {
    segments.emplace_back(SegmentFixture::Shape{.rows = 512, .position = c * 512, .first_row = 16},
                          model.kv_heads, model.head_dim, &rng);
    for (uint32_t r = 0; r < 16; ++r) own.push_back(c * 512 + r);
  }
  for (uint32_t r = 0; r < 64; ++r) own.push_back(4096 + r);
  segments.emplace_back(SegmentFixture::Shape{.rows = static_cast<uint32_t>(own.size()), .positions = own},
                        model.kv_heads, model.head_dim, &rng);
  problem.SetQueries(own, &rng);
  const auto launch = problem.MakeLink(segments, {});
  benches->Add("link attention, 192 rows over 4160 keys in 9 segments, " + model.name,
               AttentionFlop(model, own), true, [&] { return LinkAttentionCuda(launch.args, nullptr); });
}

// All rows of a prompt, as `full` has them.
void BenchPrefill(const Model& model, uint32_t rows, Benches* benches) {
  Rng rng(2);
  AttentionFixture problem(model.heads, model.kv_heads, model.head_dim, RopePairs::kNeox);
  const std::vector<uint32_t> own = PositionRange(0, rows);
  std::vector<SegmentFixture> segments;
  segments.emplace_back(SegmentFixture::Shape{.rows = rows, .positions = own}, model.kv_heads, model.head_dim,
                        &rng);
  problem.SetQueries(own, &rng);
  for (const LinkAttentionMode mode : {LinkAttentionMode::kSequential, LinkAttentionMode::kSplits}) {
    const auto launch = problem.MakeLink(segments, {.mode = mode});
    const bool sequential = mode == LinkAttentionMode::kSequential;
    benches->Add("prefill attention, " + std::to_string(rows) + " rows, " +
                     (sequential ? "splits in sequence, " : "splits side by side, ") + model.name,
                 AttentionFlop(model, own), true, [&] { return LinkAttentionCuda(launch.args, nullptr); });
  }
}

// Eight sequences over the same 4096 keys, and over eight copies of them: bytes are what one reader would
// read.
void BenchDecode(const Model& model, bool shares, Benches* benches) {
  constexpr uint32_t kSequences = 8, kKeys = 4096, kOwn = 32;
  Rng rng(3);
  AttentionFixture problem(model.heads, model.kv_heads, model.head_dim, RopePairs::kNeox);
  std::vector<SegmentFixture> segments;
  std::vector<std::vector<uint32_t>> reads;
  for (uint32_t s = 0; s < kSequences; ++s) {
    const SegmentFixture::Shape view{.rows = kKeys, .position = s};
    if (s == 0 || !shares) {
      segments.emplace_back(view, model.kv_heads, model.head_dim, &rng);
    } else {
      segments.emplace_back(segments.front(), view);
    }
    segments.emplace_back(
        SegmentFixture::Shape{.rows = kOwn, .positions = PositionRange(kKeys + s, kKeys + s + kOwn)},
        model.kv_heads, model.head_dim, &rng);
    reads.push_back({2 * s, 2 * s + 1});
  }
  std::vector<uint32_t> positions;
  for (uint32_t s = 0; s < kSequences; ++s) positions.push_back(kKeys + s + kOwn - 1);
  problem.SetQueries(positions, &rng);
  const auto launch = problem.MakeDecode(segments, reads);
  const double row_bytes = 2.0 * model.kv_heads * model.head_dim * sizeof(Bf16);
  const double bytes = row_bytes * ((shares ? 1 : kSequences) * kKeys + kSequences * kOwn);
  benches->Add(std::string("decode attention, 8 sequences over ") + (shares ? "the same" : "8 copies of") +
                   " 4096 keys, " + model.name,
               bytes, false, [&] { return DecodeAttentionCuda(launch.args, nullptr); });
}

void BenchRows(Benches* benches) {
  constexpr size_t kRows = 32768, kDim = 2048;
  constexpr double kBytes = static_cast<double>(kRows) * kDim * sizeof(float);
  simt::DeviceArray<float> x(kRows * kDim, 0.5f), add(kRows * kDim, 0.25f), out(kRows * kDim, 0.0f);
  simt::DeviceArray<float> weight(kDim, 1.0f);
  RmsNormCudaArgs norm;
  norm.norm = {.x = x.data(),
               .x_stride = kDim,
               .rows = kRows,
               .dim = kDim,
               .weight = weight.data(),
               .epsilon = 1e-5f,
               .out = out.data(),
               .out_stride = kDim};
  benches->Add("norm, 32768 x 2048", 2 * kBytes, false, [&] { return RmsNormCuda(norm, nullptr); });
  norm.add = add.data();
  norm.add_stride = norm.sum_stride = kDim;
  norm.sum = x.data();
  benches->Add("norm with residual, 32768 x 2048", 4 * kBytes, false,
               [&] { return RmsNormCuda(norm, nullptr); });
  SwiGluCudaArgs gate;
  gate.gate = {.gate = x.data(),
               .up = add.data(),
               .in_stride = kDim,
               .rows = kRows,
               .dim = kDim,
               .out = out.data(),
               .out_stride = kDim};
  benches->Add("SwiGLU, 32768 x 2048", 3 * kBytes, false, [&] { return SwiGluCuda(gate, nullptr); });
  std::vector<uint32_t> picks;
  for (uint32_t i = 0; i < kRows; ++i) picks.push_back(i * 7919u % kRows);
  const simt::DeviceArray<uint32_t> rows(picks);
  const RowCopyArgs copy = {.in = reinterpret_cast<const uint32_t*>(x.data()),
                            .in_stride = kDim,
                            .rows = rows.data(),
                            .count = kRows,
                            .words = kDim,
                            .out = reinterpret_cast<uint32_t*>(out.data()),
                            .out_stride = kDim};
  benches->Add("gather, 32768 x 2048", 2 * kBytes, false, [&] { return GatherRowsCuda(copy, nullptr); });
  benches->Add("scatter, 32768 x 2048", 2 * kBytes, false, [&] { return ScatterRowsCuda(copy, nullptr); });
}

void BenchKeysAndValues(Benches* benches) {
  constexpr size_t kRows = 32768;
  constexpr uint32_t kHeads = 8, kDim = 128, kHalf = kDim / 2;
  constexpr double kElements = static_cast<double>(kRows) * kHeads * kDim;
  const simt::DeviceArray<float> k(kRows * kHeads * kDim, 0.5f), v(kRows * kHeads * kDim, 0.25f);
  const simt::DeviceArray<float> table(kRows * kHalf, 0.7f), distances(kHeads * kRows, 0.0f);
  const simt::DeviceArray<uint32_t> positions(PositionRange(0, kRows));
  const simt::DeviceArray<Bf16> out_k(kRows * kHeads * kDim, Bf16{0}), out_v(kRows * kHeads * kDim, Bf16{0});
  KvWriteCudaArgs write;
  write.k = k.data();
  write.v = v.data();
  write.in_stride = size_t{kHeads} * kDim;
  write.rows = kRows;
  write.kv_heads = kHeads;
  write.head_dim = kDim;
  write.rope = {.cos = table.data(), .sin = table.data(), .half_dim = kHalf, .max_position = kRows};
  write.positions = positions.data();
  write.target = {out_k.data(), out_v.data(), kRows * kDim};
  benches->Add("rotary and KV write, 32768 rows of 8 x 128", kElements * 2 * (sizeof(float) + sizeof(Bf16)),
               false, [&] { return KvWriteCuda(write, nullptr); });
  const SquaredDistanceArgs distance = {.a = {out_k.data(), kRows * kDim},
                                        .b = {out_v.data(), kRows * kDim},
                                        .dtype = DType::kBf16,
                                        .rows = kRows,
                                        .kv_heads = kHeads,
                                        .head_dim = kDim,
                                        .out = distances.data(),
                                        .out_stride = kRows};
  benches->Add("V distance, 32768 rows of 8 x 128", kElements * 2 * sizeof(Bf16), false,
               [&] { return SquaredDistanceCuda(distance, nullptr); });
}

void BenchPicks(Benches* benches) {
  Rng rng(4);
  constexpr uint32_t kCount = 32768, kPicks = 4915, kRows = 16, kVocab = 151936;
  const simt::DeviceArray<float> values(simt::RandomFloats(kCount, &rng));
  const simt::DeviceArray<SelectGroup> group(std::vector<SelectGroup>{{0, kCount, kPicks, 0}});
  const simt::DeviceArray<uint32_t> picked(kPicks, 0u), count(1, 0u);
  const SelectRowsArgs select = {.values = values.data(),
                                 .groups = group.data(),
                                 .group_count = 1,
                                 .out = picked.data(),
                                 .out_counts = count.data()};
  benches->Add("select 4915 of 32768 rows", kCount * 4.0, false,
               [&] { return SelectRowsCuda(select, nullptr); });
  const simt::DeviceArray<float> logits(simt::RandomFloats(size_t{kRows} * kVocab, &rng, 3));
  const simt::DeviceArray<double> uniforms(kRows, 0.7);
  const simt::DeviceArray<uint32_t> tokens(kRows, 0u);
  for (const bool greedy : {true, false}) {
    FilterParams params;
    params.temperature = greedy ? 0.0f : 0.8f;
    params.top_k = greedy ? 0 : 50;
    params.top_p = greedy ? 1.0f : 0.95f;
    const simt::DeviceArray<FilterParams> device_params(kRows, params);
    const SampleCudaArgs sample = {.logits = logits.data(),
                                   .stride = kVocab,
                                   .rows = kRows,
                                   .vocab = kVocab,
                                   .params = device_params.data(),
                                   .uniforms = uniforms.data(),
                                   .out = tokens.data()};
    benches->Add(std::string(greedy ? "greedy" : "top-k, top-p and draw") + ", 16 rows of 151936",
                 kRows * kVocab * 4.0, false, [&] { return SampleCuda(sample, nullptr); });
  }
}

}  // namespace

std::vector<BenchResult> RunBenches() {
  Benches benches;
  for (const Model& model : kModels) {
    BenchLink(model, &benches);
    BenchPrefill(model, 4096, &benches);
    BenchDecode(model, true, &benches);
    BenchDecode(model, false, &benches);
  }
  BenchRows(&benches);
  BenchKeysAndValues(&benches);
  BenchPicks(&benches);
  return benches.Take();
}

}  // namespace epic
