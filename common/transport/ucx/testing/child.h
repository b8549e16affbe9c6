// A process of a test or a bench that is spoken with line by line, and may be stopped, continued and killed.
// It inherits no descriptor but its standard streams. Tests and benches only.
#ifndef EPIC_COMMON_TRANSPORT_UCX_TESTING_CHILD_H_
#define EPIC_COMMON_TRANSPORT_UCX_TESTING_CHILD_H_

#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"

namespace epic::transport {

class Child {
 public:
  // `environment`: all of it, as NAME=value.
  explicit Child(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
    int to_child[2];
    int from_child[2];
    EPIC_CHECK(pipe(to_child) == 0 && pipe(from_child) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to_child[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from_child[1], 1);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    const int failed = posix_spawnp(&pid_, arguments[0].c_str(), &actions, nullptr,
                                    Pointers(&arguments).data(), Pointers(&environment).data());
    posix_spawn_file_actions_destroy(&actions);
    EPIC_CHECK(failed == 0);
    close(to_child[0]);
    close(from_child[1]);
    to_ = to_child[1];
    from_ = from_child[0];
  }
  ~Child() {
    Kill();
    close(to_);
    close(from_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void Say(const std::string& line) {
    const std::string text = line + "\n";
    // A child that is gone hears nothing.
    [[maybe_unused]] const ssize_t written = write(to_, text.data(), text.size());
  }
  // The next line; nullopt when none comes in time, or the child has ended.
  std::optional<std::string> Hear(int timeout_ms = 20'000) {
    while (true) {
      const size_t end = heard_.find('\n');
      if (end != std::string::npos) {
        std::string line = heard_.substr(0, end);
        heard_.erase(0, end + 1);
        return line;
      }
      pollfd ready{.fd = from_, .events = POLLIN};
      if (poll(&ready, 1, timeout_ms) <= 0) return std::nullopt;
      char bytes[4096];
      const ssize_t count = read(from_, bytes, sizeof(bytes));
      if (count <= 0) return std::nullopt;
      heard_.append(bytes, static_cast<size_t>(count));
    }
  }
  void Signal(int signal) const { kill(pid_, signal); }
  // kill -9, and waits for the end.
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // Waits for its end; the status of waitpid.
  int Wait() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }
  bool IsAlive() const { return pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0; }

 private:
  static std::vector<char*> Pointers(std::vector<std::string>* texts) {
    std::vector<char*> pointers;
    for (std::string& text : *texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
  }

  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string heard_;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_TESTING_CHILD_H_
