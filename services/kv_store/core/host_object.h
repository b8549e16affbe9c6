// A verified KV object in a buffer of the host tier. Immutable, thread-safe; whoever holds its shared_ptr
// holds a lease. In memory it has the shape that it has on disk (slab_store.h), in whole pages.
#ifndef EPIC_SERVICES_KV_STORE_CORE_HOST_OBJECT_H_
#define EPIC_SERVICES_KV_STORE_CORE_HOST_OBJECT_H_

#include <memory>
#include <utility>

#include "common/base/check.h"
#include "common/storage/kv_object.h"
#include "common/storage/object_codec.h"
#include "services/kv_store/core/host_memory.h"
#include "services/kv_store/core/slab_store.h"

namespace epic::kv_store {

class HostObject final : public KvObject {
 public:
  // Bytes of the buffer for a layout; where the slab of `layer` starts in it.
  static uint64_t BufferBytes(const KvLayout& layout) {
    return RoundUpToPage(SlabShapeOf(layout).ImageBytes());
  }
  static uint64_t Offset(const KvLayout& layout, uint32_t layer) {
    return layer * SlabShapeOf(layout).stride;
  }

  // REQUIRES: the buffer has BufferBytes(head.layout) and holds the slabs that `head` describes.
  HostObject(ObjectHead head, std::unique_ptr<HostBuffer> buffer)
      : head_(std::move(head)), buffer_(std::move(buffer)) {}

  const KvLayout& layout() const override { return head_.layout; }
  const Digest& build() const override { return head_.build; }
  ByteSpan Layer(uint32_t layer) const override {
    EPIC_CHECK(layer < head_.layout.layers);
    return std::as_const(*buffer_).bytes().subspan(Offset(head_.layout, layer), head_.layout.LayerBytes());
  }
  const ObjectHead& head() const { return head_; }

 private:
  const ObjectHead head_;
  const std::unique_ptr<HostBuffer> buffer_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_HOST_OBJECT_H_
