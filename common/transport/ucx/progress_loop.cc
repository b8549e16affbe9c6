#include "common/transport/ucx/progress_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

#include "common/base/check.h"
#include "common/status/errno_status.h"

namespace epic::transport {
namespace {

// Rounds of progress before tasks and timers get their turn.
constexpr int kProgressRounds = 64;

}  // namespace

ProgressLoop::ProgressLoop(const Clock* clock, EventSource* source, size_t max_queue, int64_t poll_ns)
    : clock_(clock), source_(source), max_queue_(max_queue), poll_ns_(poll_ns) {
  EPIC_CHECK(max_queue > 0 && poll_ns >= 0);
}

absl::Status ProgressLoop::Start() {
  EPIC_CHECK(epoll_fd_ < 0);
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_fd_ < 0 || wake_fd_ < 0) return FromErrno(errno, "make the wake-up of a progress thread");
  for (const int fd : {wake_fd_, source_->event_fd()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
      return FromErrno(errno, "watch the events of a progress thread");
    }
  }
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    return FromErrno(error.code().value(), "start a progress thread");
  }
  return absl::OkStatus();
}

void ProgressLoop::Stop(std::function<void()> last) {
  bool first = false;
  {
    MutexLock lock(&mu_);
    first = !stopping_;
    if (first) last_ = std::move(last);
    stopping_ = true;
    WakeLocked();
  }
  if (!first) return;
  if (thread_.joinable()) thread_.join();
  due_.clear();
  ids_.clear();
  if (epoll_fd_ >= 0) close(epoll_fd_);
  if (wake_fd_ >= 0) close(wake_fd_);
}

bool ProgressLoop::Enqueue(std::function<void()> task, size_t limit) {
  MutexLock lock(&mu_);
  if (stopped_ || queue_.size() >= limit) return false;
  queue_.push_back(std::move(task));
  WakeLocked();
  return true;
}

void ProgressLoop::WakeLocked() {
  if (!asleep_) return;
  asleep_ = false;
  EPIC_CHECK(eventfd_write(wake_fd_, 1) == 0);
}

bool ProgressLoop::TryPost(std::function<void()> task) {
  {
    MutexLock lock(&mu_);
    if (stopping_) return false;
  }
  return Enqueue(std::move(task), max_queue_);
}

bool ProgressLoop::Post(std::function<void()> task) {
  return Enqueue(std::move(task), std::numeric_limits<size_t>::max());
}

TimerId ProgressLoop::At(int64_t steady_ns, std::function<void()> callback) {
  const TimerId id = next_id_++;
  due_.emplace(std::pair(steady_ns, id), std::move(callback));
  ids_.emplace(id, steady_ns);
  return id;
}

void ProgressLoop::Cancel(TimerId id) {
  const auto found = ids_.find(id);
  if (found == ids_.end()) return;
  due_.erase({found->second, id});
  ids_.erase(found);
}

void ProgressLoop::Run() {
  int64_t happened_ns = clock_->SteadyNs();
  while (true) {
    bool did = RunTasks();
    for (int round = 0; round < kProgressRounds && source_->Progress(); ++round) did = true;
    did = FireTimers() || did;
    if (EndIfAsked()) return;
    if (poll_ns_ > 0) {
      const int64_t now_ns = clock_->SteadyNs();
      if (did) happened_ns = now_ns;
      if (now_ns - happened_ns < poll_ns_) continue;
    }
    if (!did && source_->Arm()) Sleep();
  }
}

bool ProgressLoop::EndIfAsked() {
  std::function<void()> last;
  {
    MutexLock lock(&mu_);
    if (!stopping_ || !queue_.empty()) return false;
    stopped_ = true;
    last = std::move(last_);
  }
  if (last != nullptr) last();
  return true;
}

bool ProgressLoop::RunTasks() {
  std::deque<std::function<void()>> tasks;
  {
    MutexLock lock(&mu_);
    tasks.swap(queue_);
  }
  for (auto& task : tasks) {
    task();
    task = nullptr;
  }
  return !tasks.empty();
}

bool ProgressLoop::FireTimers() {
  if (due_.empty()) return false;
  const int64_t now_ns = clock_->SteadyNs();
  bool did = false;
  while (!due_.empty() && due_.begin()->first.first <= now_ns) {
    const auto callback = std::move(due_.begin()->second);
    ids_.erase(due_.begin()->first.second);
    due_.erase(due_.begin());
    callback();
    did = true;
  }
  return did;
}

int ProgressLoop::WaitMs() const {
  if (due_.empty()) return -1;
  const int64_t left_ns = std::max<int64_t>(0, due_.begin()->first.first - clock_->SteadyNs());
  return static_cast<int>(std::min<int64_t>(60'000, (left_ns + 999'999) / 1'000'000));
}

void ProgressLoop::Sleep() {
  {
    MutexLock lock(&mu_);
    if (!queue_.empty() || stopping_) return;
    asleep_ = true;
  }
  epoll_event events[2];
  const int count = epoll_wait(epoll_fd_, events, 2, WaitMs());
  EPIC_CHECK(count >= 0 || errno == EINTR);
  MutexLock lock(&mu_);
  if (!asleep_) {
    eventfd_t ignored;
    EPIC_CHECK(eventfd_read(wake_fd_, &ignored) == 0);
  }
  asleep_ = false;
}

}  // namespace epic::transport
