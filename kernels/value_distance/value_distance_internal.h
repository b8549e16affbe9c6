// The implementations behind value_distance.h: each does the whole call, on the calling thread. Stateless.
// Only value_distance.cc, which has checked the arguments, and the tests and sweeps of this folder look
// here.
#ifndef EPIC_KERNELS_VALUE_DISTANCE_VALUE_DISTANCE_INTERNAL_H_
#define EPIC_KERNELS_VALUE_DISTANCE_VALUE_DISTANCE_INTERNAL_H_

#include "kernels/value_distance/value_distance.h"

namespace epic::internal {

void SquaredDistanceReference(const SquaredDistanceArgs& args);
void SquaredDistanceCpu(const SquaredDistanceArgs& args);

}  // namespace epic::internal

#endif  // EPIC_KERNELS_VALUE_DISTANCE_VALUE_DISTANCE_INTERNAL_H_
