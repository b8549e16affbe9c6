#include "services/kv_store/extents/uring_engine.h"

#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/status/errno_status.h"
#include "common/status/status_macros.h"

namespace epic::kv_store {
namespace {

// One ring, for one thread at a time.
class Ring {
 public:
  static absl::StatusOr<std::unique_ptr<Ring>> Make() {
    std::unique_ptr<Ring> ring(new Ring());
    const int result = io_uring_queue_init(kIoWindow, &ring->ring_, 0);
    if (result < 0) return FromErrno(-result, "cannot make an io_uring");
    ring->usable_ = true;
    io_uring_probe* const probe = io_uring_get_probe_ring(&ring->ring_);
    const bool known = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                       io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
    if (probe != nullptr) io_uring_free_probe(probe);
    if (!known) return FromErrno(ENOSYS, "this kernel's io_uring cannot read and write");
    return ring;
  }
  ~Ring() {
    if (usable_) io_uring_queue_exit(&ring_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // False after a failure that leaves the ring in an unknown state: it must not be used again.
  bool Run(IoKind kind, std::span<const EnginePiece> pieces, const IoDone& done) {
    std::deque<size_t> waiting;  // begun before, told by the kernel to try again
    size_t next = 0;
    size_t in_flight = 0;
    bool go_on = true;
    while (true) {
      while (go_on && in_flight < kIoWindow && (!waiting.empty() || next < pieces.size())) {
        size_t piece = next;
        if (waiting.empty()) {
          ++next;
        } else {
          piece = waiting.front();
          waiting.pop_front();
        }
        Prepare(kind, pieces[piece], piece);
        ++in_flight;
      }
      if (in_flight == 0) return true;
      const int submitted = io_uring_submit_and_wait(&ring_, 1);
      const bool busy = submitted == -EINTR || submitted == -EAGAIN || submitted == -EBUSY;
      if (submitted < 0 && !busy) {
        Drain(in_flight - io_uring_sq_ready(&ring_));
        for (size_t piece = 0; piece < pieces.size() && go_on; ++piece) {
          go_on = done(piece, FromErrno(-submitted, "io_uring"));
        }
        return false;
      }
      io_uring_cqe* completion = nullptr;
      while (io_uring_peek_cqe(&ring_, &completion) == 0) {
        const auto piece = static_cast<size_t>(completion->user_data);
        const int result = completion->res;
        io_uring_cqe_seen(&ring_, completion);
        --in_flight;
        if (result == -EAGAIN || result == -EINTR) {
          waiting.push_back(piece);
        } else if (go_on) {
          go_on = done(piece, ResultOf(kind, result));
        }
      }
    }
  }

 private:
  Ring() = default;
  static absl::StatusOr<uint64_t> ResultOf(IoKind kind, int result) {
    if (result < 0) {
      return FromErrno(-result, kind == IoKind::kRead ? "reading an extent file" : "writing an extent file");
    }
    return static_cast<uint64_t>(result);
  }
  void Prepare(IoKind kind, const EnginePiece& piece, size_t index) {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    EPIC_CHECK(entry != nullptr);  // the window is as large as the ring
    const auto bytes = static_cast<unsigned>(piece.bytes.size());
    if (kind == IoKind::kRead) {
      io_uring_prep_read(entry, piece.fd, piece.bytes.data(), bytes, piece.offset);
    } else {
      io_uring_prep_write(entry, piece.fd, piece.bytes.data(), bytes, piece.offset);
    }
    entry->user_data = index;
  }
  // Waits for what the kernel has taken: the memory is the caller's until then.
  void Drain(size_t taken) {
    for (; taken > 0; --taken) {
      io_uring_cqe* completion = nullptr;
      int result = -EINTR;
      while (result == -EINTR) result = io_uring_wait_cqe(&ring_, &completion);
      if (result < 0) return;
      io_uring_cqe_seen(&ring_, completion);
    }
  }

  io_uring ring_ = {};
  bool usable_ = false;
};

class UringEngine final : public IoEngine {
 public:
  explicit UringEngine(std::unique_ptr<Ring> first) { idle_.push_back(std::move(first)); }

  std::string_view name() const override { return "io_uring"; }

  void Run(IoKind kind, std::span<const EnginePiece> pieces, const IoDone& done) override {
    absl::StatusOr<std::unique_ptr<Ring>> ring = Take();
    if (!ring.ok()) {
      for (size_t piece = 0; piece < pieces.size() && done(piece, ring.status()); ++piece) {
      }
      return;
    }
    const bool usable = (*ring)->Run(kind, pieces, done);
    GiveBack(usable ? *std::move(ring) : nullptr);
  }

 private:
  absl::StatusOr<std::unique_ptr<Ring>> Take() {
    {
      MutexLock lock(&mu_);
      while (idle_.empty() && in_use_ == kMaxRings) changed_.Wait(&mu_);
      ++in_use_;
      if (!idle_.empty()) {
        std::unique_ptr<Ring> ring = std::move(idle_.back());
        idle_.pop_back();
        return ring;
      }
    }
    auto ring = Ring::Make();
    if (!ring.ok()) GiveBack(nullptr);
    return ring;
  }
  void GiveBack(std::unique_ptr<Ring> ring) {
    MutexLock lock(&mu_);
    --in_use_;
    if (ring != nullptr) idle_.push_back(std::move(ring));
    changed_.Signal();
  }

  Mutex mu_;
  CondVar changed_;
  std::vector<std::unique_ptr<Ring>> idle_ ABSL_GUARDED_BY(mu_);
  size_t in_use_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<IoEngine>> MakeUringEngine() {
  EPIC_ASSIGN_OR_RETURN(std::unique_ptr<Ring> ring, Ring::Make());
  return std::make_unique<UringEngine>(std::move(ring));
}

}  // namespace epic::kv_store
