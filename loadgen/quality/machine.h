// What a measurement ran on, in words, for reports. Reads files of the kernel; pure otherwise.
#ifndef EPIC_LOADGEN_QUALITY_MACHINE_H_
#define EPIC_LOADGEN_QUALITY_MACHINE_H_

#include <cstdint>
#include <string>

namespace epic::loadgen {

struct Machine {
  std::string cpu;       // the model's name; "unknown" where the kernel does not say
  std::string isa;       // what the kernels compute with, such as "AVX-512 bf16"
  uint32_t cores = 0;    // that this process may use
  std::string kernel;    // such as "Linux 6.1.0"
  std::string governor;  // of the first core's frequency; "unknown" in most virtual machines
};

Machine DescribeMachine();

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_QUALITY_MACHINE_H_
