#include <cuda_runtime.h>

#include "common/base/check.h"
#include "kernels/simt/device_memory.h"

namespace epic::simt {

void* AllocateDevice(size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  EPIC_CHECK(cudaMalloc(&memory, bytes) == cudaSuccess);
  return memory;
}

void FreeDevice(void* memory) { EPIC_CHECK(cudaFree(memory) == cudaSuccess); }

void CopyToDevice(void* to, const void* from, size_t bytes) {
  EPIC_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice) == cudaSuccess);
}

void CopyFromDevice(void* to, const void* from, size_t bytes) {
  EPIC_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
}

GpuStatus SynchronizeDevice() {
  const cudaError_t error = cudaDeviceSynchronize();
  if (error == cudaSuccess) return {};
  return {GpuCode::kDevice, cudaGetErrorString(error)};
}

}  // namespace epic::simt
