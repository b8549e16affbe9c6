// The sections of epic_kv_store_bench (../../store_bench.cc): each checks what it is about to time, times it
// with its baselines by turns, and reports. One thread calls them, one after the other. Benches only.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_BENCH_SECTIONS_H_
#define EPIC_SERVICES_KV_STORE_TESTING_BENCH_SECTIONS_H_

#include <cstdint>
#include <string>

#include "services/kv_store/testing/bench/report.h"

namespace epic::kv_store {

struct BenchOptions {
  std::string dir;  // an empty folder of the bench's own, on the disk to be measured
  bool quick = false;
  uint64_t object_kib = 0;  // of section disk; 0: all of its sizes
};

// Bytes of memory that a record and its object's entry take. Run it first: it looks at the whole process.
void BenchMemory(const BenchOptions& options, BenchReport* report);
// Calls per second that need no disk: create, commit, exists, acquire and release.
void BenchRates(const BenchOptions& options, BenchReport* report);
// GB/s out of host memory by object size: copying with checksums, and read in place; beside memcpy and Redis.
void BenchHost(const BenchOptions& options, BenchReport* report);
// GB/s from a cold disk by object size and back-end, beside O_DIRECT pread; bytes written for each byte kept.
void BenchDisk(const BenchOptions& options, BenchReport* report);
// Percentiles of reads, creates, commits and deletes that run at the same time.
void BenchMixed(const BenchOptions& options, BenchReport* report);
// Acknowledged creates per second, and the syncs of each, by number of creators; beside a plain file.
void BenchCreates(const BenchOptions& options, BenchReport* report);
// Seconds until a store with many records and objects is open.
void BenchRecovery(const BenchOptions& options, BenchReport* report);
// Hit ratios on made-up traces, beside the optimum.
void BenchTraces(const BenchOptions& options, BenchReport* report);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TESTING_BENCH_SECTIONS_H_
