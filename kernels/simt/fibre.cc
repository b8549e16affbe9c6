#include "kernels/simt/fibre.h"

#include <pthread.h>
#include <sys/mman.h>

#include "common/base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define EPIC_SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EPIC_SIMT_ASAN 1
#endif
#endif
#ifdef EPIC_SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef __x86_64__
#error "the hand-over between fibres is written for x86-64"
#endif

// Saves what a call must keep (System V), stores the stack pointer at *rdi and goes on at stack rsi.
asm(R"(
.text
.p2align 4
.hidden epic_simt_switch
.globl epic_simt_switch
.type epic_simt_switch, @function
epic_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size epic_simt_switch, . - epic_simt_switch
)");
extern "C" void epic_simt_switch(void** save, void* load);

namespace epic::simt {
namespace {

constexpr size_t kPage = 4096;
#ifdef EPIC_SIMT_ASAN
constexpr size_t kStackBytes = 512 * 1024;  // frames are larger there
#else
constexpr size_t kStackBytes = 128 * 1024;
#endif

}  // namespace

FibreContext ThreadContext() {
  FibreContext context;
  pthread_attr_t attributes;
  EPIC_CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
  EPIC_CHECK(pthread_attr_getstack(&attributes, &context.stack_bottom, &context.stack_bytes) == 0);
  pthread_attr_destroy(&attributes);
  return context;
}

void SwitchFibre(FibreContext* from, FibreContext* to) {
#ifdef EPIC_SIMT_ASAN
  __sanitizer_start_switch_fiber(&from->fake_stack, to->stack_bottom, to->stack_bytes);
#endif
  epic_simt_switch(&from->stack_pointer, to->stack_pointer);
#ifdef EPIC_SIMT_ASAN
  __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}

void EnterFibre() {
#ifdef EPIC_SIMT_ASAN
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

FibreStack::FibreStack() {
  void* memory = mmap(nullptr, kPage + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EPIC_CHECK(memory != MAP_FAILED);
  memory_ = static_cast<unsigned char*>(memory);
  EPIC_CHECK(mprotect(memory_, kPage, PROT_NONE) == 0);
}

FibreStack::~FibreStack() { munmap(memory_, kPage + kStackBytes); }

void FibreStack::Prepare(void (*entry)(), FibreContext* context) {
  unsigned char* bottom = memory_ + kPage;
#ifdef EPIC_SIMT_ASAN
  __asan_unpoison_memory_region(bottom, kStackBytes);
#endif
  // At entry the stack is as after a call: a return address (none) on top, 8 past a multiple of 16.
  void** top = reinterpret_cast<void**>(bottom + kStackBytes);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  constexpr int kSavedRegisters = 6;
  for (int i = 0; i < kSavedRegisters; ++i) *--top = nullptr;
  *context = {
      .stack_pointer = top, .stack_bottom = bottom, .stack_bytes = kStackBytes, .fake_stack = nullptr};
}

}  // namespace epic::simt
