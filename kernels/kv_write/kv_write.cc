#include "kernels/kv_write/kv_write.h"

#include "common/base/check.h"
#include "kernels/api/parallel.h"
#include "kernels/kv_write/kv_write_internal.h"

namespace epic {
namespace {
constexpr size_t kBlockRows = 64;
}  // namespace

void KvWrite(const KvWriteArgs& args, ThreadPool* pool, KernelPath path) {
  if (args.rows == 0) return;
  EPIC_CHECK(args.rope == nullptr ||
             (args.positions != nullptr && args.rope->half_dim() * 2 == args.head_dim));
  EPIC_CHECK(args.in_stride >= size_t{args.kv_heads} * args.head_dim);
  EPIC_CHECK((args.first_row + args.rows) * args.head_dim <= args.head_stride);
  ForRowBlocks(pool, args.rows, kBlockRows, [&](size_t begin, size_t end) {
    if (path == KernelPath::kReference) return internal::KvWriteReference(args, begin, end);
    internal::KvWriteCpu(args, begin, end);
  });
}

}  // namespace epic
