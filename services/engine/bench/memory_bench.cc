// Memory of links beyond weights and shared objects: by the engine's gauges, and as the operating system
// counts the process.
//
// A link's own bytes are what the process has grown by at most from its submission to its first token. One
// link over the shortest prompt comes first and is not counted: it leaves the scratch that every request
// uses. Where longer prompts make scratch grow for good, the idle process is larger after them, which has a
// check of its own.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "services/engine/bench/process_memory.h"
#include "services/engine/bench/sections.h"

namespace epic::engine_bench {
namespace {

constexpr uint32_t kRequests = 16;
constexpr uint32_t kDecodeTokens = 17;  // the last one has no row
constexpr double kTolerance = 0.05;
constexpr double kKeptBytes = 1 << 20;

struct LinkMemory {
  uint32_t prompt_tokens = 0;
  uint32_t own_rows = 0;
  double process_bytes = 0;  // the median of all repeats, as the next
  double kernel_bytes = 0;
  double gauge_bytes = 0;  // at the first token
};

// Contexts of 512 tokens and 64 of own text, `tokens` in all; the last context is shorter where they do not
// fit.
std::vector<PromptPiece> PromptOf(BenchEngine* bench, uint32_t tokens) {
  const uint32_t covered = tokens - kShapeM.own_tokens;
  std::vector<PromptPiece> pieces = bench->Contexts(covered / kShapeM.context_tokens, kShapeM.context_tokens);
  const uint32_t rest = covered % kShapeM.context_tokens;
  if (rest > 0) pieces.push_back(bench->Contexts(1, rest)[0]);
  pieces.push_back(bench->OwnText(100, kShapeM.own_tokens));
  return pieces;
}

LinkMemory MemoryOf(BenchEngine* bench, const std::vector<PromptPiece>& pieces, const LinkStrategy& strategy,
                    int repeats) {
  LinkMemory memory;
  std::vector<double> process, kernel;
  for (int i = 0; i < repeats; ++i) {
    MemoryWatch watch;
    EngineGauges gauges;
    const FirstToken first = bench->TimeToFirstToken(pieces, strategy, "", [&] {
      watch.Sample();
      gauges = bench->engine()->Gauges();
    });
    memory.prompt_tokens = first.stats.prompt_tokens;
    memory.own_rows = first.stats.recomputed_tokens + first.stats.fresh_tokens;
    memory.gauge_bytes = static_cast<double>(gauges.private_bytes);
    process.push_back(static_cast<double>(watch.growth_bytes()));
    kernel.push_back(static_cast<double>(watch.kernel_growth_bytes()));
  }
  memory.process_bytes = SpreadOf(process).median;
  memory.kernel_bytes = SpreadOf(kernel).median;
  return memory;
}

std::vector<LinkMemory> MemoryByLength(BenchEngine* bench, const LinkStrategy& strategy,
                                       const std::vector<uint32_t>& lengths, int repeats,
                                       BenchReport* report) {
  bench->TimeToFirstToken(PromptOf(bench, lengths[0]), strategy);
  std::vector<std::vector<PromptPiece>> prompts;  // compiled before anything is measured
  for (const uint32_t tokens : lengths) prompts.push_back(PromptOf(bench, tokens));
  std::vector<LinkMemory> all;
  const uint64_t idle = IdleBytes();
  for (size_t i = 0; i < lengths.size(); ++i) {
    const uint32_t tokens = lengths[i];
    const LinkMemory one = MemoryOf(bench, prompts[i], strategy, repeats);
    const std::string name = strategy.Name() + ", " + std::to_string(tokens) + " tokens";
    report->Measure(name + ", own rows", {static_cast<double>(one.own_rows)});
    report->Measure(name + ", bytes of the process", {one.process_bytes});
    report->Measure(name + ", bytes by the kernel's high-water mark", {one.kernel_bytes});
    report->Measure(name + ", bytes by the engine's gauge", {one.gauge_bytes});
    report->Measure(name + ", bytes of the process per own row", {one.process_bytes / one.own_rows});
    all.push_back(one);
  }
  report->Check(strategy.Name() + ", bytes that the idle process kept after all lengths",
                static_cast<double>(IdleBytes()) - static_cast<double>(idle), Bar::kAtMost, kKeptBytes, true);
  return all;
}

// Highest / lowest - 1.
double Unevenness(const std::vector<LinkMemory>& all, double LinkMemory::*bytes) {
  double low = all[0].*bytes / all[0].own_rows;
  double high = low;
  for (const LinkMemory& one : all) {
    low = std::min(low, one.*bytes / one.own_rows);
    high = std::max(high, one.*bytes / one.own_rows);
  }
  return high / low - 1;
}

void CheckPerRow(const std::string& strategy, const std::vector<LinkMemory>& all, BenchReport* report) {
  report->Check(strategy + ", unevenness of bytes per own row, process",
                Unevenness(all, &LinkMemory::process_bytes), Bar::kAtMost, kTolerance, true);
  report->Check(strategy + ", unevenness of bytes per own row, gauge",
                Unevenness(all, &LinkMemory::gauge_bytes), Bar::kAtMost, kTolerance, true);
}

// The farthest from the straight line through the shortest and the longest prompt, as a share of it.
double Bend(const std::vector<LinkMemory>& all) {
  const LinkMemory& first = all.front();
  const LinkMemory& last = all.back();
  const double slope =
      (last.process_bytes - first.process_bytes) / (last.prompt_tokens - first.prompt_tokens);
  double worst = 0;
  for (const LinkMemory& one : all) {
    const double line = first.process_bytes + slope * (one.prompt_tokens - first.prompt_tokens);
    worst = std::max(worst, std::fabs(one.process_bytes / line - 1));
  }
  return worst;
}

std::vector<uint32_t> Lengths(const BenchEngine& bench) {
  std::vector<uint32_t> lengths;
  const uint32_t limit = bench.model().config().context_length - 1;  // and one token of the answer
  for (const uint32_t covered : {1024u, 2048u, 4096u, 6144u}) {
    if (covered + kShapeM.own_tokens < limit) lengths.push_back(covered + kShapeM.own_tokens);
  }
  constexpr uint32_t kLongest = 8191;
  lengths.push_back(std::min(limit, kLongest));
  return lengths;
}

}  // namespace

void MeasureLinkMemory(BenchEngine* bench, int repeats, BenchReport* report) {
  GiveBackFreedMemory();
  const std::vector<uint32_t> lengths = Lengths(*bench);
  CheckPerRow("legolink-16", MemoryByLength(bench, kLegoLink16, lengths, repeats, report), report);
  // What these hold beside own rows is linear in the prompt, not in own rows.
  for (const LinkStrategy& strategy : {kQueryGuided16, kCacheBlend15}) {
    report->Check(strategy.Name() + ", bend of bytes over prompt tokens",
                  Bend(MemoryByLength(bench, strategy, lengths, std::min(repeats, 3), report)), Bar::kAtMost,
                  kTolerance, true);
  }
}

void MeasureFullMemory(BenchEngine* bench, int /*repeats*/, BenchReport* report) {
  GiveBackFreedMemory();
  CheckPerRow("full", MemoryByLength(bench, kFull, {1088, 2112, 4160}, 1, report), report);
}

void MeasureSharing(BenchEngine* bench, int repeats, BenchReport* report) {
  GiveBackFreedMemory();
  const std::vector<PromptPiece> contexts = bench->Contexts(kShapeM.contexts, kShapeM.context_tokens);
  double object_bytes = 0;
  for (const PromptPiece& context : contexts)
    object_bytes += static_cast<double>(context.object->layout().TotalBytes());
  std::vector<std::vector<PromptPiece>> prompts(kRequests);
  for (uint32_t i = 0; i < kRequests; ++i) {
    for (uint32_t c = 0; c < contexts.size(); ++c) prompts[i].push_back(contexts[(c + i) % contexts.size()]);
    prompts[i].push_back(bench->OwnText(3000 + i, kShapeM.own_tokens));
  }
  bench->RunTogether({prompts[0]}, kDecodeTokens);
  std::vector<double> process, per_row, gauge;
  const double row_bytes = static_cast<double>(bench->engine()->LayoutOf(1, 0).TotalBytes());
  double own_rows = 0;
  uint32_t running = kRequests;
  uint64_t gauge_rows = 0;
  for (int i = 0; i < repeats; ++i) {
    MemoryWatch watch;
    const TogetherRun run = bench->RunTogether(prompts, kDecodeTokens, [&] { watch.Sample(); });
    own_rows = run.computed_rows + kRequests * (kDecodeTokens - 1);
    process.push_back(static_cast<double>(watch.growth_bytes()));
    per_row.push_back(process.back() / own_rows);
    gauge.push_back(static_cast<double>(run.most.private_bytes));
    running = std::min(running, run.most.running);
    gauge_rows = std::max(gauge_rows, run.most.private_rows);
  }
  report->Check("requests that ran at once", running, Bar::kAtLeast, kRequests, true);
  report->Check("rows of 16 requests by the gauge", static_cast<double>(gauge_rows), Bar::kAtMost, own_rows,
                true);
  report->Measure("bytes of the contexts' objects", {object_bytes});
  report->Measure("own rows of 16 requests", {own_rows});
  report->Measure("growth of 16 requests by the gauge, bytes", gauge);
  report->Measure("growth of 16 requests by the process, bytes", process);
  const double worst = *std::max_element(per_row.begin(), per_row.end());
  report->Measure("growth of 16 requests by the process, bytes per own row", per_row);
  report->Check("growth of 16 requests beyond own rows, share", worst / row_bytes - 1, Bar::kAtMost,
                kTolerance, true);
}

}  // namespace epic::engine_bench
