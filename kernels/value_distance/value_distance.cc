#include "kernels/value_distance/value_distance.h"

#include "common/base/check.h"
#include "kernels/value_distance/value_distance_internal.h"

namespace epic {

void SquaredDistance(const SquaredDistanceArgs& args, KernelPath path) {
  if (args.rows == 0) return;
  EPIC_CHECK(args.a.data != nullptr && args.out != nullptr && args.out_stride >= args.rows);
  if (path == KernelPath::kReference) return internal::SquaredDistanceReference(args);
  internal::SquaredDistanceCpu(args);
}

}  // namespace epic
