// A forked child that waits until it is told to start, and tells back with bytes through a pipe. Fork
// children before the test starts a thread. Tests only.
#ifndef EPIC_COMMON_STORAGE_SHM_TESTING_CHILD_PROCESS_H_
#define EPIC_COMMON_STORAGE_SHM_TESTING_CHILD_PROCESS_H_

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "common/base/check.h"

namespace epic::shm {

class ChildProcess {
 public:
  // What the child has: its ends of the two pipes.
  class Ends {
   public:
    Ends(int in, int out) : in_(in), out_(out) {}
    void Tell(char byte) const { EPIC_CHECK(write(out_, &byte, 1) == 1); }
    // The next byte of the parent. The child ends where the parent is gone.
    char Hear() const {
      char byte = 0;
      if (read(in_, &byte, 1) != 1) _exit(0);
      return byte;
    }

   private:
    const int in_;
    const int out_;
  };

  // The child runs `body` after Start() and exits with what it returns.
  explicit ChildProcess(const std::function<int(const Ends&)>& body) {
    int in[2];
    int out[2];
    EPIC_CHECK(pipe(in) == 0 && pipe(out) == 0);
    pid_ = fork();
    EPIC_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      close(in[1]);
      close(out[0]);
      const Ends ends(in[0], out[1]);
      ends.Hear();
      _exit(body(ends));
    }
    close(in[0]);
    close(out[1]);
    to_ = in[1];
    from_ = out[0];
  }
  ~ChildProcess() {
    if (pid_ > 0) Kill();
    close(to_);
    close(from_);
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void Start() { Tell('s'); }
  void Tell(char byte) { EPIC_CHECK(write(to_, &byte, 1) == 1); }
  // 0: the child ended without a word.
  char Hear() {
    char byte = 0;
    return read(from_, &byte, 1) == 1 ? byte : '\0';
  }
  void Kill() {
    kill(pid_, SIGKILL);
    Wait();
  }
  // What it returned; -1: it was killed.
  int Wait() {
    int status = 0;
    EPIC_CHECK(waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
};

}  // namespace epic::shm

#endif  // EPIC_COMMON_STORAGE_SHM_TESTING_CHILD_PROCESS_H_
