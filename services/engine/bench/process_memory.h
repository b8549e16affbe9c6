// What the operating system says of this process's memory, so that the engine's own gauges need not be
// believed.
//
// Reads /proc. Sample may be called from any thread.
#ifndef EPIC_SERVICES_ENGINE_BENCH_PROCESS_MEMORY_H_
#define EPIC_SERVICES_ENGINE_BENCH_PROCESS_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <thread>

namespace epic::engine_bench {

// From now on the allocator maps what is not small by itself and gives it back at once, so that freed rows do
// not stay resident and hide those of the next request.
void GiveBackFreedMemory();

// Anonymous resident bytes, by walking the page tables: exact, and takes milliseconds.
uint64_t ResidentBytes();
// The same once the allocator has given back what it can. REQUIRES: nothing runs.
uint64_t IdleBytes();

// The highest growth of the resident bytes from its construction on: looked at every millisecond by a thread
// of its own, and whenever Sample is called.
class MemoryWatch {
 public:
  MemoryWatch();
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  void Sample();
  uint64_t growth_bytes() const;
  // The same by the kernel's high-water mark, which misses nothing but counts in steps of many pages for each
  // CPU.
  uint64_t kernel_growth_bytes() const;

 private:
  const uint64_t before_;
  const uint64_t kernel_before_;
  std::atomic<uint64_t> highest_;
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace epic::engine_bench

#endif  // EPIC_SERVICES_ENGINE_BENCH_PROCESS_MEMORY_H_
