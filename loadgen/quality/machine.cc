#include "loadgen/quality/machine.h"

#include <sys/utsname.h>

#include <fstream>
#include <thread>

#include "kernels/api/dispatch.h"

namespace epic::loadgen {
namespace {

constexpr char kUnknown[] = "unknown";

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return kUnknown;
}

std::string FirstLine(const char* path) {
  std::ifstream in(path);
  std::string line;
  return std::getline(in, line) && !line.empty() ? line : kUnknown;
}

}  // namespace

Machine DescribeMachine() {
  Machine machine;
  machine.cpu = CpuName();
  machine.isa = DescribeCpu();
  machine.cores = std::thread::hardware_concurrency();
  utsname name{};
  machine.kernel = ::uname(&name) == 0 ? std::string(name.sysname) + " " + name.release : kUnknown;
  machine.governor = FirstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  return machine;
}

}  // namespace epic::loadgen
