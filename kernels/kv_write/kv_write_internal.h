// The implementations behind kv_write.h: each writes rows [begin, end), on the calling thread. Stateless.
// Only kv_write.cc, which has checked the arguments and shares rows out among threads, and the tests of this
// folder look here.
#ifndef EPIC_KERNELS_KV_WRITE_KV_WRITE_INTERNAL_H_
#define EPIC_KERNELS_KV_WRITE_KV_WRITE_INTERNAL_H_

#include "kernels/kv_write/kv_write.h"

namespace epic::internal {

void KvWriteReference(const KvWriteArgs& args, size_t begin, size_t end);
void KvWriteCpu(const KvWriteArgs& args, size_t begin, size_t end);

}  // namespace epic::internal

#endif  // EPIC_KERNELS_KV_WRITE_KV_WRITE_INTERNAL_H_
