// Memory that a worker thread reuses from call to call: it grows and is freed with its thread. The contents
// are undefined at the start of a task.
//
// Each object belongs to one thread (static thread_local in the op that uses it), so two uses at once in one
// task need two objects. Not counted in the engine's memory: it is bounded by an op's tile.
#ifndef EPIC_KERNELS_API_SCRATCH_H_
#define EPIC_KERNELS_API_SCRATCH_H_

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace epic {

class Scratch {
 public:
  // At least `count` values of T, aligned to 64 bytes, valid until the next call. Throws std::bad_alloc.
  template <typename T>
  T* Get(size_t count) {
    const size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
    if (bytes > capacity_) {
      memory_.reset();
      capacity_ = 0;
      memory_.reset(std::aligned_alloc(64, bytes));
      if (memory_ == nullptr) throw std::bad_alloc();
      capacity_ = bytes;
    }
    return static_cast<T*>(memory_.get());
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  size_t capacity_ = 0;
};

}  // namespace epic

#endif  // EPIC_KERNELS_API_SCRATCH_H_
