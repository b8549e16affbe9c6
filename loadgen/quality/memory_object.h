// A KV object in plain memory of this process, filled layer by layer by a compile. Immutable once shared.
#ifndef EPIC_LOADGEN_QUALITY_MEMORY_OBJECT_H_
#define EPIC_LOADGEN_QUALITY_MEMORY_OBJECT_H_

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "common/base/check.h"
#include "common/storage/kv_object.h"

namespace epic::loadgen {

class MemoryObject final : public KvObject {
 public:
  explicit MemoryObject(const KvLayout& layout)
      : layout_(layout),
        stride_((layout.LayerBytes() + kAlignment - 1) / kAlignment * kAlignment),
        bytes_(static_cast<std::byte*>(std::aligned_alloc(kAlignment, stride_ * layout.layers))) {
    EPIC_CHECK(bytes_ != nullptr);
  }

  const KvLayout& layout() const override { return layout_; }
  const Digest& build() const override { return build_; }
  ByteSpan Layer(uint32_t layer) const override {
    EPIC_CHECK(layer < layout_.layers);
    return {bytes_.get() + layer * stride_, layout_.LayerBytes()};
  }
  MutableByteSpan MutableLayer(uint32_t layer) {
    EPIC_CHECK(layer < layout_.layers);
    return {bytes_.get() + layer * stride_, layout_.LayerBytes()};
  }
  uint64_t bytes() const { return stride_ * layout_.layers; }

 private:
  static constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };

  const KvLayout layout_;
  const size_t stride_;
  const Digest build_;
  const std::unique_ptr<std::byte[], Free> bytes_;
};

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_QUALITY_MEMORY_OBJECT_H_
