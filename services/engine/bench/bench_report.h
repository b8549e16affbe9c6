// What a run of the engine's bench found: measurements with their spread, and checks against bars.
//
// Filled by one thread, section after section. Prints each line as it comes, or one JSON document at the end.
#ifndef EPIC_SERVICES_ENGINE_BENCH_BENCH_REPORT_H_
#define EPIC_SERVICES_ENGINE_BENCH_BENCH_REPORT_H_

#include <string>
#include <vector>

namespace epic::engine_bench {

struct Spread {
  double median = 0, low = 0, high = 0;
};
// REQUIRES: values is not empty.
Spread SpreadOf(std::vector<double> values);

enum class Bar { kAtLeast, kAtMost };

class BenchReport {
 public:
  explicit BenchReport(bool json) : json_(json) {}

  void Note(const std::string& text) const;
  // Returns the median. REQUIRES: values is not empty.
  double Measure(const std::string& name, const std::vector<double>& values);
  // A bar; only a required one decides the exit status. Bars that depend on the machine are not required.
  void Check(const std::string& name, double value, Bar bar, double target, bool required = false);

  // Prints what is left to print. Returns the exit status: 1 when a required check failed.
  int Finish(const std::string& cpu, const std::string& model) const;

 private:
  struct Measured {
    std::string name;
    Spread spread;
    size_t repeats;
  };
  struct Checked {
    std::string name;
    double value;
    double target;
    bool pass;
    bool required;
  };
  void PrintJson(const std::string& cpu, const std::string& model) const;

  const bool json_;
  std::vector<Measured> measured_;
  std::vector<Checked> checks_;
};

}  // namespace epic::engine_bench

#endif  // EPIC_SERVICES_ENGINE_BENCH_BENCH_REPORT_H_
