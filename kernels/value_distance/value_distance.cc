#include "kernels/value_distance/value_distance.h"

#include "kernels/value_distance/value_distance_internal.h"

namespace epic {

void SquaredDistance(const SquaredDistanceArgs& args, KernelPath path) {
  if (path == KernelPath::kReference) return internal::SquaredDistanceReference(args);
  internal::SquaredDistanceCpu(args);
}

}  // namespace epic
