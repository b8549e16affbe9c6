// Values by a 32-bit number that stays theirs until they are erased: half the size of a pointer, and memory
// in blocks that never move, so that growing copies nothing and wastes at most one block. The number of an
// erased value is given out again. Copying copies every value. No locks: one thread at a time, as its owner's
// mutex says.
#ifndef EPIC_SERVICES_KV_STORE_CORE_INDEXED_POOL_H_
#define EPIC_SERVICES_KV_STORE_CORE_INDEXED_POOL_H_

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/check.h"

namespace epic::kv_store {

template <typename T>
class IndexedPool {
 public:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  IndexedPool() = default;
  IndexedPool(IndexedPool&&) noexcept = default;
  IndexedPool& operator=(IndexedPool&&) noexcept = default;
  IndexedPool(const IndexedPool& other) : free_(other.free_), end_(other.end_) {
    blocks_.reserve(other.blocks_.size());
    for (const auto& block : other.blocks_) blocks_.push_back(std::make_unique<Block>(*block));
  }
  IndexedPool& operator=(const IndexedPool&) = delete;

  uint32_t Add(T value) {
    uint32_t index = end_;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else {
      EPIC_CHECK(end_ < kNone);
      if (end_ % kBlock == 0) blocks_.push_back(std::make_unique<Block>());
      ++end_;
    }
    (*this)[index] = std::move(value);
    return index;
  }
  // REQUIRES: `index` was given by Add and not erased since.
  void Erase(uint32_t index) {
    (*this)[index] = T();
    free_.push_back(index);
  }
  T& operator[](uint32_t index) { return (*blocks_[index / kBlock])[index % kBlock]; }
  const T& operator[](uint32_t index) const { return (*blocks_[index / kBlock])[index % kBlock]; }

  // Numbers given out are below it; erased values read as T().
  uint32_t end() const { return end_; }
  uint32_t size() const { return end_ - static_cast<uint32_t>(free_.size()); }
  // Of the pool itself; not what its values own.
  uint64_t memory_bytes() const {
    return blocks_.size() * sizeof(Block) + blocks_.capacity() * sizeof(blocks_[0]) +
           free_.capacity() * sizeof(uint32_t);
  }

 private:
  static constexpr uint32_t kBlock = 256;
  using Block = std::array<T, kBlock>;

  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<uint32_t> free_;
  uint32_t end_ = 0;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_INDEXED_POOL_H_
