// What launchers of GPU kernels take and return. No CUDA header: who calls a launcher need not have one.
//
// A launcher only enqueues work on a stream: pointers in its arguments are device memory, which the caller
// owns and keeps until the work is done. It allocates nothing and waits for nothing.
#ifndef EPIC_KERNELS_API_GPU_H_
#define EPIC_KERNELS_API_GPU_H_

#include <cstdint>

struct CUstream_st;

namespace epic {

// A cudaStream_t; null is the default stream.
using GpuStream = CUstream_st*;

enum class GpuCode : uint8_t {
  kOk = 0,
  kInvalid,      // arguments that contradict each other: a mistake of the caller
  kUnsupported,  // a shape or type that the kernel is not built for: use another path
  kWorkspace,    // the workspace is smaller than the size function says
  kDevice,       // the device or its driver refused or failed
};

// Of the launch, not of the kernel's run: what fails later is seen at the stream's next synchronisation.
struct [[nodiscard]] GpuStatus {
  GpuCode code = GpuCode::kOk;
  // Says what to do. Valid until the next launch by this thread.
  const char* message = "";
  bool ok() const { return code == GpuCode::kOk; }
};

}  // namespace epic

#endif  // EPIC_KERNELS_API_GPU_H_
