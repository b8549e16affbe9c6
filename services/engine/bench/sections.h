// The sections of the engine's bench, by name. Each measures one claim on the engine that it is given, and
// leaves measurements and checks in the report.
//
// One thread, one section after another.
#ifndef EPIC_SERVICES_ENGINE_BENCH_SECTIONS_H_
#define EPIC_SERVICES_ENGINE_BENCH_SECTIONS_H_

#include <span>
#include <string_view>

#include "services/engine/bench/bench_report.h"
#include "services/engine/bench/engine_fixture.h"

namespace epic::engine_bench {

struct Section {
  std::string_view name;
  std::string_view what;
  bool is_quick;  // part of --quick
  void (*run)(BenchEngine* bench, int repeats, BenchReport* report);
};

// In the order in which they run.
std::span<const Section> Sections();

// links_bench.cc
void CheckEquality(BenchEngine* bench, int repeats, BenchReport* report);
void TimeLinksM(BenchEngine* bench, int repeats, BenchReport* report);
void TimeLinksL(BenchEngine* bench, int repeats, BenchReport* report);
void TimeChoicesM(BenchEngine* bench, int repeats, BenchReport* report);
void TimeChoicesL(BenchEngine* bench, int repeats, BenchReport* report);
void TimePrefixM(BenchEngine* bench, int repeats, BenchReport* report);
void TimePrefixL(BenchEngine* bench, int repeats, BenchReport* report);
// overlap_bench.cc
void TimeOverlap(BenchEngine* bench, int repeats, BenchReport* report);
// compile_bench.cc
void TimeCompiles(BenchEngine* bench, int repeats, BenchReport* report);
// decode_bench.cc
void TimeDecode(BenchEngine* bench, int repeats, BenchReport* report);
void TimeSharedDecode(BenchEngine* bench, int repeats, BenchReport* report);
// memory_bench.cc
void MeasureSharing(BenchEngine* bench, int repeats, BenchReport* report);
void MeasureLinkMemory(BenchEngine* bench, int repeats, BenchReport* report);
void MeasureFullMemory(BenchEngine* bench, int repeats, BenchReport* report);

}  // namespace epic::engine_bench

#endif  // EPIC_SERVICES_ENGINE_BENCH_SECTIONS_H_
