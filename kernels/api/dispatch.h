// Which implementation of an op runs: chosen from the CPU at run time, or forced by a test or a bench.
//
// The CPU is read once per process, at the first question, from any thread; nothing here owns memory. What
// Highway compiles for which target is in simd_targets.h; whether a product is bf16 or f32 is asked of
// matmul.h.
#ifndef EPIC_KERNELS_API_DISPATCH_H_
#define EPIC_KERNELS_API_DISPATCH_H_

#include <cstdint>
#include <string>

namespace epic {

enum class KernelPath : uint8_t {
  kAuto = 0,   // the best that this CPU has
  kReference,  // slow, obvious, double accumulation
  kCpu,        // the optimised one
};

// What the CPU offers, read once by CPUID (and permission for AMX).
struct CpuFeatures {
  bool avx2 = false;
  bool avx512 = false;
  bool avx512_bf16 = false;
  bool avx512_vnni = false;
  bool amx_bf16 = false;
};
const CpuFeatures& GetCpuFeatures();
// For reports: "AMX bf16", "AVX-512 bf16", "AVX-512", "AVX2", "baseline x86-64".
std::string DescribeCpu();

}  // namespace epic

#endif  // EPIC_KERNELS_API_DISPATCH_H_
