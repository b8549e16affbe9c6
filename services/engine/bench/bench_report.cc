#include "services/engine/bench/bench_report.h"

#include <algorithm>
#include <cstdio>

#include "common/base/check.h"

namespace epic::engine_bench {

Spread SpreadOf(std::vector<double> values) {
  EPIC_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

void BenchReport::Note(const std::string& text) const {
  if (json_) return;
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

double BenchReport::Measure(const std::string& name, const std::vector<double>& values) {
  const Spread spread = SpreadOf(values);
  measured_.push_back({name, spread, values.size()});
  if (!json_) {
    std::printf("%s: median %.4g (%.4g .. %.4g)\n", name.c_str(), spread.median, spread.low, spread.high);
    std::fflush(stdout);
  }
  return spread.median;
}

void BenchReport::Check(const std::string& name, double value, Bar bar, double target, bool required) {
  const bool pass = bar == Bar::kAtLeast ? value >= target : value <= target;
  checks_.push_back({name, value, target, pass, required});
}

int BenchReport::Finish(const std::string& cpu, const std::string& model) const {
  if (json_) PrintJson(cpu, model);
  bool good = true;
  for (const Checked& check : checks_) {
    good = good && (check.pass || !check.required);
    if (json_) continue;
    std::printf("%s: %.4g, target %.4g: %s\n", check.name.c_str(), check.value, check.target,
                check.pass ? "met" : "NOT met");
  }
  return good ? 0 : 1;
}

void BenchReport::PrintJson(const std::string& cpu, const std::string& model) const {
  std::printf("{\"cpu\":\"%s\",\"model\":\"%s\",\"checks\":[", cpu.c_str(), model.c_str());
  for (size_t i = 0; i < checks_.size(); ++i) {
    const Checked& check = checks_[i];
    std::printf("%s{\"name\":\"%s\",\"value\":%.6g,\"target\":%.6g,\"pass\":%s}", i > 0 ? "," : "",
                check.name.c_str(), check.value, check.target, check.pass ? "true" : "false");
  }
  std::printf("],\"measurements\":[");
  for (size_t i = 0; i < measured_.size(); ++i) {
    const Measured& one = measured_[i];
    std::printf("%s{\"name\":\"%s\",\"median\":%.6g,\"min\":%.6g,\"max\":%.6g,\"repeats\":%zu}",
                i > 0 ? "," : "", one.name.c_str(), one.spread.median, one.spread.low, one.spread.high,
                one.repeats);
  }
  std::printf("]}\n");
}

}  // namespace epic::engine_bench
