// Memory for direct I/O: begins at a page, whole pages, zeroed. Owned by who holds it; one thread at a time.
#ifndef EPIC_SERVICES_KV_STORE_CORE_ALIGNED_BUFFER_H_
#define EPIC_SERVICES_KV_STORE_CORE_ALIGNED_BUFFER_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "common/base/bytes.h"
#include "common/base/check.h"
#include "services/kv_store/core/slab_store.h"

namespace epic::kv_store {

class AlignedBuffer {
 public:
  // REQUIRES: bytes > 0; memory is there.
  explicit AlignedBuffer(uint64_t bytes)
      : bytes_(RoundUpToPage(bytes)),
        data_(static_cast<std::byte*>(std::aligned_alloc(kSlabPageBytes, bytes_)), &std::free) {
    EPIC_CHECK(bytes > 0 && data_ != nullptr);
    std::memset(data_.get(), 0, bytes_);
  }
  MutableByteSpan bytes() { return {data_.get(), bytes_}; }

 private:
  uint64_t bytes_;
  std::unique_ptr<std::byte, void (*)(void*)> data_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_ALIGNED_BUFFER_H_
