// A redis-server of our own on a unix socket, as a baseline of benches: without persistence, without a port,
// ended with its object. One thread at a time. Benches only.
#ifndef EPIC_SERVICES_KV_STORE_TESTING_REDIS_SERVER_H_
#define EPIC_SERVICES_KV_STORE_TESTING_REDIS_SERVER_H_

#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/storage/shm/unix_socket.h"

namespace epic::kv_store {

class RedisServer {
 public:
  // nullptr where redis-server is not installed or does not start. `dir` outlives it.
  static std::unique_ptr<RedisServer> Start(const std::string& dir) {
    const std::string path = dir + "/redis.sock";
    const char* const arguments[] = {"redis-server", "--port",    "0",         "--unixsocket",
                                     path.c_str(),   "--save",    "",          "--dir",
                                     dir.c_str(),    "--logfile", "/dev/null", nullptr};
    char* const no_environment[] = {nullptr};
    pid_t pid = -1;
    if (posix_spawnp(&pid, "redis-server", nullptr, nullptr, const_cast<char* const*>(arguments),
                     no_environment) != 0) {
      return nullptr;
    }
    for (int attempt = 0; attempt < 500; ++attempt) {
      if (auto socket = shm::ConnectTo(path); socket.ok()) {
        return std::unique_ptr<RedisServer>(new RedisServer(pid, *std::move(socket)));
      }
      if (waitpid(pid, nullptr, WNOHANG) == pid) return nullptr;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    End(pid);
    return nullptr;
  }
  ~RedisServer() { End(pid_); }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  bool Set(const std::string& key, const std::string& value) {
    SendAll("*3\r\n" + Bulk("SET") + Bulk(key) + "$" + std::to_string(value.size()) + "\r\n");
    SendAll(value);
    SendAll("\r\n");
    char answer[5];
    return recv(socket_.get(), answer, sizeof answer, MSG_WAITALL) == 5 &&
           std::memcmp(answer, "+OK\r\n", 5) == 0;
  }

  // The value straight into `value`, which has its size already; false when it is another's.
  bool Get(const std::string& key, std::string* value) {
    SendAll("*2\r\n" + Bulk("GET") + Bulk(key));
    const std::string head = "$" + std::to_string(value->size()) + "\r\n";
    std::string got(head.size(), '\0');
    return Receive(got.data(), got.size()) && got == head && Receive(value->data(), value->size()) &&
           Receive(got.data(), 2);
  }

 private:
  RedisServer(pid_t pid, shm::UniqueFd socket) : pid_(pid), socket_(std::move(socket)) {}

  static void End(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  static std::string Bulk(const std::string& text) {
    return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
  }
  void SendAll(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      EPIC_CHECK(sent > 0);
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  bool Receive(char* to, size_t bytes) const {
    return recv(socket_.get(), to, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
  }

  const pid_t pid_;
  const shm::UniqueFd socket_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TESTING_REDIS_SERVER_H_
