#include "kernels/sampling/sampling_cuda_sweep.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/sampling/sampling_cuda.h"
#include "kernels/simt/device_memory.h"

namespace epic {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Batch {
  uint32_t vocab = 0;
  std::vector<float> logits;  // [rows][vocab + 3]
  std::vector<FilterParams> params;
  std::vector<double> uniforms;

  size_t stride() const { return vocab + 3; }
  std::span<const float> Row(size_t row) const { return {logits.data() + row * stride(), vocab}; }
};

FilterParams RandomParams(uint32_t vocab, Rng* rng) {
  FilterParams params;
  params.temperature = rng->Below(5) == 0 ? 0.0f : static_cast<float>(0.2 + 2 * rng->Uniform());
  if (rng->Below(2) == 0) params.top_k = static_cast<uint32_t>(1 + rng->Below(vocab + 3));
  if (rng->Below(2) == 0) params.top_p = static_cast<float>(0.05 + 0.9 * rng->Uniform());
  if (rng->Below(2) == 0) params.min_p = static_cast<float>(0.5 * rng->Uniform());
  return params;
}

Batch MakeBatch(uint32_t vocab, size_t rows, Rng* rng) {
  Batch batch;
  batch.vocab = vocab;
  for (size_t row = 0; row < rows; ++row) {
    const uint64_t kind = rng->Below(4);
    for (size_t id = 0; id < batch.stride(); ++id) {
      auto logit = static_cast<float>(3 * rng->Gaussian());
      if (kind == 0) logit = std::trunc(logit);                 // many equal ones, and zeros of both signs
      if (kind == 1 && rng->Below(3) == 0) logit = -kInfinity;  // banned ones
      if (kind == 2) logit = logit * 20 + 300;                  // a sharp peak
      if (id >= vocab) logit = kInfinity;                       // never read
      batch.logits.push_back(logit);
    }
    if (kind == 1) batch.logits[row * batch.stride() + rng->Below(vocab)] = 1;
    batch.params.push_back(RandomParams(vocab, rng));
    batch.uniforms.push_back(row % 7 == 3 ? 0.0 : row % 7 == 5 ? 1 - 0x1.0p-53 : rng->Uniform());
  }
  return batch;
}

GpuStatus Run(const Batch& batch, size_t first, size_t count, std::vector<uint32_t>* out) {
  const simt::DeviceArray<float> logits(
      std::span<const float>(batch.logits.data() + first * batch.stride(), count * batch.stride()));
  const simt::DeviceArray<FilterParams> params(
      std::span<const FilterParams>(batch.params.data() + first, count));
  const simt::DeviceArray<double> uniforms(std::span<const double>(batch.uniforms.data() + first, count));
  const simt::DeviceArray<uint32_t> tokens(count, 12345678u);
  const GpuStatus status = SampleCuda({.logits = logits.data(),
                                       .stride = batch.stride(),
                                       .rows = count,
                                       .vocab = batch.vocab,
                                       .params = params.data(),
                                       .uniforms = uniforms.data(),
                                       .out = tokens.data()},
                                      nullptr);
  if (!status.ok()) return status;
  const GpuStatus ended = simt::SynchronizeDevice();
  *out = tokens.Download();
  return ended;
}

void SweepBatch(uint32_t vocab, size_t rows, Rng* rng, simt::SweepReport* report) {
  const Batch batch = MakeBatch(vocab, rows, rng);
  const std::string what = std::to_string(vocab) + " tokens";
  std::vector<uint32_t> tokens, alone;
  if (!report->ExpectOk(Run(batch, 0, rows, &tokens), what)) return;
  for (size_t row = 0; row < rows; ++row) {
    const uint32_t expected = ReferenceToken(batch.Row(row), batch.params[row], batch.uniforms[row]);
    report->Expect(tokens[row] == expected, what + ": row " + std::to_string(row) + " drew " +
                                                std::to_string(tokens[row]) + ", not " +
                                                std::to_string(expected));
    if (row % 5 != 0) continue;
    if (!report->ExpectOk(Run(batch, row, 1, &alone), what)) return;
    report->Expect(alone[0] == tokens[row], what + ": another token when the row is alone");
  }
}

}  // namespace

uint32_t ReferenceToken(std::span<const float> logits, const FilterParams& params, double uniform) {
  std::vector<uint32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0u);
  std::stable_sort(ids.begin(), ids.end(), [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
  if (params.temperature == 0) return ids.front();
  if (params.top_k > 0) ids.resize(std::min<size_t>(ids.size(), params.top_k));
  std::vector<double> shares;
  for (const uint32_t id : ids) {
    shares.push_back(std::exp((double{logits[id]} - logits[ids.front()]) / params.temperature));
  }
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  size_t kept = 0;
  for (double reached = 0; kept < ids.size() && (params.top_p >= 1 || reached < params.top_p * all); ++kept) {
    reached += shares[kept];
  }
  while (shares[kept - 1] < params.min_p) --kept;
  const double total = std::accumulate(shares.begin(), shares.begin() + static_cast<ptrdiff_t>(kept), 0.0);
  double reached = 0;
  size_t last = 0;  // with any share: for sums that rounding left below 1
  for (size_t i = 0; i < kept; ++i) {
    if (shares[i] > 0) last = i;
    reached += shares[i];
    if (uniform * total < reached) return ids[i];
  }
  return ids[last];
}

void SweepSampling(simt::SweepReport* report) {
  Rng rng(91);
  for (const uint32_t vocab : {1u, 2u, 31u, 100u, 511u, 512u, 513u, 1500u}) {
    SweepBatch(vocab, vocab > 512 && !report->thorough() ? 8 : 25, &rng, report);
  }
  if (report->thorough()) SweepBatch(151936, 16, &rng, report);
  Batch unfit;
  unfit.vocab = 3;
  const float nan = std::nanf("");
  unfit.logits = {1,          nan,        2,          0, 0, 0, kInfinity, 1,          1, 0, 0, 0,
                  -kInfinity, -kInfinity, -kInfinity, 0, 0, 0, -0,        -kInfinity, 0, 0, 0, 0};
  unfit.params.assign(4, {});
  unfit.uniforms.assign(4, 0.6);
  std::vector<uint32_t> tokens;
  if (!report->ExpectOk(Run(unfit, 0, 4, &tokens), "unfit rows")) return;
  report->Expect(tokens == std::vector<uint32_t>({kNoToken, kNoToken, kNoToken, 2}), "unfit rows got tokens");
  report->Expect(SampleCuda({.rows = 1}, nullptr).code == GpuCode::kInvalid, "no vocabulary is not refused");
  report->Expect(
      SampleCuda({.stride = 1u << 20, .rows = 1, .vocab = 1u << 20}, nullptr).code == GpuCode::kUnsupported,
      "a vocabulary of 2^20 is not refused");
}

}  // namespace epic
