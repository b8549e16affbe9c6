#include <cstdlib>
#include <cstring>

#include "common/base/check.h"
#include "kernels/simt/device_memory.h"

namespace epic::simt {
namespace {
constexpr size_t kAlignment = 256;
}  // namespace

void* AllocateDevice(size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  EPIC_CHECK(posix_memalign(&memory, kAlignment, bytes) == 0);
  return memory;
}

void FreeDevice(void* memory) { std::free(memory); }

void CopyToDevice(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

void CopyFromDevice(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

GpuStatus SynchronizeDevice() { return {}; }

}  // namespace epic::simt
