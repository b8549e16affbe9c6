// A KV object in plain memory, as tests of the engine need them: no store, no lease, no
// checksums, a build digest of zeros. Filled by one thread, immutable once shared. Tests and
// benches only.
#ifndef EPIC_SERVICES_ENGINE_TESTING_PLAIN_OBJECT_H_
#define EPIC_SERVICES_ENGINE_TESTING_PLAIN_OBJECT_H_

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "common/base/check.h"
#include "common/storage/kv_object.h"

namespace epic::testing {

class PlainObject final : public KvObject {
 public:
  explicit PlainObject(const KvLayout& layout) : layout_(layout), bytes_(layout.TotalBytes() + kAlignment) {
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    start_ = (kAlignment - address % kAlignment) % kAlignment;
  }
  const KvLayout& layout() const override { return layout_; }
  const Digest& build() const override { return build_; }
  ByteSpan Layer(uint32_t layer) const override {
    return {bytes_.data() + start_ + layer * layout_.LayerBytes(), layout_.LayerBytes()};
  }
  MutableByteSpan MutableLayer(uint32_t layer) {
    return {bytes_.data() + start_ + layer * layout_.LayerBytes(), layout_.LayerBytes()};
  }

 private:
  static constexpr size_t kAlignment = 64;
  KvLayout layout_;
  Digest build_;
  std::vector<std::byte> bytes_;
  size_t start_ = 0;
};

}  // namespace epic::testing

#endif  // EPIC_SERVICES_ENGINE_TESTING_PLAIN_OBJECT_H_
