// Values by a 32-bit number that stays theirs until they are erased: half the size of a pointer, and memory
// in blocks that never move, so that growing copies nothing and wastes at most one block: small ones first,
// later of big pages (huge_pages.h). The number of an erased value is given out again. Copying copies every
// value. No locks: one thread at a time, as its owner's mutex says.
#ifndef EPIC_SERVICES_KV_STORE_CORE_INDEXED_POOL_H_
#define EPIC_SERVICES_KV_STORE_CORE_INDEXED_POOL_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "services/kv_store/core/huge_pages.h"

namespace epic::kv_store {

template <typename T>
class IndexedPool {
 public:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  IndexedPool() = default;
  IndexedPool(const IndexedPool& other) : free_(other.free_) {
    blocks_.reserve(other.blocks_.size());
    for (uint32_t index = 0; index < other.end_; ++index) *Grow() = other[index];
  }
  IndexedPool& operator=(const IndexedPool&) = delete;
  ~IndexedPool() {
    for (uint32_t index = 0; index < end_; ++index) std::destroy_at(&(*this)[index]);
    for (size_t block = 0; block < blocks_.size(); ++block) {
      FreeHuge(blocks_[block], SizeOf(block) * sizeof(T), alignof(T));
    }
  }

  uint32_t Add(T value) {
    if (free_.empty()) {
      *Grow() = std::move(value);
      return end_ - 1;
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    (*this)[index] = std::move(value);
    return index;
  }
  // REQUIRES: `index` was given by Add and not erased since.
  void Erase(uint32_t index) {
    (*this)[index] = T();
    free_.push_back(index);
  }
  T& operator[](uint32_t index) {
    return index < kBig ? blocks_[index / kSmall][index % kSmall]
                        : blocks_[kSmallBlocks - 1 + index / kBig][index % kBig];
  }
  const T& operator[](uint32_t index) const { return const_cast<IndexedPool&>(*this)[index]; }

  // Numbers given out are below it; erased values read as T().
  uint32_t end() const { return end_; }
  uint32_t size() const { return end_ - static_cast<uint32_t>(free_.size()); }
  // Of the pool itself; not what its values own.
  uint64_t memory_bytes() const {
    uint64_t bytes = blocks_.capacity() * sizeof(T*) + free_.capacity() * sizeof(uint32_t);
    for (size_t block = 0; block < blocks_.size(); ++block) bytes += SizeOf(block) * sizeof(T);
    return bytes;
  }

 private:
  // Values of a small block, and of a big one, which fills two big pages. As many as one big block has lie in
  // small ones.
  static constexpr uint32_t kSmall = 128;
  static constexpr uint32_t kSmallBlocks = 2 * kHugePageBytes / sizeof(T) / kSmall;
  static constexpr uint32_t kBig = kSmallBlocks * kSmall;
  static_assert(kSmallBlocks > 0);

  static size_t SizeOf(size_t block) { return block < kSmallBlocks ? kSmall : kBig; }
  // A new value at the end.
  T* Grow() {
    EPIC_CHECK(end_ < kNone);
    const bool full = end_ < kBig ? end_ % kSmall == 0 : end_ % kBig == 0;
    if (full) {
      const size_t bytes = SizeOf(blocks_.size()) * sizeof(T);
      blocks_.push_back(static_cast<T*>(AllocateHuge(bytes, alignof(T))));
    }
    return std::construct_at(&(*this)[end_++]);
  }

  std::vector<T*> blocks_;
  std::vector<uint32_t> free_;
  uint32_t end_ = 0;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_INDEXED_POOL_H_
