#include "common/testing/child_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/testing/paths.h"

namespace epic::testing {

ChildProcess::ChildProcess(const std::string& binary, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), BuildDir() + "/bin/" + binary);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int out[2];
  EPIC_CHECK(pipe2(out, O_CLOEXEC) == 0);
  pid_ = fork();
  EPIC_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    dup2(out[1], STDOUT_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(out[1]);
  out_ = fdopen(out[0], "r");
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) End(SIGKILL);
  fclose(out_);
}

std::string ChildProcess::Behind(const std::string& word) {
  char piece[1024];
  while (fgets(piece, sizeof(piece), out_) != nullptr) {
    std::string line(piece);
    while (line.ends_with('\n')) line.pop_back();
    if (const size_t at = line.find(word); at != std::string::npos) return line.substr(at + word.size());
  }
  return {};
}

int ChildProcess::End(int signal) {
  EPIC_CHECK(pid_ > 0);  // kill takes others for a group of processes, or all
  if (signal != 0) kill(pid_, signal);
  int status = 0;
  EPIC_CHECK(waitpid(pid_, &status, 0) == pid_);
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::string HttpGet(const std::string& address, const std::string& path) {
  const size_t colon = address.rfind(':');
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) {
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    if (write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size())) {
      char piece[4096];
      for (ssize_t got; (got = read(fd, piece, sizeof(piece))) > 0;) answer.append(piece, got);
    }
  }
  close(fd);
  return answer;
}

}  // namespace epic::testing
