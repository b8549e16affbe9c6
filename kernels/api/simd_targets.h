// The SIMD targets that every *_cpu.cc is compiled for: AVX-512, AVX2 and the baseline. Include it before any
// header of Highway.
//
// Macros only. Which of the targets runs is Highway's choice by CPUID, once per process; tests force one.
#ifndef EPIC_KERNELS_API_SIMD_TARGETS_H_
#define EPIC_KERNELS_API_SIMD_TARGETS_H_

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)

#endif  // EPIC_KERNELS_API_SIMD_TARGETS_H_
