// The emulator's side of simt.h: the threads of a block are fibres of the calling thread, blocks run one
// after another, and a launch returns when all have ended. Include simt.h, not this.
//
// What a launch does wrong (a divergent barrier, an index out of bounds, a copy that nobody waited for) ends
// it with a status whose message names block, thread and line. Order of threads between barriers:
// SetOrderSeed.
#ifndef EPIC_KERNELS_SIMT_EMULATED_H_
#define EPIC_KERNELS_SIMT_EMULATED_H_
#ifndef __CUDACC__

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <type_traits>

#include "kernels/api/dtype.h"
#include "kernels/simt/simt.h"

#define EPIC_KERNEL
#define EPIC_DEVICE inline
#define EPIC_HOST_DEVICE inline
#define EPIC_LAUNCH_BOUNDS(threads)
#define EPIC_UNROLL
#define EPIC_GRID_CONSTANT
#define EPIC_SHARED(type, name, count) \
  const ::epic::simt::SharedArray<type> name = ::epic::simt::internal::StaticShared<type>(count)

namespace epic::simt {

// Decides the order of blocks, and of threads between barriers, of this thread's launches from now on,
// another one for each launch. A kernel must give the same bytes under every seed.
void SetOrderSeed(uint64_t seed);

namespace internal {

// Where a kernel called a wrapper: the default argument `Site()` is its line.
struct Site {
  const char* file;
  int line;
  constexpr Site(const char* at_file = __builtin_FILE(), int at_line = __builtin_LINE())
      : file(at_file), line(at_line) {}
  bool operator==(const Site& other) const {
    return line == other.line && (file == other.file || std::strcmp(file, other.file) == 0);
  }
};

// What a kernel's thread sees of itself; the runner keeps it up to date.
struct ThreadView {
  uint32_t thread = 0;
  uint32_t threads = 0;
  Dim3 block;
  unsigned char* dynamic_shared = nullptr;
  size_t dynamic_shared_bytes = 0;
};
inline thread_local ThreadView* current = nullptr;

// Runs once per warp, when all its lanes have come: lanes[l] is what lane l passed.
using CollectiveFn = void (*)(void* const* lanes);
void WarpCollective(CollectiveFn fn, void* operands, Site site);
// Waits for all threads of the block; returns the `or` of their values.
bool BlockBarrier(bool value, Site site);
// Ends the launch with this message; does not return.
[[noreturn]] void Fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void FailIndex(size_t index, size_t length, size_t count);
// The block's static array of this line; the first thread that comes makes it.
void* StaticSharedBytes(size_t bytes, Site site);
// Fails unless [at, at + bytes) is shared memory of the running block and `at` a multiple of `alignment`.
void CheckShared(const void* at, size_t bytes, size_t alignment, const char* what, Site site);
void StartCopy(void* shared, const void* global, bool valid, Site site);
void CommitCopies();
void WaitCopies(uint32_t groups);
void LoadMatrices(uint32_t* out, const void* row, uint32_t matrices, bool transposed, Site site);
void Multiply(float* c, const uint32_t* a, const uint32_t* b, Site site);
GpuStatus RunGrid(Dim3 grid, uint32_t threads, size_t shared_bytes, const std::function<void()>& thread);

}  // namespace internal

inline uint32_t ThreadIndex() { return internal::current->thread; }
inline uint32_t BlockThreads() { return internal::current->threads; }
inline Dim3 BlockIndex() { return internal::current->block; }
inline uint32_t Lane() { return internal::current->thread % kWarp; }
inline uint32_t WarpIndex() { return internal::current->thread / kWarp; }

template <typename T>
struct SharedArray {
  T* base;
  size_t count;
  T& operator[](size_t index) const {
    if (index >= count) internal::FailIndex(index, 1, count);
    return base[index];
  }
  T* At(size_t index, size_t length) const {
    if (index > count || length > count - index) internal::FailIndex(index, length, count);
    return base + index;
  }
};

namespace internal {
template <typename T>
SharedArray<T> StaticShared(size_t count, Site site = Site()) {
  return {static_cast<T*>(StaticSharedBytes(count * sizeof(T), site)), count};
}
}  // namespace internal

class SharedCarver {
 public:
  template <typename T>
  SharedArray<T> Take(size_t count) {
    const size_t at = used_;
    used_ += (count * sizeof(T) + 127) / 128 * 128;
    if (at + count * sizeof(T) > internal::current->dynamic_shared_bytes) {
      internal::Fail("%zu bytes of dynamic shared memory are taken, the launch gave %zu", used_,
                     internal::current->dynamic_shared_bytes);
    }
    return {reinterpret_cast<T*>(internal::current->dynamic_shared + at), count};
  }

 private:
  size_t used_ = 0;
};

inline void SyncBlock(internal::Site site = internal::Site()) { internal::BlockBarrier(false, site); }
inline bool SyncBlockOr(bool value, internal::Site site = internal::Site()) {
  return internal::BlockBarrier(value, site);
}
inline void SyncWarp(internal::Site site = internal::Site()) {
  internal::WarpCollective([](void* const*) {}, nullptr, site);
}

namespace internal {

template <typename T>
struct ShuffleOperands {
  T in;
  T out;
  uint32_t lane;
};
template <typename T>
T ShuffleFrom(T value, uint32_t lane, Site site) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  ShuffleOperands<T> mine{value, value, lane};
  WarpCollective(
      [](void* const* lanes) {
        for (uint32_t l = 0; l < kWarp; ++l) {
          auto* to = static_cast<ShuffleOperands<T>*>(lanes[l]);
          to->out = static_cast<const ShuffleOperands<T>*>(lanes[to->lane])->in;
        }
      },
      &mine, site);
  return mine.out;
}

// The fold of all lanes' values, for every lane.
template <typename T, typename Fold>
T ReduceWarp(T value, Site site) {
  WarpCollective(
      [](void* const* lanes) {
        T all = *static_cast<const T*>(lanes[0]);
        for (uint32_t l = 1; l < kWarp; ++l) all = Fold()(all, *static_cast<const T*>(lanes[l]));
        for (uint32_t l = 0; l < kWarp; ++l) *static_cast<T*>(lanes[l]) = all;
      },
      &value, site);
  return value;
}

struct Larger {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a > b ? a : b; }
};
struct Smaller {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a < b ? a : b; }
};
struct Sum {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a + b; }
};
struct Union {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a | b; }
};

}  // namespace internal

template <typename T>
T Shuffle(T value, uint32_t lane, internal::Site site = internal::Site()) {
  return internal::ShuffleFrom(value, lane % kWarp, site);
}
template <typename T>
T ShuffleXor(T value, uint32_t mask, internal::Site site = internal::Site()) {
  return internal::ShuffleFrom(value, (Lane() ^ mask) % kWarp, site);
}
template <typename T>
T ShuffleUp(T value, uint32_t delta, internal::Site site = internal::Site()) {
  return internal::ShuffleFrom(value, Lane() >= delta ? Lane() - delta : Lane(), site);
}
inline uint32_t Ballot(bool value, internal::Site site = internal::Site()) {
  return internal::ReduceWarp<uint32_t, internal::Union>(value ? 1u << Lane() : 0u, site);
}
inline bool Any(bool value, internal::Site site = internal::Site()) { return Ballot(value, site) != 0; }
inline bool All(bool value, internal::Site site = internal::Site()) { return Ballot(!value, site) == 0; }
inline uint32_t ReduceMax(uint32_t value, internal::Site site = internal::Site()) {
  return internal::ReduceWarp<uint32_t, internal::Larger>(value, site);
}
inline uint32_t ReduceMin(uint32_t value, internal::Site site = internal::Site()) {
  return internal::ReduceWarp<uint32_t, internal::Smaller>(value, site);
}
inline uint32_t ReduceAdd(uint32_t value, internal::Site site = internal::Site()) {
  return internal::ReduceWarp<uint32_t, internal::Sum>(value, site);
}

// One fibre runs at a time: plain reads and writes are atomic.
template <typename T>
T AtomicAdd(T* at, T value) {
  const T before = *at;
  *at = before + value;
  return before;
}
inline uint32_t AtomicOr(uint32_t* at, uint32_t value) {
  const uint32_t before = *at;
  *at = before | value;
  return before;
}
inline uint32_t AtomicMax(uint32_t* at, uint32_t value) {
  const uint32_t before = *at;
  if (value > before) *at = value;
  return before;
}
inline uint32_t AtomicMin(uint32_t* at, uint32_t value) {
  const uint32_t before = *at;
  if (value < before) *at = value;
  return before;
}

inline void CpAsync16(void* shared, const void* global, bool valid, internal::Site site = internal::Site()) {
  internal::StartCopy(shared, global, valid, site);
}
inline void CpAsyncCommit() { internal::CommitCopies(); }
template <int kGroups>
void CpAsyncWait() {
  internal::WaitCopies(kGroups);
}

inline void LdMatrix1(uint32_t* out, const void* row, internal::Site site = internal::Site()) {
  internal::LoadMatrices(out, row, 1, false, site);
}
inline void LdMatrix2(uint32_t* out, const void* row, internal::Site site = internal::Site()) {
  internal::LoadMatrices(out, row, 2, false, site);
}
inline void LdMatrix4(uint32_t* out, const void* row, internal::Site site = internal::Site()) {
  internal::LoadMatrices(out, row, 4, false, site);
}
inline void LdMatrix1Trans(uint32_t* out, const void* row, internal::Site site = internal::Site()) {
  internal::LoadMatrices(out, row, 1, true, site);
}
inline void LdMatrix2Trans(uint32_t* out, const void* row, internal::Site site = internal::Site()) {
  internal::LoadMatrices(out, row, 2, true, site);
}
inline void LdMatrix4Trans(uint32_t* out, const void* row, internal::Site site = internal::Site()) {
  internal::LoadMatrices(out, row, 4, true, site);
}
inline void MmaBf16(float* c, const uint32_t* a, const uint32_t* b, internal::Site site = internal::Site()) {
  internal::Multiply(c, a, b, site);
}

inline float Exp2(float x) {
  const float out = std::exp2(x);
  return out < 0x1.0p-126f ? 0.0f : out;  // the device flushes subnormal results; a NaN stays
}
inline float Fma(float a, float b, float c) { return std::fma(a, b, c); }
inline float Mul(float a, float b) { return a * b; }
inline float Add(float a, float b) { return a + b; }
inline float BitsToFloat(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t FloatToBits(float value) { return std::bit_cast<uint32_t>(value); }
inline uint32_t CountBits(uint32_t bits) { return static_cast<uint32_t>(std::popcount(bits)); }
inline uint32_t PackBf16(float low, float high) {
  return uint32_t{ToBf16(low)} | uint32_t{ToBf16(high)} << 16;
}

template <typename... Params, typename... Args>
GpuStatus Launch(void (*kernel)(Params...), Dim3 grid, uint32_t threads, size_t shared_bytes,
                 GpuStream /*stream*/, const Args&... args) {
  return internal::RunGrid(grid, threads, shared_bytes, [&] { kernel(args...); });
}

}  // namespace epic::simt

#endif  // __CUDACC__
#endif  // EPIC_KERNELS_SIMT_EMULATED_H_
