#include "common/transport/bench/testing/bench_report.h"

#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

namespace epic::transport {

double Median(std::vector<double> values) { return Quantile(std::move(values), 0.5); }

double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size()))];
}

void BenchReport::Note(const std::string& text) const {
  if (json_) return;
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

double BenchReport::Measure(const std::string& name, const std::vector<double>& values) {
  if (values.empty()) {
    Note(name + ": not measured");
    return 0;
  }
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const Measured& one = measured_.emplace_back(Measured{name, Median(values), *low, *high, values.size()});
  if (!json_) {
    std::printf("%-44s median %8.5g (%.5g .. %.5g) of %zu\n", name.c_str(), one.median, one.low, one.high,
                one.repeats);
    std::fflush(stdout);
  }
  return one.median;
}

void BenchReport::CheckAtLeast(const std::string& name, double value, double target) {
  checks_.push_back({name, value, target, value >= target});
}

void BenchReport::CheckRight(const std::string& name, bool right) {
  checks_.push_back({name, right ? 1.0 : 0.0, 1.0, right});
  all_right_ = all_right_ && right;
}

int BenchReport::Finish() const {
  if (json_) PrintJson();
  for (const Checked& check : checks_) {
    if (json_) continue;
    std::printf("%s: %.4g, target %.4g: %s\n", check.name.c_str(), check.value, check.target,
                check.pass ? "met" : "NOT met");
  }
  return all_right_ ? 0 : 1;
}

void BenchReport::PrintJson() const {
  nlohmann::ordered_json out;
  out["checks"] = nlohmann::ordered_json::array();
  for (const Checked& check : checks_) {
    out["checks"].push_back(
        {{"name", check.name}, {"value", check.value}, {"target", check.target}, {"pass", check.pass}});
  }
  out["measurements"] = nlohmann::ordered_json::array();
  for (const Measured& one : measured_) {
    out["measurements"].push_back({{"name", one.name},
                                   {"median", one.median},
                                   {"min", one.low},
                                   {"max", one.high},
                                   {"repeats", one.repeats}});
  }
  std::printf("%s\n", out.dump().c_str());
}

}  // namespace epic::transport
