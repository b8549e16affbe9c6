// The sum under every probability: exp over a whole row of logits. Private to this folder.
//
// A pure function; one Highway implementation in double, dispatched at run time. Eight partial sums in a
// fixed order on every target, so targets differ by the rounding of exp only (1 ULP).
#ifndef EPIC_KERNELS_SAMPLING_SUM_EXP_H_
#define EPIC_KERNELS_SAMPLING_SUM_EXP_H_

#include <span>

namespace epic::internal {

// Sum of exp((logits[i] - highest) / temperature). Minus infinity adds nothing.
// REQUIRES: no logit is above `highest` or NaN; temperature > 0.
double SumOfExp(std::span<const float> logits, float highest, double temperature);

}  // namespace epic::internal

#endif  // EPIC_KERNELS_SAMPLING_SUM_EXP_H_
