// The binary epic-kv-store as its operators and clients meet it: it starts, serves over gRPC, over the socket
// of the host and over admin HTTP, survives kill -9 with all that it acknowledged, and ends with 0 on
// SIGTERM.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/rpc/kv_store/remote_kv_store.h"
#include "common/storage/shm/client.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr char kTenant[] = "default";

// What one run of the binary says and where it listens.
class Process {
 public:
  explicit Process(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), testing::BuildDir() + "/bin/epic-kv-store");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    int out[2];
    EXPECT_EQ(pipe(out), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      close(out[0]);
      close(out[1]);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(out[1]);
    out_ = fdopen(out[0], "r");
    char line[512];
    while (shm.empty() && fgets(line, sizeof(line), out_) != nullptr) Read(line);
  }
  ~Process() {
    if (pid_ > 0) End(SIGKILL);
    fclose(out_);
  }

  // The exit code, or minus the signal that ended it.
  int End(int signal) {
    if (signal != 0) kill(pid_, signal);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  std::string grpc, admin, shm;

 private:
  void Read(std::string line) {
    while (line.ends_with('\n')) line.pop_back();
    const auto behind = [&line](const char* word) {
      const size_t at = line.find(word);
      return at == std::string::npos ? std::string() : line.substr(at + std::string(word).size());
    };
    if (std::string text = behind("gRPC  "); !text.empty()) grpc = text;
    if (std::string text = behind("admin http://"); !text.empty()) admin = text;
    if (std::string text = behind("shm   "); !text.empty()) shm = text;
  }

  pid_t pid_ = 0;
  FILE* out_ = nullptr;
};

// The whole answer to a GET; empty when there is none.
std::string Get(const std::string& address, const std::string& path) {
  const size_t colon = address.rfind(':');
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
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

class StoreProcessTest : public ::testing::Test {
 protected:
  std::vector<std::string> Arguments() const {
    return {"--data-dir", dir_.path(),   "--grpc", "127.0.0.1:0",
            "--admin",    "127.0.0.1:0", "--set",  "store.memory_bytes=64MiB"};
  }
  static std::unique_ptr<KvStore> Client(const Process& process) {
    auto client = MakeRemoteKvStore({.address = process.grpc});
    EXPECT_OK(client);
    return *std::move(client);
  }

  testing::TempDir dir_;
  const KvLayout layout_ = LayoutOf(8, 2, 9, 8192);
};

TEST_F(StoreProcessTest, WhatWasAcknowledgedOutlivesAKill) {
  std::vector<ObjectKey> keys;
  {
    Process process(Arguments());
    ASSERT_FALSE(process.grpc.empty());
    const auto client = Client(process);
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      NewContext context = ContextOf(seed);
      context.durability = Durability::kObject;
      const auto created = client->CreateContext(context);
      ASSERT_OK(created);
      keys.push_back({created->record.id, {}});
      ASSERT_OK(PutObject(client.get(), kTenant, keys.back(), layout_, seed));
    }
    ASSERT_TRUE(*client->DeleteContext(kTenant, keys[4].id));
    EXPECT_EQ(process.End(SIGKILL), -SIGKILL);
  }
  Process process(Arguments());
  const auto client = Client(process);
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    EXPECT_EQ(*client->GetTokens(kTenant, keys[seed - 1].id), TokensOf(seed, 8));
    const auto got = client->Acquire(kTenant, keys[seed - 1], layout_);
    ASSERT_OK(got);
    ASSERT_NE(got->object, nullptr) << "seed " << seed;
    EXPECT_TRUE(Holds(*got->object, seed));
  }
  EXPECT_FALSE(client->GetContext(kTenant, keys[4].id).ok());
  EXPECT_EQ(process.End(SIGTERM), 0);
}

TEST_F(StoreProcessTest, ServesItsHostItsOperatorsAndEndsInOrder) {
  Process process(Arguments());
  ASSERT_FALSE(process.grpc.empty());
  const auto client = Client(process);
  const auto created = client->CreateContext(ContextOf(1));
  ASSERT_OK(created);
  const ObjectKey key{created->record.id, {}};
  ASSERT_OK(PutObject(client.get(), kTenant, key, layout_, 3));
  ASSERT_NE(client->Acquire(kTenant, key, layout_)->object, nullptr);

  const auto neighbour = shm::Client::Connect({.path = process.shm});
  ASSERT_OK(neighbour);
  std::string bytes(layout_.TotalBytes(), '\0');
  const auto copied = (*neighbour)->Copy(kTenant, key, layout_, std::as_writable_bytes(std::span(bytes)));
  ASSERT_OK(copied);
  EXPECT_EQ(copied->outcome, shm::Outcome::kHit);
  EXPECT_EQ(bytes.substr(0, layout_.LayerBytes()), SlabOf(layout_, 0, 3));

  EXPECT_NE(Get(process.admin, "/health").find(R"({"status":"ok","causes":[]})"), std::string::npos);
  EXPECT_TRUE(Get(process.admin, "/live").starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(Get(process.admin, "/ready").starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(Get(process.admin, "/no").starts_with("HTTP/1.1 404"));
  const std::string metrics = Get(process.admin, "/metrics");
  for (const char* line : {"epic_store_contexts 1\n", "epic_store_shm_connections 1\n",
                           "epic_store_attached_callers 1\n", "epic_object_lookups_total{result=\"hit\"} 1\n",
                           "epic_store_calls_total{call=\"commit\",result=\"ok\"} 1\n",
                           "epic_store_reservations_ended_total{end=\"committed\"} 1\n"}) {
    EXPECT_NE(metrics.find(line), std::string::npos) << line;
  }
  EXPECT_EQ(process.End(SIGTERM), 0);
}

TEST_F(StoreProcessTest, RefusesWhatItMustNotDo) {
  std::vector<std::string> open = Arguments();
  open[3] = "0.0.0.0:0";
  EXPECT_EQ(Process(open).End(0), 1);
  Process first(Arguments());
  ASSERT_FALSE(first.grpc.empty());
  EXPECT_EQ(Process(Arguments()).End(0), 1) << "two processes in one folder";
  EXPECT_EQ(Process({"--no-such-flag"}).End(0), 2);
  std::vector<std::string> quotas = Arguments();
  quotas.insert(quotas.end(), {"--set", "store.quotas=a"});
  EXPECT_EQ(Process(quotas).End(0), 1);
}

}  // namespace
}  // namespace epic::kv_store
