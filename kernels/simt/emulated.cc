#include "kernels/simt/emulated.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/random.h"
#include "kernels/simt/fibre.h"

namespace epic::simt {
namespace internal {
namespace {

constexpr uint32_t kMaxThreads = 1024;
constexpr size_t kStaticSharedBytes = 48 * 1024;
constexpr size_t kSharedAlignment = 128;
constexpr size_t kCanaryBytes = 256;
constexpr unsigned char kUnset = 0xff;  // a NaN in every float type
constexpr unsigned char kCanary = 0xa5;

enum class State : uint8_t { kReady, kAtWarp, kAtBlock, kEnded };

struct PendingCopy {
  void* to;
  const void* from;
  bool valid;
  uint32_t group;  // how many groups were committed before it
};

struct Thread {
  ThreadView view;
  FibreContext context;
  State state = State::kEnded;
  Site site{"", 0};  // where it waits
  CollectiveFn collective = nullptr;
  void* operands = nullptr;
  bool value = false;
  std::vector<PendingCopy> copies;
  uint32_t committed = 0;
};

struct Warp {
  uint32_t ready = 0;    // lanes that can run and do not run now
  uint32_t arrived = 0;  // lanes at the collective
};

struct StaticArray {
  Site site;
  size_t offset;
  size_t bytes;
};

// Bytes between two runs of canaries.
class SharedRegion {
 public:
  void Reset(size_t bytes) {
    bytes_ = bytes;
    memory_.resize(bytes + 2 * kCanaryBytes + kSharedAlignment);
    const auto address = reinterpret_cast<uintptr_t>(memory_.data()) + kCanaryBytes;
    base_ =
        memory_.data() + kCanaryBytes + (kSharedAlignment - address % kSharedAlignment) % kSharedAlignment;
    std::fill(base_ - kCanaryBytes, base_, kCanary);
    std::fill(base_, base_ + bytes, kUnset);
    std::fill(base_ + bytes, base_ + bytes + kCanaryBytes, kCanary);
  }
  bool IsIntact() const {
    const auto is_canary = [](unsigned char byte) { return byte == kCanary; };
    return std::all_of(base_ - kCanaryBytes, base_, is_canary) &&
           std::all_of(base_ + bytes_, base_ + bytes_ + kCanaryBytes, is_canary);
  }
  bool Contains(const void* at, size_t bytes) const {
    const auto* byte = static_cast<const unsigned char*>(at);
    return byte >= base_ && bytes <= bytes_ && byte <= base_ + bytes_ - bytes;
  }
  unsigned char* base() const { return base_; }

 private:
  std::vector<unsigned char> memory_;
  unsigned char* base_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace

// Runs launches of one thread, one at a time; stacks are kept from launch to launch.
class Runner {
 public:
  void SetSeed(uint64_t seed) { launches_ = Rng(seed); }
  GpuStatus Run(Dim3 grid, uint32_t threads, size_t shared_bytes, const std::function<void()>& body);

  void WarpCollective(CollectiveFn fn, void* operands, Site site);
  bool BlockBarrier(bool value, Site site);
  // Failing is two steps: what a statement builds on a fibre's stack is gone before the fibre is left for
  // good.
  void NoteFailure(const std::string& message);
  [[noreturn]] void Abandon();
  void* StaticShared(size_t bytes, Site site);
  bool IsShared(const void* at, size_t bytes) const {
    return dynamic_.Contains(at, bytes) || (static_used_ > 0 && static_.Contains(at, bytes));
  }
  Thread& Self() { return threads_[current->thread]; }
  // The body of every fibre: a thread of each block, one after another.
  void RunThreads();

 private:
  void PrepareThreads(uint32_t threads);
  void RunBlock(Dim3 block);
  Thread* PickNext();
  void SwitchAway(Thread* self);
  void MakeReady(uint32_t thread) {
    threads_[thread].state = State::kReady;
    warps_[thread / kWarp].ready |= 1u << thread % kWarp;
  }
  std::string DescribeDeadlock() const;

  Rng launches_{1};         // gives each launch a seed
  Rng rng_{1};              // of the launch that runs
  uint64_t stay_mask_ = 0;  // a warp is left early when a random number has none of these bits; 0 = never
  // Fibres wait in RunThreads from launch to launch, and refer to their threads: these never move. The first
  // `prepared_` are fit to run.
  std::vector<std::unique_ptr<FibreStack>> stacks_;
  std::vector<Thread> all_threads_{kMaxThreads};
  uint32_t prepared_ = 0;
  std::span<Thread> threads_;  // of the launch
  std::vector<Warp> warps_;
  size_t running_warp_ = 0;
  uint32_t at_barrier_ = 0;
  uint32_t ended_ = 0;
  bool barrier_value_ = false;
  SharedRegion dynamic_;
  SharedRegion static_;
  size_t dynamic_bytes_ = 0;
  size_t static_used_ = 0;
  std::vector<StaticArray> static_arrays_;
  const std::function<void()>* body_ = nullptr;
  FibreContext main_;
  std::string failure_;
};

namespace {

Runner& TheRunner() {
  static thread_local Runner runner;
  return runner;
}

void FibreEntry() {
  EnterFibre();
  TheRunner().RunThreads();
}

std::string Where(Site site) {
  const std::string_view file(site.file);
  return std::string(file.substr(file.rfind('/') + 1)) + ":" + std::to_string(site.line);
}

}  // namespace

void Runner::RunThreads() {
  for (;;) {
    (*body_)();
    Thread& self = Self();
    if (!self.copies.empty()) internal::Fail("ended while asynchronous copies were under way");
    self.state = State::kEnded;
    ++ended_;
    SwitchAway(&self);
  }
}

void Runner::PrepareThreads(uint32_t threads) {
  for (; prepared_ < threads; ++prepared_) {
    if (stacks_.size() == prepared_) stacks_.push_back(std::make_unique<FibreStack>());
    stacks_[prepared_]->Prepare(FibreEntry, &all_threads_[prepared_].context);
    all_threads_[prepared_].copies.clear();
  }
  threads_ = std::span(all_threads_).first(threads);
  warps_.assign(threads / kWarp, Warp());
}

GpuStatus Runner::Run(Dim3 grid, uint32_t threads, size_t shared_bytes, const std::function<void()>& body) {
  EPIC_CHECK(body_ == nullptr);
  body_ = &body;
  failure_.clear();
  dynamic_bytes_ = shared_bytes;
  rng_ = Rng(launches_.Next());
  constexpr uint64_t kStayMasks[] = {0, 0xff, 0xf};
  stay_mask_ = kStayMasks[rng_.Below(3)];
  PrepareThreads(threads);
  std::vector<uint32_t> order(size_t{grid.x} * grid.y * grid.z);
  std::iota(order.begin(), order.end(), 0u);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng_.Below(i)]);
  main_ = ThreadContext();
  for (const uint32_t index : order) {
    RunBlock({index % grid.x, index / grid.x % grid.y, index / grid.x / grid.y});
    if (!failure_.empty()) break;
  }
  body_ = nullptr;
  if (!failure_.empty()) prepared_ = 0;  // they stand where they failed
  return failure_.empty() ? GpuStatus{} : GpuStatus{GpuCode::kDevice, failure_.c_str()};
}

void Runner::RunBlock(Dim3 block) {
  dynamic_.Reset(dynamic_bytes_);
  static_used_ = 0;
  static_arrays_.clear();
  at_barrier_ = ended_ = 0;
  barrier_value_ = false;
  for (Warp& warp : warps_) warp = Warp();
  for (uint32_t t = 0; t < threads_.size(); ++t) {
    Thread& thread = threads_[t];
    thread.view = {.thread = t,
                   .threads = static_cast<uint32_t>(threads_.size()),
                   .block = block,
                   .dynamic_shared = dynamic_.base(),
                   .dynamic_shared_bytes = dynamic_bytes_};
    thread.committed = 0;
    MakeReady(t);
  }
  running_warp_ = rng_.Below(warps_.size());
  Thread* first = PickNext();
  current = &first->view;
  SwitchFibre(&main_, &first->context);
  current = nullptr;
  if (failure_.empty() && (!dynamic_.IsIntact() || (static_used_ > 0 && !static_.IsIntact()))) {
    failure_ = "block (" + std::to_string(block.x) + ", " + std::to_string(block.y) + ", " +
               std::to_string(block.z) + "): wrote beyond its shared memory";
  }
}

Thread* Runner::PickNext() {
  const uint64_t random = rng_.Next();
  const bool stays =
      warps_[running_warp_].ready != 0 && (stay_mask_ == 0 || (random >> 32 & stay_mask_) != 0);
  if (!stays) {
    const size_t start = random % warps_.size();
    size_t found = warps_.size();
    for (size_t i = 0; i < warps_.size() && found == warps_.size(); ++i) {
      const size_t warp = (start + i) % warps_.size();
      if (warps_[warp].ready != 0) found = warp;
    }
    if (found == warps_.size()) return nullptr;
    running_warp_ = found;
  }
  uint32_t& ready = warps_[running_warp_].ready;
  const int turn = static_cast<int>(random >> 59);
  const uint32_t lane = (std::countr_zero(std::rotr(ready, turn)) + turn) % kWarp;
  ready &= ~(1u << lane);
  return &threads_[running_warp_ * kWarp + lane];
}

void Runner::SwitchAway(Thread* self) {
  Thread* next = PickNext();
  if (next == self) return;
  if (next == nullptr) {
    if (ended_ < threads_.size()) failure_ = DescribeDeadlock();
    SwitchFibre(&self->context, &main_);
    return;  // with a thread of the next block
  }
  current = &next->view;
  SwitchFibre(&self->context, &next->context);
}

void Runner::WarpCollective(CollectiveFn fn, void* operands, Site site) {
  Thread& self = Self();
  self.collective = fn;
  self.operands = operands;
  self.site = site;
  self.state = State::kAtWarp;
  const uint32_t first = self.view.thread / kWarp * kWarp;
  Warp& warp = warps_[first / kWarp];
  warp.arrived |= 1u << self.view.thread % kWarp;
  if (warp.arrived == ~0u) {
    void* lanes[kWarp];
    for (uint32_t l = 0; l < kWarp; ++l) {
      const Thread& lane = threads_[first + l];
      if (!(lane.site == site) || lane.collective != fn) {
        NoteFailure("divergent warp: this lane is at " + Where(site) + ", lane " + std::to_string(l) +
                    " at " + Where(lane.site));
        Abandon();
      }
      lanes[l] = lane.operands;
    }
    fn(lanes);
    warp.arrived = 0;
    for (uint32_t l = 0; l < kWarp; ++l) MakeReady(first + l);
  }
  SwitchAway(&self);
}

bool Runner::BlockBarrier(bool value, Site site) {
  Thread& self = Self();
  self.site = site;
  self.state = State::kAtBlock;
  self.value = value;
  if (++at_barrier_ == threads_.size()) {
    bool any = false;
    for (const Thread& thread : threads_) {
      if (!(thread.site == site)) {
        NoteFailure("divergent barrier: this thread is at " + Where(site) + ", thread " +
                    std::to_string(thread.view.thread) + " at " + Where(thread.site));
        Abandon();
      }
      any |= thread.value;
    }
    barrier_value_ = any;
    at_barrier_ = 0;
    for (uint32_t t = 0; t < threads_.size(); ++t) {
      threads_[t].value = any;
      MakeReady(t);
    }
    running_warp_ = rng_.Below(warps_.size());
  }
  SwitchAway(&self);
  return self.value;
}

std::string Runner::DescribeDeadlock() const {
  std::string out = "divergent barrier:";
  std::vector<std::string> seen;
  for (const Thread& thread : threads_) {
    std::string what = thread.state == State::kEnded    ? "has ended"
                       : thread.state == State::kAtWarp ? "waits for its warp at " + Where(thread.site)
                                                        : "waits for the block at " + Where(thread.site);
    if (std::find(seen.begin(), seen.end(), what) != seen.end()) continue;
    out += (seen.empty() ? " thread " : ", thread ") + std::to_string(thread.view.thread) + " " + what;
    seen.push_back(std::move(what));
  }
  return out;
}

void Runner::NoteFailure(const std::string& message) {
  const ThreadView& at = *current;
  failure_ = "block (" + std::to_string(at.block.x) + ", " + std::to_string(at.block.y) + ", " +
             std::to_string(at.block.z) + ") thread " + std::to_string(at.thread) + ": " + message;
}

void Runner::Abandon() {
  SwitchFibre(&Self().context, &main_);
  std::abort();  // nobody switches back: stacks are prepared afresh
}

void* Runner::StaticShared(size_t bytes, Site site) {
  for (const StaticArray& array : static_arrays_) {
    if (!(array.site == site)) continue;
    if (array.bytes != bytes) {
      NoteFailure("two sizes of the static array at " + Where(site));
      Abandon();
    }
    return static_.base() + array.offset;
  }
  if (static_arrays_.empty()) static_.Reset(kStaticSharedBytes);
  const size_t offset = static_used_;
  static_used_ += (bytes + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
  if (static_used_ > kStaticSharedBytes) internal::Fail("static shared memory is over 48 KiB");
  static_arrays_.push_back({site, offset, bytes});
  return static_.base() + offset;
}

void WarpCollective(CollectiveFn fn, void* operands, Site site) {
  TheRunner().WarpCollective(fn, operands, site);
}

bool BlockBarrier(bool value, Site site) { return TheRunner().BlockBarrier(value, site); }

void Fail(const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  TheRunner().NoteFailure(text);
  TheRunner().Abandon();
}

void FailIndex(size_t index, size_t length, size_t count) {
  Fail("shared memory out of bounds: elements [%zu, %zu) of an array of %zu", index, index + length, count);
}

void* StaticSharedBytes(size_t bytes, Site site) { return TheRunner().StaticShared(bytes, site); }

void CheckShared(const void* at, size_t bytes, size_t alignment, const char* what, Site site) {
  Runner& runner = TheRunner();
  const bool is_shared = runner.IsShared(at, bytes);
  if (is_shared && reinterpret_cast<uintptr_t>(at) % alignment == 0) return;
  runner.NoteFailure(std::string(what) + " at " + Where(site) +
                     (is_shared ? ": the address is no multiple of " + std::to_string(alignment)
                                : ": not in shared memory"));
  runner.Abandon();
}

void StartCopy(void* shared, const void* global, bool valid, Site site) {
  CheckShared(shared, sizeof(Bits128), sizeof(Bits128), "asynchronous copy", site);
  if (reinterpret_cast<uintptr_t>(global) % sizeof(Bits128) != 0) {
    Fail("asynchronous copy at %s:%d: the source is no multiple of 16", site.file, site.line);
  }
  // The bytes may arrive at any time from now on: until the wait, what was there before is gone.
  std::memset(shared, kUnset, sizeof(Bits128));
  Thread& self = TheRunner().Self();
  self.copies.push_back({shared, global, valid, self.committed});
}

void CommitCopies() { ++TheRunner().Self().committed; }

void WaitCopies(uint32_t groups) {
  Thread& self = TheRunner().Self();
  size_t done = 0;
  for (; done < self.copies.size() && self.copies[done].group + groups < self.committed; ++done) {
    const PendingCopy& copy = self.copies[done];
    if (copy.valid) {
      std::memcpy(copy.to, copy.from, sizeof(Bits128));
    } else {
      std::memset(copy.to, 0, sizeof(Bits128));
    }
  }
  self.copies.erase(self.copies.begin(), self.copies.begin() + static_cast<ptrdiff_t>(done));
}

namespace {

struct MatrixOperands {
  uint32_t* out;
  const void* row;
  uint32_t matrices;
  bool transposed;
  Site site;
};

void LoadMatricesOfWarp(void* const* lanes) {
  const MatrixOperands& first = *static_cast<const MatrixOperands*>(lanes[0]);
  for (uint32_t m = 0; m < first.matrices; ++m) {
    Bf16 matrix[8][8];
    for (uint32_t r = 0; r < 8; ++r) {
      const void* row = static_cast<const MatrixOperands*>(lanes[m * 8 + r])->row;
      CheckShared(row, sizeof(Bits128), sizeof(Bits128), "ldmatrix", first.site);
      std::memcpy(matrix[r], row, sizeof(matrix[r]));
    }
    for (uint32_t l = 0; l < kWarp; ++l) {
      const uint32_t row = l / 4, column = l % 4 * 2;
      const Bf16 low = first.transposed ? matrix[column][row] : matrix[row][column];
      const Bf16 high = first.transposed ? matrix[column + 1][row] : matrix[row][column + 1];
      static_cast<MatrixOperands*>(lanes[l])->out[m] = uint32_t{low} | uint32_t{high} << 16;
    }
  }
}

struct MmaOperands {
  float* c;
  const uint32_t* a;
  const uint32_t* b;
};

float HalfOf(uint32_t pair, uint32_t high) { return ToF32(static_cast<Bf16>(high != 0 ? pair >> 16 : pair)); }

void MultiplyOfWarp(void* const* lanes) {
  float a[16][16], b[16][8];
  for (uint32_t l = 0; l < kWarp; ++l) {
    const MmaOperands& lane = *static_cast<const MmaOperands*>(lanes[l]);
    const uint32_t g = l / 4, t = l % 4 * 2;
    for (uint32_t h = 0; h < 2; ++h) {
      a[g][t + h] = HalfOf(lane.a[0], h);
      a[g + 8][t + h] = HalfOf(lane.a[1], h);
      a[g][t + 8 + h] = HalfOf(lane.a[2], h);
      a[g + 8][t + 8 + h] = HalfOf(lane.a[3], h);
      b[t + h][g] = HalfOf(lane.b[0], h);
      b[t + 8 + h][g] = HalfOf(lane.b[1], h);
    }
  }
  float sums[16][8] = {};
  for (uint32_t row = 0; row < 16; ++row) {
    for (uint32_t k = 0; k < 16; ++k) {
      for (uint32_t column = 0; column < 8; ++column) sums[row][column] += a[row][k] * b[k][column];
    }
  }
  for (uint32_t l = 0; l < kWarp; ++l) {
    const MmaOperands& lane = *static_cast<const MmaOperands*>(lanes[l]);
    const uint32_t g = l / 4, t = l % 4 * 2;
    for (uint32_t h = 0; h < 2; ++h) {
      lane.c[h] += sums[g][t + h];
      lane.c[2 + h] += sums[g + 8][t + h];
    }
  }
}

}  // namespace

void LoadMatrices(uint32_t* out, const void* row, uint32_t matrices, bool transposed, Site site) {
  MatrixOperands operands{out, row, matrices, transposed, site};
  WarpCollective(LoadMatricesOfWarp, &operands, site);
}

void Multiply(float* c, const uint32_t* a, const uint32_t* b, Site site) {
  MmaOperands operands{c, a, b};
  WarpCollective(MultiplyOfWarp, &operands, site);
}

GpuStatus RunGrid(Dim3 grid, uint32_t threads, size_t shared_bytes, const std::function<void()>& thread) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535) {
    return {GpuCode::kDevice, "the grid is empty or too large"};
  }
  if (threads == 0 || threads % kWarp != 0 || threads > kMaxThreads) {
    return {GpuCode::kDevice, "the threads of a block are no multiple of 32 up to 1024"};
  }
  if (shared_bytes > kMaxSharedBytes) return {GpuCode::kDevice, "too much dynamic shared memory"};
  return TheRunner().Run(grid, threads, shared_bytes, thread);
}

}  // namespace internal

void SetOrderSeed(uint64_t seed) { internal::TheRunner().SetSeed(seed); }

}  // namespace epic::simt
