// The binary epic-kv-store as its operators and clients meet it: it starts, serves over gRPC, over the socket
// of the host and over admin HTTP, survives kill -9 with all that it acknowledged, and ends with 0 on
// SIGTERM.
#include <signal.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/rpc/credentials.h"
#include "common/rpc/kv_store/remote_kv_store.h"
#include "common/rpc/testing/certificates.h"
#include "common/storage/shm/client.h"
#include "common/testing/child_process.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr char kTenant[] = "default";

// One run of the binary, and where it listens.
class Process {
 public:
  explicit Process(const std::vector<std::string>& arguments)
      : child_("epic-kv-store", arguments),
        grpc(child_.Behind("gRPC  ")),
        admin(child_.Behind("admin http://")),
        shm(child_.Behind("shm   ")) {}
  int End(int signal) { return child_.End(signal); }

 private:
  testing::ChildProcess child_;

 public:
  const std::string grpc, admin, shm;
};

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

  EXPECT_NE(testing::HttpGet(process.admin, "/health").find(R"({"status":"ok","causes":[]})"),
            std::string::npos);
  EXPECT_TRUE(testing::HttpGet(process.admin, "/live").starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(testing::HttpGet(process.admin, "/ready").starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(testing::HttpGet(process.admin, "/no").starts_with("HTTP/1.1 404"));
  const std::string metrics = testing::HttpGet(process.admin, "/metrics");
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

// With certificates that the test makes: the store's and a client's.
class StoreProcessTlsTest : public StoreProcessTest {
 protected:
  StoreProcessTlsTest() {
    Write("store", authority_.Issue());
    Write("client", authority_.Issue({.dns = {"client"}, .ip = {}}));
    testing::WriteFile(path("ca"), authority_.pem());
  }
  void Write(const std::string& who, const testing::Identity& identity) const {
    testing::WriteFile(path(who + ".key"), identity.key_pem);
    testing::WriteFile(path(who + ".cert"), identity.cert_pem);
  }
  std::string path(const std::string& name) const { return files_.path() + "/" + name + ".pem"; }
  std::vector<std::string> ArgumentsWithTls(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = Arguments();
    std::vector<std::string> sets = {"tls.cert_file=" + path("store.cert"),
                                     "tls.key_file=" + path("store.key"), "tls.ca_file=" + path("ca"),
                                     "tls.reload_ms=100"};
    sets.insert(sets.end(), more.begin(), more.end());
    for (const std::string& set : sets) arguments.insert(arguments.end(), {"--set", set});
    return arguments;
  }
  // A client of its own connection.
  std::unique_ptr<KvStore> ClientWithTls(const Process& process) const {
    auto credentials = Credentials::Load(
        {.paths = {path("client.cert"), path("client.key"), path("ca")}, .peer_name = {}, .on_change = {}});
    EXPECT_OK(credentials);
    auto client = MakeRemoteKvStore(
        {.address = process.grpc, .credentials = *std::move(credentials), .reconnect_ms = 200});
    EXPECT_OK(client);
    return *std::move(client);
  }

  const testing::Authority authority_{"authority"};
  testing::TempDir files_;
};

TEST_F(StoreProcessTlsTest, ServesClientsWithACertificateAndNobodyElse) {
  Process process(ArgumentsWithTls());
  ASSERT_FALSE(process.grpc.empty());
  const auto client = ClientWithTls(process);
  const auto created = client->CreateContext(ContextOf(1));
  ASSERT_OK(created);
  const ObjectKey key{created->record.id, {}};
  ASSERT_OK(PutObject(client.get(), kTenant, key, layout_, 3));
  const auto got = client->Acquire(kTenant, key, layout_);
  ASSERT_OK(got);
  ASSERT_NE(got->object, nullptr);
  EXPECT_TRUE(Holds(*got->object, 3));

  EXPECT_THAT(Client(process)->GetTokens(kTenant, key.id),
              testing::StatusIs(absl::StatusCode::kUnavailable, ::testing::HasSubstr("speaks TLS")));
  Write("client", testing::Authority("stranger").Issue());
  EXPECT_THAT(ClientWithTls(process)->GetTokens(kTenant, key.id),
              testing::StatusIs(absl::StatusCode::kUnavailable,
                                ::testing::HasSubstr("does not take the certificate of this process")));
  EXPECT_OK(client->GetTokens(kTenant, key.id));
  EXPECT_EQ(testing::HttpGet(process.admin, "/metrics").find("epic_tls_certificate_expiry_seconds 0\n"),
            std::string::npos);
  EXPECT_EQ(process.End(SIGTERM), 0);
}

TEST_F(StoreProcessTlsTest, TellsOfBadCertificatesAndServesWithThoseOfBefore) {
  Process process(ArgumentsWithTls());
  ASSERT_FALSE(process.grpc.empty());
  testing::WriteFile(path("store.cert"), "");
  std::string health;
  for (int look = 0; look < 20'000 && health.find("degraded") == std::string::npos; ++look) {
    health = testing::HttpGet(process.admin, "/health");
  }
  EXPECT_NE(health.find("is empty"), std::string::npos) << health;
  EXPECT_OK(ClientWithTls(process)->CreateContext(ContextOf(1)));
  EXPECT_NE(
      testing::HttpGet(process.admin, "/metrics").find("epic_tls_reloads_total{result=\"refused\"} 1\n"),
      std::string::npos);
  EXPECT_EQ(process.End(SIGTERM), 0);
}

TEST_F(StoreProcessTlsTest, MayListenElsewhereThanOnLoopback) {
  std::vector<std::string> arguments = ArgumentsWithTls();
  arguments[3] = "0.0.0.0:0";
  Process process(arguments);
  EXPECT_FALSE(process.grpc.empty());
}

TEST_F(StoreProcessTlsTest, DoesNotStartWithFilesThatAreNotInOrder) {
  testing::WriteFile(path("store.key"), authority_.Issue().key_pem);
  EXPECT_EQ(Process(ArgumentsWithTls()).End(0), 1) << "of another certificate";
  Write("store", authority_.Issue({.ends_in_s = -60}));
  EXPECT_EQ(Process(ArgumentsWithTls()).End(0), 1) << "expired";
  Write("store", authority_.Issue());
  EXPECT_EQ(Process(ArgumentsWithTls({"tls.client_certs=none"})).End(0), 1) << "parts know each other";
}

}  // namespace
}  // namespace epic::kv_store
