// Fibres of the emulator: a stack of its own each, handed over in a few instructions, memory kept and reused.
//
// Owned and run by one thread; a fibre never moves to another. Knows AddressSanitizer, not ThreadSanitizer.
#ifndef EPIC_KERNELS_SIMT_FIBRE_H_
#define EPIC_KERNELS_SIMT_FIBRE_H_

#include <cstddef>
#include <cstdint>

namespace epic::simt {

// Where a fibre, or the thread that runs fibres, stands while another runs.
struct FibreContext {
  void* stack_pointer = nullptr;
  void* stack_bottom = nullptr;  // lowest address
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's
};

// The context of the thread that runs the fibres, before its first switch to one.
FibreContext ThreadContext();

// Leaves `from` and goes on in `to`; returns when somebody switches back to `from`.
void SwitchFibre(FibreContext* from, FibreContext* to);

// The memory of one fibre's stack, with a page below it that faults.
class FibreStack {
 public:
  FibreStack();
  ~FibreStack();
  FibreStack(const FibreStack&) = delete;
  FibreStack& operator=(const FibreStack&) = delete;

  // Makes `context` begin at entry() on this stack at the next switch to it. What ran there before is
  // forgotten, without destructors. REQUIRES: entry never returns, and calls EnterFibre first.
  void Prepare(void (*entry)(), FibreContext* context);

 private:
  unsigned char* memory_;
};

// The first thing that a fibre does.
void EnterFibre();

}  // namespace epic::simt

#endif  // EPIC_KERNELS_SIMT_FIBRE_H_
