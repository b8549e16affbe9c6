// What a run of the transport bench found: measurements with their spread, and checks against bars.
//
// Filled by one thread. Prints each line as it comes, or one JSON document at the end.
#ifndef EPIC_COMMON_TRANSPORT_BENCH_TESTING_BENCH_REPORT_H_
#define EPIC_COMMON_TRANSPORT_BENCH_TESTING_BENCH_REPORT_H_

#include <string>
#include <vector>

namespace epic::transport {

// The middle one; of an even number the upper one; 0 of none.
double Median(std::vector<double> values);
// The one below which `share` of them lie. REQUIRES: 0 <= share < 1.
double Quantile(std::vector<double> values, double share);

class BenchReport {
 public:
  explicit BenchReport(bool json) : json_(json) {}

  void Note(const std::string& text) const;
  // Returns the median; 0 when there are no values, which is said.
  double Measure(const std::string& name, const std::vector<double>& values);
  // A bar; bars depend on the machine and do not decide the exit status.
  void CheckAtLeast(const std::string& name, double value, double target);
  // What must be right before anything is timed: decides the exit status.
  void CheckRight(const std::string& name, bool right);
  bool all_right() const { return all_right_; }

  // Prints what is left to print. Returns the exit status.
  int Finish() const;

 private:
  struct Measured {
    std::string name;
    double median = 0, low = 0, high = 0;
    size_t repeats = 0;
  };
  struct Checked {
    std::string name;
    double value = 0;
    double target = 0;
    bool pass = false;
  };
  void PrintJson() const;

  const bool json_;
  bool all_right_ = true;
  std::vector<Measured> measured_;
  std::vector<Checked> checks_;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_BENCH_TESTING_BENCH_REPORT_H_
