// The implementations behind kv_write.h: each writes rows [begin, end), on the calling thread. Only
// kv_write.cc looks here; it has checked the arguments.
#ifndef EPIC_KERNELS_KV_WRITE_KV_WRITE_INTERNAL_H_
#define EPIC_KERNELS_KV_WRITE_KV_WRITE_INTERNAL_H_

#include "kernels/kv_write/kv_write.h"

namespace epic::internal {

void KvWriteReference(const KvWriteArgs& args, size_t begin, size_t end);
void KvWriteCpu(const KvWriteArgs& args, size_t begin, size_t end);

}  // namespace epic::internal

#endif  // EPIC_KERNELS_KV_WRITE_KV_WRITE_INTERNAL_H_
