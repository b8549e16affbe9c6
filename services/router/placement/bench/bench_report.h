// What the bench of scale prints: lines as it goes, or one line of JSON at its end. A check says whether what
// was measured was right; a bar says how much is enough. One thread. Benches only.
#ifndef EPIC_SERVICES_ROUTER_PLACEMENT_BENCH_BENCH_REPORT_H_
#define EPIC_SERVICES_ROUTER_PLACEMENT_BENCH_BENCH_REPORT_H_

#include <cstdio>
#include <string>

namespace epic::router {

class BenchReport {
 public:
  explicit BenchReport(bool json) : json_(json) {}

  void Check(const std::string& name, bool good) {
    correct_ = correct_ && good;
    Put(name, good ? 1 : 0, good ? "yes" : "NO", 1, good);
  }
  void Add(const std::string& name, double value, const std::string& unit) {
    Put(name, value, unit, 0, true);
  }
  void AtLeast(const std::string& name, double value, const std::string& unit, double bar) {
    PutBar(name, value, unit, bar, value >= bar);
  }
  void AtMost(const std::string& name, double value, const std::string& unit, double bar) {
    PutBar(name, value, unit, bar, value <= bar);
  }
  void Say(const std::string& text) const {
    if (json_) return;
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  }
  bool correct() const { return correct_; }
  void Finish() const {
    if (json_) std::printf("{\"checks\":[%s]}\n", lines_.c_str());
  }

 private:
  void PutBar(const std::string& name, double value, const std::string& unit, double bar, bool kept) {
    char text[64];
    std::snprintf(text, sizeof text, " (bar %.4g: %s)", bar, kept ? "kept" : "MISSED");
    Put(name, value, unit + text, bar, kept);
  }
  void Put(const std::string& name, double value, const std::string& unit, double target, bool pass) {
    char line[320];
    std::snprintf(line, sizeof line, "%s{\"name\":\"%s\",\"value\":%.6g,\"target\":%.6g,\"pass\":%s}",
                  lines_.empty() ? "" : ",", name.c_str(), value, target, pass ? "true" : "false");
    lines_ += line;
    if (json_) return;
    std::printf("%-66s %11.5g %s\n", name.c_str(), value, unit.c_str());
    std::fflush(stdout);
  }

  const bool json_;
  bool correct_ = true;
  std::string lines_;
};

}  // namespace epic::router

#endif  // EPIC_SERVICES_ROUTER_PLACEMENT_BENCH_BENCH_REPORT_H_
