#include "common/storage/erase_wait.h"

#include <algorithm>
#include <utility>

namespace epic {
namespace {

constexpr int64_t kLookNs = 200'000'000;  // between two looks whether somebody still waits

}  // namespace

ErasedDone EraseWait::Receiver() {
  return [self = shared_from_this()](std::vector<std::string> pending) { self->Receive(std::move(pending)); };
}

void EraseWait::Receive(std::vector<std::string> pending) {
  ErasedDone done;
  {
    MutexLock lock(&mu_);
    pending_ = pending;
    done = std::exchange(done_, nullptr);
  }
  if (done != nullptr) done(std::move(pending));
}

void EraseWait::Await(int64_t until_ns, CancelToken cancel, ErasedDone done) {
  std::optional<std::vector<std::string>> pending;
  {
    MutexLock lock(&mu_);
    pending = pending_;
    if (!pending.has_value()) done_ = std::move(done);
  }
  if (pending.has_value()) return done(*std::move(pending));
  Look(until_ns, cancel);
}

void EraseWait::Look(int64_t until_ns, const CancelToken& cancel) {
  const int64_t now_ns = clock_->SteadyNs();
  ErasedDone done;
  {
    MutexLock lock(&mu_);
    if (done_ == nullptr) return;
    if (now_ns >= until_ns || cancel.cancelled()) done = std::exchange(done_, nullptr);
  }
  if (done != nullptr) return done({std::string(kLocalNode)});
  timers_->At(std::min(until_ns, now_ns + kLookNs),
              [self = shared_from_this(), until_ns, cancel] { self->Look(until_ns, cancel); });
}

}  // namespace epic
