// The implementations behind attention_mass.h.
#ifndef EPIC_KERNELS_ATTENTION_MASS_ATTENTION_MASS_INTERNAL_H_
#define EPIC_KERNELS_ATTENTION_MASS_ATTENTION_MASS_INTERNAL_H_

#include "kernels/attention_mass/attention_mass.h"

namespace epic::internal {

// All weights of a row and head at once, in double.
bool AttentionMassReference(const AttentionMassArgs& args);
bool AttentionChangeReference(const AttentionChangeArgs& args);

// Tiles by Highway: a pass for each row's highest score and sum, and one for its weights.
bool AttentionMassCpu(const AttentionMassArgs& args, ThreadPool* pool);
bool AttentionChangeCpu(const AttentionChangeArgs& args, ThreadPool* pool);

}  // namespace epic::internal

#endif  // EPIC_KERNELS_ATTENTION_MASS_ATTENTION_MASS_INTERNAL_H_
