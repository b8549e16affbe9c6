#include "kernels/api/dispatch.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace epic {
namespace {

constexpr long kRequestExtendedState = 0x1023;  // ARCH_REQ_XCOMP_PERM
constexpr unsigned long kTileData = 18;         // XFEATURE_XTILEDATA

uint64_t ReadXcr0() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

bool HasAll(uint64_t value, uint64_t mask) { return (value & mask) == mask; }

// Tile registers belong to a process only after it asked for them (Linux 5.16 and later).
bool RequestTiles() { return ::syscall(SYS_arch_prctl, kRequestExtendedState, kTileData) == 0; }

CpuFeatures Detect() {
  CpuFeatures features;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return features;
  const bool xsave = HasAll(c, (1u << 27) | (1u << 28));  // OSXSAVE, AVX
  const bool fma = HasAll(c, (1u << 12) | (1u << 29));    // FMA, F16C
  if (!xsave || !fma) return features;
  const uint64_t xcr0 = ReadXcr0();
  if (!HasAll(xcr0, 0x6)) return features;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return features;
  const uint32_t leaf7_b = b;
  const uint32_t leaf7_c = c;
  const uint32_t leaf7_d = d;
  features.avx2 = HasAll(leaf7_b, (1u << 5) | (1u << 3) | (1u << 8));  // AVX2, BMI1, BMI2
  // AVX512 F, DQ, CD, BW, VL.
  const uint32_t avx512 = (1u << 16) | (1u << 17) | (1u << 28) | (1u << 30) | (1u << 31);
  features.avx512 = features.avx2 && HasAll(xcr0, 0xe6) && HasAll(leaf7_b, avx512);
  features.avx512_vnni = features.avx512 && HasAll(leaf7_c, 1u << 11);
  if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) {
    features.avx512_bf16 = features.avx512 && HasAll(a, 1u << 5);
  }
  // AMX-BF16, AMX-TILE, and the two tile states.
  if (features.avx512_bf16 && HasAll(leaf7_d, (1u << 22) | (1u << 24)) && HasAll(xcr0, 0x60000)) {
    features.amx_bf16 = RequestTiles();
  }
  return features;
}

}  // namespace

const CpuFeatures& GetCpuFeatures() {
  static const CpuFeatures features = Detect();
  return features;
}

std::string DescribeCpu() {
  const CpuFeatures& features = GetCpuFeatures();
  if (features.amx_bf16) return "AMX bf16";
  if (features.avx512_bf16) return "AVX-512 bf16";
  if (features.avx512) return "AVX-512";
  if (features.avx2) return "AVX2";
  return "baseline x86-64";
}

}  // namespace epic
