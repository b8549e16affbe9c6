// Memory that kernels read and write, for sweeps and benches: a device's under CUDA, exact pieces of the heap
// under the emulator (so that AddressSanitizer sees an access past the end). Chosen at link time.
//
// One thread. A failed allocation or copy ends the program: these are tests' helpers, not a service's.
#ifndef EPIC_KERNELS_SIMT_DEVICE_MEMORY_H_
#define EPIC_KERNELS_SIMT_DEVICE_MEMORY_H_

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/api/gpu.h"

namespace epic::simt {

// Null for 0 bytes; otherwise aligned to 256 bytes.
void* AllocateDevice(size_t bytes);
void FreeDevice(void* memory);
void CopyToDevice(void* to, const void* from, size_t bytes);
void CopyFromDevice(void* to, const void* from, size_t bytes);
// Waits for all work; what failed since the last call.
GpuStatus SynchronizeDevice();

// An array in device memory. A copy of an array has memory of its own.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::span<const T> values) { Assign(values); }
  explicit DeviceArray(const std::vector<T>& values) { Assign(values); }
  DeviceArray(size_t count, T value) { Assign(std::vector<T>(count, value)); }
  DeviceArray(DeviceArray&& other) noexcept : data_(other.data_), count_(other.count_) {
    other.data_ = nullptr;
    other.count_ = 0;
  }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    if (this != &other) {
      FreeDevice(data_);
      data_ = other.data_;
      count_ = other.count_;
      other.data_ = nullptr;
      other.count_ = 0;
    }
    return *this;
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { FreeDevice(data_); }

  void Assign(std::span<const T> values) {
    if (values.size() != count_) {
      FreeDevice(data_);
      data_ = static_cast<T*>(AllocateDevice(values.size() * sizeof(T)));
      count_ = values.size();
    }
    if (count_ > 0) CopyToDevice(data_, values.data(), count_ * sizeof(T));
  }
  std::vector<T> Download() const {
    std::vector<T> values(count_);
    if (count_ > 0) CopyFromDevice(values.data(), data_, count_ * sizeof(T));
    return values;
  }
  T* data() const { return data_; }
  size_t size() const { return count_; }

 private:
  T* data_ = nullptr;
  size_t count_ = 0;
};

}  // namespace epic::simt

#endif  // EPIC_KERNELS_SIMT_DEVICE_MEMORY_H_
