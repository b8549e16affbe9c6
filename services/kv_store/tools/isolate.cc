#include "services/kv_store/tools/isolate.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/status/status.h"
#include "common/base/absl_std.h"
#include "common/status/errno_status.h"

namespace epic::kv_store {

absl::StatusOr<int> RunIsolated(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child < 0) return FromErrno(errno, "starting a process");
  if (child == 0) _exit(work());
  int ended = 0;
  while (waitpid(child, &ended, 0) < 0) {
    if (errno != EINTR) return FromErrno(errno, "waiting for a process");
  }
  if (WIFEXITED(ended)) return WEXITSTATUS(ended);
  return absl::DataLossError(ToAbsl("the tables are damaged so that reading them ended the process (" +
                                    std::string(strsignal(WTERMSIG(ended))) +
                                    "): restore a backup into an empty directory"));
}

}  // namespace epic::kv_store
