// What the benches of the store share: their report, clocks and medians, and an empty page cache. One thread.
// Benches only.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_BENCH_REPORT_H_
#define EPIC_SERVICES_KV_STORE_TESTING_BENCH_REPORT_H_

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"

namespace epic::kv_store {

// Prints as it goes, or one line of JSON at the end: {"checks":[{"name","value","target","pass"}]}. A check
// says whether what was measured was right; a bar says how much is enough.
class BenchReport {
 public:
  explicit BenchReport(bool json) : json_(json) {}

  void Check(const std::string& name, bool good) {
    correct_ = correct_ && good;
    if (!good) std::fprintf(stderr, "check failed: %s\n", name.c_str());
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
    if (!json_) std::printf("%s\n", text.c_str());
  }
  bool correct() const { return correct_; }
  bool bars_kept() const { return bars_kept_; }
  void Finish() const {
    if (json_) std::printf("{\"checks\":[%s]}\n", lines_.c_str());
  }

 private:
  void PutBar(const std::string& name, double value, const std::string& unit, double bar, bool kept) {
    bars_kept_ = bars_kept_ && kept;
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
    std::printf("%-66s %11.4g %s\n", name.c_str(), value, unit.c_str());
    std::fflush(stdout);
  }

  const bool json_;
  bool correct_ = true;
  bool bars_kept_ = true;
  std::string lines_;
};

inline double SecondsSince(int64_t begin_ns) {
  return static_cast<double>(SystemClock::Get()->SteadyNs() - begin_ns) * 1e-9;
}

inline double Seconds(const std::function<void()>& work) {
  const int64_t begin_ns = SystemClock::Get()->SteadyNs();
  work();
  return SecondsSince(begin_ns);
}

inline double Median(std::vector<double> values) {
  EPIC_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Runs all by turns, once to warm up and then `rounds` times; the median seconds of each.
inline std::vector<double> ByTurns(int rounds, const std::vector<std::function<void()>>& works) {
  std::vector<std::vector<double>> seconds(works.size());
  for (int round = 0; round <= rounds; ++round) {
    for (size_t i = 0; i < works.size(); ++i) {
      const double took = Seconds(works[i]);
      if (round > 0) seconds[i].push_back(took);
    }
  }
  std::vector<double> medians;
  for (const auto& each : seconds) medians.push_back(Median(each));
  return medians;
}

// Takes the clean pages of every file under a folder out of the page cache.
inline void EmptyPageCache(const std::string& dir) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    if (!entry.is_regular_file()) continue;
    const int fd = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    fdatasync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }
}

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TESTING_BENCH_REPORT_H_
