#include "services/engine/bench/bench_report.h"

#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

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
  nlohmann::ordered_json out = {{"cpu", cpu}, {"model", model}};
  out["checks"] = nlohmann::ordered_json::array();
  for (const Checked& check : checks_) {
    out["checks"].push_back(
        {{"name", check.name}, {"value", check.value}, {"target", check.target}, {"pass", check.pass}});
  }
  out["measurements"] = nlohmann::ordered_json::array();
  for (const Measured& one : measured_) {
    out["measurements"].push_back({{"name", one.name},
                                   {"median", one.spread.median},
                                   {"min", one.spread.low},
                                   {"max", one.spread.high},
                                   {"repeats", one.repeats}});
  }
  // A model's name is what its file says: not always text.
  std::printf("%s\n", out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

}  // namespace epic::engine_bench
