// Rates of compiling many short chunks: in steps of their own, and in steps that they fill together.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "services/engine/bench/sections.h"
#include "services/engine/testing/engine_harness.h"

namespace epic::engine_bench {
namespace {

constexpr uint32_t kChunks = 64;

struct CompileRun {
  double tokens_per_second = 0;
  uint64_t steps = 0;
};

// Compiles kChunks chunks; `at_once` of them are submitted before the first of those is waited for.
CompileRun CompileChunks(BenchEngine* bench, uint32_t tokens, uint32_t at_once) {
  Engine* const engine = bench->engine();
  const uint64_t steps_before = engine->Gauges().steps;
  const int64_t begin_ns = SystemClock::Get()->SteadyNs();
  for (uint32_t chunk = 0; chunk < kChunks; chunk += at_once) {
    std::vector<std::shared_ptr<testing::CollectCompile>> sinks;
    for (uint32_t i = chunk; i < chunk + at_once; ++i) {
      sinks.push_back(std::make_shared<testing::CollectCompile>(engine->LayoutOf(tokens, 0)));
      EPIC_CHECK(engine->SubmitCompile({.tokens = bench->Tokens(3000 + i, tokens)}, sinks.back()).ok());
    }
    for (const auto& sink : sinks) EPIC_CHECK(sink->done.Wait().ok());
  }
  const int64_t ns = SystemClock::Get()->SteadyNs() - begin_ns;
  EPIC_CHECK(testing::BecomesIdle(*engine));  // from then on the gauges are current
  return {kChunks * tokens * 1e9 / static_cast<double>(ns), engine->Gauges().steps - steps_before};
}

}  // namespace

void TimeCompiles(BenchEngine* bench, int repeats, BenchReport* report) {
  for (const uint32_t tokens : {16u, 64u}) {
    const std::string chunks = std::to_string(kChunks) + " chunks of " + std::to_string(tokens) + " tokens";
    std::vector<double> alone, together, ratio, steps;
    for (int i = 0; i < repeats; ++i) {
      alone.push_back(CompileChunks(bench, tokens, 1).tokens_per_second);
      const CompileRun run = CompileChunks(bench, tokens, kChunks);
      together.push_back(run.tokens_per_second);
      steps.push_back(static_cast<double>(run.steps));
      ratio.push_back(together.back() / alone.back());
    }
    report->Measure("compile tokens/s, " + chunks + " one after another", alone);
    report->Measure("compile tokens/s, " + chunks + " at once", together);
    report->Measure("compile rate of " + chunks + ", at once / one after another", ratio);
    // The engine does not wait for the others when the first is there: that may be a step of its own.
    const uint32_t panel = EngineOptions().panel_tokens;
    report->Check("steps of " + chunks + " at once", report->Measure("steps, " + chunks + " at once", steps),
                  Bar::kAtMost, (kChunks * tokens + panel - 1) / panel + 1);
  }
}

}  // namespace epic::engine_bench
