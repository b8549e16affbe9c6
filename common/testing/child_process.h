// A binary of ours as a child of the test: its output line by line, its end, and its HTTP doors. Tests only;
// one thread.
#ifndef EPIC_COMMON_TESTING_CHILD_PROCESS_H_
#define EPIC_COMMON_TESTING_CHILD_PROCESS_H_

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace epic::testing {

class ChildProcess {
 public:
  // `binary`: a name in build/<preset>/bin.
  ChildProcess(const std::string& binary, std::vector<std::string> arguments);
  // Kills it if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // What stands behind `word` in the next line of its standard output that has it; empty when the output ends
  // first.
  std::string Behind(const std::string& word);
  // Waits for its end, after `signal` unless that is 0. The exit code, or minus the signal that ended it.
  // REQUIRES: it was not ended before.
  int End(int signal);
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;  // 0: it has ended
  FILE* out_ = nullptr;
};

// The whole answer to a GET at HOST:PORT; empty when there is none.
std::string HttpGet(const std::string& address, const std::string& path);

}  // namespace epic::testing

#endif  // EPIC_COMMON_TESTING_CHILD_PROCESS_H_
