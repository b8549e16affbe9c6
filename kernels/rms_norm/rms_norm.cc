#include "kernels/rms_norm/rms_norm.h"

#include "common/base/check.h"
#include "kernels/api/parallel.h"
#include "kernels/rms_norm/rms_norm_internal.h"

namespace epic {
namespace {
constexpr size_t kBlockRows = 32;
}  // namespace

void RmsNorm(const RmsNormArgs& args, ThreadPool* pool, KernelPath path) {
  EPIC_CHECK(args.dim > 0 && args.x_stride >= args.groups * args.dim &&
             args.out_stride >= args.groups * args.dim);
  ForRowBlocks(pool, args.rows, kBlockRows, [&](size_t begin, size_t end) {
    if (path == KernelPath::kReference) return internal::RmsNormReference(args, begin, end);
    internal::RmsNormCpu(args, begin, end);
  });
}

}  // namespace epic
