#include "services/engine/bench/process_memory.h"

#include <malloc.h>

#include <chrono>
#include <fstream>
#include <string>

#include "common/base/check.h"

namespace epic::engine_bench {
namespace {

constexpr int kMappedBytes = 64 << 10;

// The number behind `name` in a file of lines "Name:  123 kB".
uint64_t BytesOf(const char* path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    uint64_t kib = 0;
    if (word == name && file >> kib) return kib << 10;
  }
  EPIC_CHECK(false);
}

// Frees what is cached, forgets the high-water mark, and returns what is left of it.
uint64_t ResetKernelPeak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
  return BytesOf("/proc/self/status", "VmHWM:");
}

}  // namespace

void GiveBackFreedMemory() {
  EPIC_CHECK(mallopt(M_MMAP_THRESHOLD, kMappedBytes) == 1);
  EPIC_CHECK(mallopt(M_TRIM_THRESHOLD, kMappedBytes) == 1);
}

uint64_t ResidentBytes() { return BytesOf("/proc/self/smaps_rollup", "Anonymous:"); }

uint64_t IdleBytes() {
  malloc_trim(0);
  return ResidentBytes();
}

MemoryWatch::MemoryWatch()
    : before_(IdleBytes()), kernel_before_(ResetKernelPeak()), highest_(before_), thread_([this] {
        while (!stop_.load()) {
          Sample();
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      }) {}

MemoryWatch::~MemoryWatch() {
  stop_ = true;
  thread_.join();
}

void MemoryWatch::Sample() {
  const uint64_t now = ResidentBytes();
  uint64_t highest = highest_.load();
  while (now > highest && !highest_.compare_exchange_weak(highest, now)) {
  }
}

uint64_t MemoryWatch::growth_bytes() const { return highest_.load() - before_; }

uint64_t MemoryWatch::kernel_growth_bytes() const {
  const uint64_t peak = BytesOf("/proc/self/status", "VmHWM:");
  return peak > kernel_before_ ? peak - kernel_before_ : 0;
}

}  // namespace epic::engine_bench
