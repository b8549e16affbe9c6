// Memory in big pages where the system has them: what is read at random over hundreds of megabytes spends
// more time on finding pages than on reading them. Free functions and an allocator; any thread.
#ifndef EPIC_SERVICES_KV_STORE_CORE_HUGE_PAGES_H_
#define EPIC_SERVICES_KV_STORE_CORE_HUGE_PAGES_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

namespace epic::kv_store {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

constexpr size_t RoundUpToHugePage(size_t bytes) {
  return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

// Memory for `bytes`, in big pages if it fills one. Throws std::bad_alloc, as new does.
inline void* AllocateHuge(size_t bytes, size_t alignment) {
  if (bytes < kHugePageBytes) return ::operator new(bytes, std::align_val_t(alignment));
  const size_t whole = RoundUpToHugePage(bytes);
  void* const mapped =
      mmap(nullptr, whole + kHugePageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  std::byte* const begin = static_cast<std::byte*>(mapped);
  const size_t head =
      RoundUpToHugePage(reinterpret_cast<uintptr_t>(begin)) - reinterpret_cast<uintptr_t>(begin);
  // What lies before and behind whole pages goes back; advice only: ordinary pages do as well.
  if (head > 0) munmap(begin, head);
  munmap(begin + head + whole, kHugePageBytes - head);
  madvise(begin + head, whole, MADV_HUGEPAGE);
  return begin + head;
}

// REQUIRES: the same arguments as the call that gave it.
inline void FreeHuge(void* memory, size_t bytes, size_t alignment) {
  if (bytes < kHugePageBytes) return ::operator delete(memory, std::align_val_t(alignment));
  munmap(memory, RoundUpToHugePage(bytes));
}

// For containers.
template <typename T>
class HugeAllocator {
 public:
  using value_type = T;
  HugeAllocator() = default;
  template <typename Other>
  explicit(false) HugeAllocator(const HugeAllocator<Other>&) {}
  T* allocate(size_t count) { return static_cast<T*>(AllocateHuge(count * sizeof(T), alignof(T))); }
  void deallocate(T* memory, size_t count) { FreeHuge(memory, count * sizeof(T), alignof(T)); }
  bool operator==(const HugeAllocator&) const = default;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_HUGE_PAGES_H_
