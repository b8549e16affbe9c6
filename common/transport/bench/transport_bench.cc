// The transport bench: bandwidth, latency and CPU of fetches from another process on this host, by path and
// size, beside what memcpy, a plain socket and UCX's own bench reach.
//
//   epic_transport_bench [--only bandwidth,latency] [--ways NAME,...] [--runs N] [--size MIB]
//                        [--poll-us N] [--quick] [--json]
//   epic_transport_bench peer ...    its own other process
//
// Everything is compared byte by byte before anything is timed; a wrong byte is a non-zero exit. What is
// compared takes turns: each run times every way once for each size. Fetches are those of a reader: every
// block is checked and the lease confirmed. Bandwidth: one transfer at a time where a thread copies, two over
// a connection. Bars depend on the machine: they are reported, not enforced. CPU is that of both processes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/transport/bench/testing/bench_report.h"
#include "common/transport/bench/testing/ways.h"
#include "common/transport/ucx/ucx_settings.h"

namespace epic::transport {
namespace {

constexpr uint64_t kKib = 1024;
constexpr uint64_t kMibBytes = kKib * 1024;
constexpr uint64_t kBarBytes = 8 * kMibBytes;  // the bars are about transfers of this size
constexpr uint64_t kSmall[] = {4 * kKib, 64 * kKib};

struct Flags {
  bool bandwidth = true;
  bool latency = true;
  int runs = 9;
  std::vector<uint64_t> sizes = {64 * kKib, kMibBytes, kBarBytes, 64 * kMibBytes};
  uint64_t sample_bytes = 256 * kMibBytes;  // of each way, size and run
  int small_fetches = 300;                  // of each way, size and run
  std::string ways;                         // names, with commas around them; empty: all
  int64_t ucx_poll_us = UcxSettings().poll_us;
  bool json = false;
};

struct Entry {
  std::unique_ptr<Way> way;
  int at_a_time = 1;    // for bandwidth
  bool moves = true;    // bandwidth means something
  bool answers = true;  // latency does
};

std::string SizeText(uint64_t bytes) {
  return bytes < kMibBytes ? std::to_string(bytes / kKib) + " KiB"
                           : std::to_string(bytes / kMibBytes) + " MiB";
}

class Bench {
 public:
  Bench(const std::string& program, const Flags& flags)
      : flags_(flags), report_(flags.json), objects_(Sizes()), peer_(program, flags.ucx_poll_us, Sizes()) {
    shared_ = {.peer = &peer_, .objects = &objects_, .ucx_poll_us = flags.ucx_poll_us};
    shared_.buffers.assign(2, std::vector<std::byte>(Sizes().back()));
    Add({.way = MakeMemcpyWay(&shared_), .answers = false});
    Add({.way = MakeInprocWay(&shared_)});
    Add({.way = MakeShmWay(&shared_)});
    Add({.way = MakeShmHoldWay(&shared_, /*check=*/false), .moves = false});
    Add({.way = MakeShmHoldWay(&shared_, /*check=*/true), .answers = false});
    Add({.way = MakeGrpcWay(&shared_), .at_a_time = 2});
    Add({.way = MakeUcxWay(&shared_), .at_a_time = 2});
    Add({.way = MakeSocketWay(&shared_), .at_a_time = 2});
    Add({.way = MakePerftestWay(), .at_a_time = 2, .answers = false});
  }

  int Run() {
    for (const Entry& entry : entries_) CheckBytes(entry);
    if (!report_.all_right()) return report_.Finish();
    if (flags_.bandwidth) TimeBandwidth();
    if (flags_.latency) TimeLatency();
    return report_.Finish();
  }

 private:
  using Samples = std::map<std::pair<std::string, uint64_t>, std::vector<double>>;  // by way and size

  std::vector<uint64_t> Sizes() const {
    std::vector<uint64_t> all(std::begin(kSmall), std::end(kSmall));
    for (const uint64_t bytes : flags_.sizes) {
      if (bytes > all.back()) all.push_back(bytes);
    }
    return all;
  }
  void Add(Entry entry) {
    if (entry.way == nullptr) {
      report_.CheckRight("a path could be made", false);
      return;
    }
    const std::string name = "," + entry.way->name() + ",";
    if (!flags_.ways.empty() && flags_.ways.find(name) == std::string::npos) return;
    entries_.push_back(std::move(entry));
  }

  void CheckBytes(const Entry& entry) {
    bool right = true;
    for (const uint64_t bytes : Sizes()) right = right && entry.way->IsRight(bytes);
    report_.CheckRight(entry.way->name() + ": the bytes are right", right);
  }

  std::optional<Sample> Take(const Entry& entry, uint64_t bytes, uint64_t in_all, int at_a_time) {
    const int count = static_cast<int>(std::min<uint64_t>(1000, std::max<uint64_t>(4, in_all / bytes)));
    if (at_a_time > 0 && !entry.way->Move(bytes, 2, at_a_time).has_value()) return std::nullopt;
    return entry.way->Move(bytes, count, at_a_time);
  }

  void TimeBandwidth() {
    Samples rate;
    Samples cpu;
    for (int run = 0; run < flags_.runs; ++run) {
      for (const uint64_t bytes : flags_.sizes) {
        for (const Entry& entry : entries_) {
          if (!entry.moves) continue;
          const auto sample = Take(entry, bytes, flags_.sample_bytes, entry.at_a_time);
          if (!sample.has_value()) continue;
          rate[{entry.way->name(), bytes}].push_back(sample->mib_per_s);
          if (sample->cpu_s_per_gb >= 0) cpu[{entry.way->name(), bytes}].push_back(sample->cpu_s_per_gb);
        }
      }
    }
    std::map<std::pair<std::string, uint64_t>, double> median;
    for (const uint64_t bytes : flags_.sizes) {
      for (const Entry& entry : entries_) {
        if (!entry.moves) continue;
        const std::pair<std::string, uint64_t> key(entry.way->name(), bytes);
        const std::string what = entry.way->name() + ", " + SizeText(bytes);
        median[key] = report_.Measure(what + ", MiB/s", rate[key]);
        if (!cpu[key].empty()) report_.Measure(what + ", CPU s/GB", cpu[key]);
      }
    }
    Compare(median, "ucx", "ucp_am_bw", 0.85);
    Compare(median, "shm copying", "memcpy", 0.8);
  }

  void Compare(const std::map<std::pair<std::string, uint64_t>, double>& median, const std::string& ours,
               const std::string& other, double target) {
    const auto mine = median.find({ours, kBarBytes});
    const auto theirs = median.find({other, kBarBytes});
    if (mine == median.end() || theirs == median.end() || theirs->second == 0) return;
    report_.CheckAtLeast(ours + " / " + other + ", " + SizeText(kBarBytes), mine->second / theirs->second,
                         target);
  }

  void TimeLatency() {
    Samples middle;
    Samples slow;
    for (int run = 0; run < flags_.runs; ++run) {
      for (const uint64_t bytes : kSmall) {
        for (const Entry& entry : entries_) {
          if (!entry.answers) continue;
          const auto sample = Take(entry, bytes, bytes * static_cast<uint64_t>(flags_.small_fetches), 1);
          if (!sample.has_value()) continue;
          middle[{entry.way->name(), bytes}].push_back(Quantile(sample->seconds, 0.5) * 1e6);
          slow[{entry.way->name(), bytes}].push_back(Quantile(sample->seconds, 0.99) * 1e6);
        }
      }
    }
    for (const uint64_t bytes : kSmall) {
      for (const Entry& entry : entries_) {
        if (!entry.answers) continue;
        const std::string what = entry.way->name() + ", " + SizeText(bytes);
        report_.Measure(what + ", p50 us", middle[{entry.way->name(), bytes}]);
        report_.Measure(what + ", p99 us", slow[{entry.way->name(), bytes}]);
      }
    }
  }

  const Flags flags_;
  BenchReport report_;
  BenchObjects objects_;
  BenchPeer peer_;
  WayShared shared_;
  std::vector<Entry> entries_;
};

[[noreturn]] void Refuse(const char* program) {
  std::fprintf(
      stderr,
      "usage: %s [--only bandwidth|latency] [--ways NAME,...] [--runs N] [--size MIB] [--poll-us N]\n"
      "          [--quick] [--json]\n"
      "  --ways     of: memcpy, inproc, shm copying, shm hold, shm hold checked, grpc, ucx, socket, "
      "ucp_am_bw\n"
      "  --poll-us  how long UCX's threads look on before they sleep, instead of the default\n",
      program);
  std::exit(2);
}

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const bool has_value = i + 1 < argc;
    if (flag == "--quick") {
      flags.runs = 3;
      flags.sizes = {64 * kKib, kBarBytes};
      flags.sample_bytes = 64 * kMibBytes;
      flags.small_fetches = 100;
    } else if (flag == "--json") {
      flags.json = true;
    } else if (flag == "--runs" && has_value) {
      flags.runs = std::max(1, std::atoi(argv[++i]));
    } else if (flag == "--poll-us" && has_value) {
      flags.ucx_poll_us = std::atoll(argv[++i]);
    } else if (flag == "--ways" && has_value) {
      flags.ways = "," + std::string(argv[++i]) + ",";
    } else if (flag == "--size" && has_value) {
      flags.sizes = {std::strtoull(argv[++i], nullptr, 10) * kMibBytes};
    } else if (flag == "--only" && has_value) {
      flags.bandwidth = std::string_view(argv[i + 1]) == "bandwidth";
      flags.latency = std::string_view(argv[++i]) == "latency";
      if (!flags.bandwidth && !flags.latency) Refuse(argv[0]);
    } else {
      Refuse(argv[0]);
    }
  }
  return flags;
}

}  // namespace
}  // namespace epic::transport

int main(int argc, char** argv) {
  if (argc > 2 && std::string_view(argv[1]) == "peer") {
    return epic::transport::RunBenchPeer(std::vector<std::string>(argv + 2, argv + argc));
  }
  const epic::transport::Flags flags = epic::transport::ParseFlags(argc, argv);
  epic::transport::Bench bench(argv[0], flags);
  return bench.Run();
}
