// The device's side of simt.h: each wrapper is one or a few instructions of sm_80 or later. Code of a
// running kernel, no state. Empty for a C++ compiler, which takes emulated.h. Include simt.h, not
// this.
#ifndef EPIC_KERNELS_SIMT_DEVICE_H_
#define EPIC_KERNELS_SIMT_DEVICE_H_
#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/simt/simt.h"

#define EPIC_KERNEL __global__
#define EPIC_DEVICE __device__ __forceinline__
#define EPIC_HOST_DEVICE __host__ __device__ __forceinline__
#define EPIC_LAUNCH_BOUNDS(threads) __launch_bounds__(threads)
#define EPIC_UNROLL _Pragma("unroll")
#define EPIC_GRID_CONSTANT __grid_constant__
// A static array of the block.
#define EPIC_SHARED(type, name, count)         \
  __shared__ type name##_storage[count];       \
  const ::epic::simt::SharedArray<type> name { \
    name##_storage, size_t { count }           \
  }

namespace epic::simt {

constexpr uint32_t kFullMask = 0xffffffffu;

EPIC_DEVICE uint32_t ThreadIndex() { return threadIdx.x; }
EPIC_DEVICE uint32_t BlockThreads() { return blockDim.x; }
EPIC_DEVICE Dim3 BlockIndex() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
EPIC_DEVICE uint32_t Lane() { return threadIdx.x % kWarp; }
EPIC_DEVICE uint32_t WarpIndex() { return threadIdx.x / kWarp; }

// Shared memory of a block. Only the emulator checks the bounds.
template <typename T>
struct SharedArray {
  T* base;
  size_t count;
  EPIC_DEVICE T& operator[](size_t index) const { return base[index]; }
  // `length` elements from `index` on.
  EPIC_DEVICE T* At(size_t index, size_t length) const { return base + index; }
};

// Cuts the launch's dynamic shared memory into arrays, each aligned to 128 bytes, in the same order in every
// thread.
class SharedCarver {
 public:
  EPIC_DEVICE SharedCarver() {
    extern __shared__ __align__(128) unsigned char epic_dynamic_shared[];
    base_ = epic_dynamic_shared;
  }
  template <typename T>
  EPIC_DEVICE SharedArray<T> Take(size_t count) {
    T* at = reinterpret_cast<T*>(base_ + used_);
    used_ += (count * sizeof(T) + 127) / 128 * 128;
    return {at, count};
  }

 private:
  unsigned char* base_;
  size_t used_ = 0;
};

EPIC_DEVICE void SyncBlock() { __syncthreads(); }
EPIC_DEVICE bool SyncBlockOr(bool value) { return __syncthreads_or(value) != 0; }
EPIC_DEVICE void SyncWarp() { __syncwarp(kFullMask); }

template <typename T>
EPIC_DEVICE T Shuffle(T value, uint32_t lane) {
  return __shfl_sync(kFullMask, value, static_cast<int>(lane));
}
template <typename T>
EPIC_DEVICE T ShuffleXor(T value, uint32_t mask) {
  return __shfl_xor_sync(kFullMask, value, static_cast<int>(mask));
}
// Lane l gets the value of lane l - delta; lanes below delta keep their own.
template <typename T>
EPIC_DEVICE T ShuffleUp(T value, uint32_t delta) {
  return __shfl_up_sync(kFullMask, value, delta);
}
EPIC_DEVICE uint32_t Ballot(bool value) { return __ballot_sync(kFullMask, value); }
EPIC_DEVICE bool Any(bool value) { return __any_sync(kFullMask, value) != 0; }
EPIC_DEVICE bool All(bool value) { return __all_sync(kFullMask, value) != 0; }
EPIC_DEVICE uint32_t ReduceMax(uint32_t value) { return __reduce_max_sync(kFullMask, value); }
EPIC_DEVICE uint32_t ReduceMin(uint32_t value) { return __reduce_min_sync(kFullMask, value); }
EPIC_DEVICE uint32_t ReduceAdd(uint32_t value) { return __reduce_add_sync(kFullMask, value); }

// Each returns the value before. 64-bit sums are of integers: order changes nothing.
EPIC_DEVICE uint32_t AtomicAdd(uint32_t* at, uint32_t value) { return atomicAdd(at, value); }
EPIC_DEVICE uint64_t AtomicAdd(uint64_t* at, uint64_t value) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
}
EPIC_DEVICE uint32_t AtomicOr(uint32_t* at, uint32_t value) { return atomicOr(at, value); }
EPIC_DEVICE uint32_t AtomicMax(uint32_t* at, uint32_t value) { return atomicMax(at, value); }
EPIC_DEVICE uint32_t AtomicMin(uint32_t* at, uint32_t value) { return atomicMin(at, value); }

EPIC_DEVICE uint32_t SharedAddress(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// Starts copying 16 bytes from global to shared memory, or zeros when not `valid` (nothing is read then).
// REQUIRES: both addresses are multiples of 16. Seen by this thread after CpAsyncWait, by others after a
// barrier that follows it.
EPIC_DEVICE void CpAsync16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(SharedAddress(shared)), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}
EPIC_DEVICE void CpAsyncCommit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
// Until at most `kGroups` of this thread's committed groups are under way.
template <int kGroups>
EPIC_DEVICE void CpAsyncWait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kGroups) : "memory");
}

// Loads 8x8 matrices of 16-bit elements. Lane l gives the address of row l%8 of matrix l/8 and gets elements
// 2(l%4) and 2(l%4)+1 of row l/4 of each matrix; with Trans, of column l/4.
// REQUIRES: addresses of shared memory, multiples of 16 (of lanes below 8, 16, 32 for one, two, four).
EPIC_DEVICE void LdMatrix1(uint32_t* out, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];\n"
               : "=r"(out[0])
               : "r"(SharedAddress(row))
               : "memory");
}
EPIC_DEVICE void LdMatrix2(uint32_t* out, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\n"
               : "=r"(out[0]), "=r"(out[1])
               : "r"(SharedAddress(row))
               : "memory");
}
EPIC_DEVICE void LdMatrix4(uint32_t* out, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(SharedAddress(row))
               : "memory");
}
EPIC_DEVICE void LdMatrix1Trans(uint32_t* out, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];\n"
               : "=r"(out[0])
               : "r"(SharedAddress(row))
               : "memory");
}
EPIC_DEVICE void LdMatrix2Trans(uint32_t* out, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n"
               : "=r"(out[0]), "=r"(out[1])
               : "r"(SharedAddress(row))
               : "memory");
}
EPIC_DEVICE void LdMatrix4Trans(uint32_t* out, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// c[16][8] += a[16][16] · b[16][8], bf16 in and f32 sums, with g = lane/4 and t = lane%4:
// a: {row g, columns 2t 2t+1}, {row g+8, same}, {row g, columns 2t+8 2t+9}, {row g+8, same};
// b: {rows 2t 2t+1, column g}, {rows 2t+8 2t+9, column g}; c: {row g, columns 2t 2t+1}, {row g+8, same}.
EPIC_DEVICE void MmaBf16(float* c, const uint32_t* a, const uint32_t* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// 2^x within two units in the last place; exactly 1 at 0 and 0 at minus infinity.
EPIC_DEVICE float Exp2(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(out) : "f"(x));
  return out;
}
// One rounding each, never fused with a neighbour: for results that must not depend on the compiler.
EPIC_DEVICE float Fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
EPIC_DEVICE float Mul(float a, float b) { return __fmul_rn(a, b); }
EPIC_DEVICE float Add(float a, float b) { return __fadd_rn(a, b); }

EPIC_DEVICE float BitsToFloat(uint32_t bits) { return __uint_as_float(bits); }
EPIC_DEVICE uint32_t FloatToBits(float value) { return __float_as_uint(value); }
EPIC_DEVICE uint32_t CountBits(uint32_t bits) {
  return static_cast<uint32_t>(__popc(static_cast<int>(bits)));
}

// Two floats rounded to bf16, the first in the low half.
EPIC_DEVICE uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

inline GpuStatus StatusOf(cudaError_t error) {
  if (error == cudaSuccess) return {};
  return {GpuCode::kDevice, cudaGetErrorString(error)};
}

// Enqueues kernel(args...). REQUIRES: `threads` is a multiple of 32, at most 1024.
template <typename... Params, typename... Args>
GpuStatus Launch(void (*kernel)(Params...), Dim3 grid, uint32_t threads, size_t shared_bytes,
                 GpuStream stream, const Args&... args) {
  if (shared_bytes > 48 * 1024) {
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return StatusOf(error);
  }
  kernel<<<dim3(grid.x, grid.y, grid.z), threads, shared_bytes, stream>>>(args...);
  return StatusOf(cudaGetLastError());
}

}  // namespace epic::simt

#endif  // __CUDACC__
#endif  // EPIC_KERNELS_SIMT_DEVICE_H_
