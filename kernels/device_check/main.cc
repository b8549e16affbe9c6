// device_check: the sweeps and benches of every GPU kernel, on a real device. Built and run by
// kernels/device_check.sh. usage: device_check [--json] [--no-bench]
// Exit: 0 all right, 1 a kernel is wrong or failed, 2 usage, 77 there is no device.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/device_check/benches.h"
#include "kernels/device_check/device.h"
#include "kernels/kv_write/kv_write_cuda_sweep.h"
#include "kernels/rms_norm/rms_norm_cuda_sweep.h"
#include "kernels/row_copy/row_copy_cuda_sweep.h"
#include "kernels/row_selection/row_selection_cuda_sweep.h"
#include "kernels/sampling/sampling_cuda_sweep.h"
#include "kernels/segment_attention/segment_attention_cuda_sweep.h"
#include "kernels/swiglu/swiglu_cuda_sweep.h"
#include "kernels/value_distance/value_distance_cuda_sweep.h"

namespace epic {
namespace {

constexpr int kWrong = 1;
constexpr int kUsage = 2;
constexpr int kNoDevice = 77;

struct Sweep {
  const char* name;
  void (*run)(simt::SweepReport*);
};
constexpr Sweep kSweeps[] = {{"link attention", SweepLinkAttention},
                             {"decode attention", SweepDecodeAttention},
                             {"rotary and KV write", SweepKvWrite},
                             {"row copy", SweepRowCopy},
                             {"RMS norm", SweepRmsNorm},
                             {"SwiGLU", SweepSwiGlu},
                             {"row selection", SweepRowSelection},
                             {"value distance", SweepValueDistance},
                             {"sampling", SweepSampling}};

struct SweepResult {
  std::string name;
  simt::SweepReport report{/*thorough=*/true};
  double seconds = 0;
};

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

struct Results {
  DeviceInfo device;
  double copy_roof = 0;  // bytes/s
  double mma_roof = 0;   // FLOP/s
  std::vector<SweepResult> sweeps;
  std::vector<BenchResult> benches;

  bool ok() const {
    for (const SweepResult& sweep : sweeps) {
      if (sweep.report.failures() > 0) return false;
    }
    for (const BenchResult& bench : benches) {
      if (!bench.error.empty()) return false;
    }
    return true;
  }
  double RoofPercent(const BenchResult& bench) const {
    const double roof = bench.is_flop ? mma_roof : copy_roof;
    return roof > 0 ? 100 * bench.rate / roof : 0;
  }
};

void PrintJson(const Results& results) {
  std::printf(
      "{\"device\":{\"name\":%s,\"multiprocessors\":%d,\"capability\":\"%d.%d\",\"memory_bytes\":%zu},\n",
      Quoted(results.device.name).c_str(), results.device.multiprocessors, results.device.major,
      results.device.minor, results.device.memory_bytes);
  std::printf("\"roofs\":{\"copy_gb_per_second\":%.1f,\"mma_sync_bf16_tflops\":%.1f},\n\"sweeps\":[",
              results.copy_roof * 1e-9, results.mma_roof * 1e-12);
  const char* comma = "";
  for (const SweepResult& sweep : results.sweeps) {
    std::printf("%s\n{\"name\":%s,\"checks\":%llu,\"failures\":%llu,\"seconds\":%.2f,\"messages\":[", comma,
                Quoted(sweep.name).c_str(), static_cast<unsigned long long>(sweep.report.checks()),
                static_cast<unsigned long long>(sweep.report.failures()), sweep.seconds);
    const char* inner = "";
    for (const std::string& message : sweep.report.messages()) {
      std::printf("%s%s", inner, Quoted(message).c_str());
      inner = ",";
    }
    std::printf("]}");
    comma = ",";
  }
  std::printf("],\n\"benches\":[");
  comma = "";
  for (const BenchResult& bench : results.benches) {
    std::printf(
        "%s\n{\"name\":%s,\"microseconds\":{\"median\":%.2f,\"min\":%.2f,\"max\":%.2f},\"%s\":%.2f,"
        "\"roof_percent\":%.1f,\"error\":%s}",
        comma, Quoted(bench.name).c_str(), bench.timing.median_seconds * 1e6, bench.timing.min_seconds * 1e6,
        bench.timing.max_seconds * 1e6, bench.is_flop ? "tflops" : "gb_per_second",
        bench.rate * (bench.is_flop ? 1e-12 : 1e-9), results.RoofPercent(bench), Quoted(bench.error).c_str());
    comma = ",";
  }
  std::printf("],\n\"ok\":%s}\n", results.ok() ? "true" : "false");
}

void PrintText(const Results& results) {
  std::printf("%s, sm_%d%d, %d multiprocessors; copy %.0f GB/s, mma.sync bf16 %.0f TFLOPS\n",
              results.device.name.c_str(), results.device.major, results.device.minor,
              results.device.multiprocessors, results.copy_roof * 1e-9, results.mma_roof * 1e-12);
  for (const SweepResult& sweep : results.sweeps) {
    std::printf("%-24s %6llu checks %4llu failures %6.1f s\n", sweep.name.c_str(),
                static_cast<unsigned long long>(sweep.report.checks()),
                static_cast<unsigned long long>(sweep.report.failures()), sweep.seconds);
    for (const std::string& message : sweep.report.messages()) std::printf("    %s\n", message.c_str());
  }
  for (const BenchResult& bench : results.benches) {
    std::printf("%-72s %9.1f us (%.1f..%.1f) %8.1f %s %5.1f %% of roof %s\n", bench.name.c_str(),
                bench.timing.median_seconds * 1e6, bench.timing.min_seconds * 1e6,
                bench.timing.max_seconds * 1e6, bench.rate * (bench.is_flop ? 1e-12 : 1e-9),
                bench.is_flop ? "TFLOPS" : "GB/s", results.RoofPercent(bench), bench.error.c_str());
  }
  std::printf("%s\n", results.ok() ? "all right" : "WRONG: see above");
}

int Main(int argc, char** argv) {
  bool json = false, has_benches = true;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else if (std::strcmp(argv[i], "--no-bench") == 0) {
      has_benches = false;
    } else {
      std::fprintf(stderr, "device_check: unknown argument '%s'; usage: device_check [--json] [--no-bench]\n",
                   argv[i]);
      return kUsage;
    }
  }
  Results results;
  std::string why;
  if (!FindDevice(&results.device, &why)) {
    std::fprintf(stderr, "device_check: no usable CUDA device here (%s): nothing was checked\n", why.c_str());
    if (json) std::printf("{\"device\":null,\"reason\":%s,\"ok\":null}\n", Quoted(why).c_str());
    return kNoDevice;
  }
  for (const Sweep& sweep : kSweeps) {
    SweepResult& result = results.sweeps.emplace_back();
    result.name = sweep.name;
    const auto begin = std::chrono::steady_clock::now();
    sweep.run(&result.report);
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  // Times of kernels that are wrong mean nothing.
  if (has_benches && results.ok()) {
    results.copy_roof = MeasureCopyRoof();
    results.mma_roof = MeasureMmaRoof();
    results.benches = RunBenches();
  }
  if (json) {
    PrintJson(results);
  } else {
    PrintText(results);
  }
  return results.ok() ? 0 : kWrong;
}

}  // namespace
}  // namespace epic

int main(int argc, char** argv) { return epic::Main(argc, argv); }
