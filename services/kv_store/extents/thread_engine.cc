#include "services/kv_store/extents/thread_engine.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/base/check.h"
#include "common/status/errno_status.h"

namespace epic::kv_store {
namespace {

int64_t Move(IoKind kind, const EnginePiece& piece) {
  while (true) {
    const auto offset = static_cast<off_t>(piece.offset);
    const ssize_t bytes = kind == IoKind::kRead
                              ? pread(piece.fd, piece.bytes.data(), piece.bytes.size(), offset)
                              : pwrite(piece.fd, piece.bytes.data(), piece.bytes.size(), offset);
    if (bytes >= 0) return bytes;
    if (errno != EINTR) return -errno;
  }
}

}  // namespace

ThreadEngine::ThreadEngine(size_t threads) {
  EPIC_CHECK(threads > 0);
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

ThreadEngine::~ThreadEngine() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    work_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void ThreadEngine::Run(IoKind kind, std::span<const EnginePiece> pieces, const IoDone& done) {
  Call call{.kind = kind, .pieces = pieces, .ended = {}};
  size_t next = 0;
  size_t in_flight = 0;
  bool go_on = true;
  while (true) {
    std::vector<Ended> ended;
    {
      MutexLock lock(&mu_);
      while (go_on && in_flight < kIoWindow && next < pieces.size()) {
        tasks_.push_back({&call, next++});
        ++in_flight;
        work_.Signal();
      }
      if (in_flight == 0) return;
      while (call.ended.empty()) ended_.Wait(&mu_);
      ended.swap(call.ended);
    }
    in_flight -= ended.size();
    for (const Ended& piece : ended) {
      if (!go_on) break;
      if (piece.result < 0) {
        go_on = done(piece.piece, FromErrno(static_cast<int>(-piece.result), "I/O of an extent file"));
      } else {
        go_on = done(piece.piece, static_cast<uint64_t>(piece.result));
      }
    }
  }
}

void ThreadEngine::Work() {
  while (true) {
    Task task;
    {
      MutexLock lock(&mu_);
      while (tasks_.empty() && !stopping_) work_.Wait(&mu_);
      if (tasks_.empty()) return;
      task = tasks_.front();
      tasks_.pop_front();
    }
    const int64_t result = Move(task.call->kind, task.call->pieces[task.piece]);
    MutexLock lock(&mu_);
    task.call->ended.push_back({task.piece, result});
    ended_.SignalAll();
  }
}

}  // namespace epic::kv_store
