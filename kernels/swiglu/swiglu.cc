#include "kernels/swiglu/swiglu.h"

#include "common/base/check.h"
#include "kernels/api/parallel.h"
#include "kernels/swiglu/swiglu_internal.h"

namespace epic {
namespace {
constexpr size_t kBlockRows = 16;
}  // namespace

void SwiGlu(const SwiGluArgs& args, ThreadPool* pool, KernelPath path) {
  EPIC_CHECK(args.in_stride >= args.dim && args.out_stride >= args.dim);
  ForRowBlocks(pool, args.rows, kBlockRows, [&](size_t begin, size_t end) {
    if (path == KernelPath::kReference) return internal::SwiGluReference(args, begin, end);
    internal::SwiGluCpu(args, begin, end);
  });
}

}  // namespace epic
