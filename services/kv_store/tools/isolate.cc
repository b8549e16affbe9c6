#include "services/kv_store/tools/isolate.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "absl/status/status.h"
#include "common/base/absl_std.h"
#include "common/status/errno_status.h"
#include "common/status/error.h"

namespace epic::kv_store {
namespace {

constexpr size_t kMaxMessage = 4096;  // a pipe takes that at once

}  // namespace

absl::StatusOr<int> RunIsolated(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child < 0) return FromErrno(errno, "starting a process");
  if (child == 0) _exit(work());
  int ended = 0;
  while (waitpid(child, &ended, 0) < 0) {
    if (errno != EINTR) return FromErrno(errno, "waiting for a process");
  }
  if (WIFEXITED(ended)) return WEXITSTATUS(ended);
  const int signal = WTERMSIG(ended);
  const std::string name = strsignal(signal);
  if (signal != SIGABRT && signal != SIGSEGV && signal != SIGBUS && signal != SIGFPE && signal != SIGILL) {
    return absl::UnavailableError(ToAbsl("ended from outside (" + name + ")"));
  }
  return absl::DataLossError(ToAbsl("the tables are damaged so that reading them ended the process (" + name +
                                    "): restore a backup into an empty directory"));
}

absl::Status RunStatusIsolated(const std::function<absl::Status()>& work) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return FromErrno(errno, "making a pipe");
  const auto ended = RunIsolated([&] {
    const absl::Status status = work();
    // What does not fit into the pipe's buffer is cut off: nobody reads yet.
    const std::string message = MessageOf(status).substr(0, kMaxMessage);
    if (write(ends[1], message.data(), message.size()) < 0)
      return static_cast<int>(absl::StatusCode::kUnknown);
    return static_cast<int>(status.code());
  });
  std::string message(kMaxMessage, '\0');
  const ssize_t got = read(ends[0], message.data(), message.size());
  message.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  close(ends[0]);
  close(ends[1]);
  if (!ended.ok()) return ended.status();
  return absl::Status(static_cast<absl::StatusCode>(*ended), ToAbsl(message));
}

}  // namespace epic::kv_store
