// What a GPU kernel of ours includes: indices, barriers, warp collectives, atomics, shared memory,
// asynchronous copies and tensor-core products, under one spelling. nvcc compiles the same source for a
// device (device.h); a C++ compiler compiles it for the emulator (emulated.h), where tests run it on a CPU.
//
// All collectives are of a full warp of 32 lanes; blocks are one-dimensional, a multiple of 32 threads.
// kernels/simt/README.md says what the emulator checks.
#ifndef EPIC_KERNELS_SIMT_SIMT_H_
#define EPIC_KERNELS_SIMT_SIMT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/api/gpu.h"

namespace epic::simt {

constexpr uint32_t kWarp = 32;
// What every device of sm_80 and later grants to a block that asks for it (163 KiB).
constexpr size_t kMaxSharedBytes = 166912;

struct Dim3 {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

// Sixteen bytes, moved at once. REQUIRES of every use: the address is a multiple of 16.
struct alignas(16) Bits128 {
  uint32_t word[4];
};

}  // namespace epic::simt

#ifdef __CUDACC__
#include "kernels/simt/device.h"
#else
#include "kernels/simt/emulated.h"
#endif

#endif  // EPIC_KERNELS_SIMT_SIMT_H_
