// SIGINT and SIGTERM as something to wait for. One to a process, made before any other thread of it: the
// signals are blocked for all that follow.
#ifndef EPIC_COMMON_BASE_STOP_SIGNALS_H_
#define EPIC_COMMON_BASE_STOP_SIGNALS_H_

#include <pthread.h>

#include <csignal>

namespace epic {

class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
  }
  void Wait() const {
    int signal = 0;
    while (sigwait(&set_, &signal) != 0) {
    }
    // From now on a second signal ends the process, as it would by default.
    pthread_sigmask(SIG_UNBLOCK, &set_, nullptr);
  }

 private:
  sigset_t set_;
};

}  // namespace epic

#endif  // EPIC_COMMON_BASE_STOP_SIGNALS_H_
