// The GPU's sampling under the emulator: kernels/simt.
#include "kernels/sampling/sampling_cuda.h"

#include <vector>

#include <gtest/gtest.h>

#include "kernels/sampling/sampling_cuda_sweep.h"
#include "kernels/simt/sweep_test_util.h"

namespace epic {
namespace {

class SamplingCudaTest : public simt::SweepTest {};

TEST_P(SamplingCudaTest, DrawsTheTokenThatTheHostDraws) { Run(SweepSampling); }

INSTANTIATE_TEST_SUITE_P(Orders, SamplingCudaTest, ::testing::Values(1, 2, 3));

TEST(SamplingReferenceTest, TheSweepsReferenceDrawsWhatSamplingDraws) {
  Rng rng(92);
  for (int round = 0; round < 300; ++round) {
    const std::vector<float> logits = simt::RandomFloats(1 + rng.Below(60), &rng, 3);
    FilterParams params;
    params.temperature = round % 7 == 0 ? 0.0f : static_cast<float>(0.2 + 2 * rng.Uniform());
    if (rng.Below(2) == 0) params.top_k = static_cast<uint32_t>(1 + rng.Below(20));
    if (rng.Below(2) == 0) params.top_p = static_cast<float>(0.05 + 0.9 * rng.Uniform());
    if (rng.Below(2) == 0) params.min_p = static_cast<float>(0.5 * rng.Uniform());
    const double uniform = rng.Uniform();
    ASSERT_EQ(ReferenceToken(logits, params, uniform), Draw(FilterCandidates(logits, params), uniform))
        << round;
  }
}

}  // namespace
}  // namespace epic
