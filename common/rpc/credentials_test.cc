#include "common/rpc/credentials.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/rpc/grpc_listener.h"
#include "common/rpc/kv_store/store_channel.h"
#include "common/rpc/testing/certificates.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"

namespace epic {
namespace {

using ::epic::testing::Authority;
using ::epic::testing::CertificateSpec;
using ::epic::testing::Identity;
using ::epic::testing::StatusIs;
using ::epic::testing::WriteFile;
using ::testing::HasSubstr;

constexpr int64_t kReloadMs = 20;
constexpr int64_t kBoundMs = 15'000;  // for what takes a moment on a machine that is idle

class Service final : public v1::KvStoreService::CallbackService {
 public:
  grpc::ServerUnaryReactor* Usage(grpc::CallbackServerContext* context, const v1::StoreUsageRequest*,
                                  v1::StoreUsageResponse* response) override {
    response->set_contexts(7);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

// The files of one process, and what it was told of them.
class Party {
 public:
  Party(const Authority& trusted, const Identity& identity) {
    options_.paths = {path("cert"), path("key"), path("ca")};
    options_.reload_ms = kReloadMs;
    options_.on_change = [this](const absl::Status& status) {
      MutexLock lock(&mu_);
      told_.push_back(status);
    };
    Write(identity);
    Trust(trusted.pem());
  }
  void Write(const Identity& identity) {
    WriteFile(path("key"), identity.key_pem);
    WriteFile(path("cert"), identity.cert_pem);
  }
  void Trust(const std::string& pem) { WriteFile(path("ca"), pem); }
  CredentialsOptions& options() { return options_; }
  std::string path(const char* name) const { return dir_.path() + "/" + name + ".pem"; }

  std::shared_ptr<Credentials> Load() {
    auto loaded = Credentials::Load(options_);
    EXPECT_OK(loaded);
    return *std::move(loaded);
  }
  std::vector<absl::Status> told() const {
    MutexLock lock(&mu_);
    return told_;
  }

 private:
  testing::TempDir dir_;
  CredentialsOptions options_;
  mutable Mutex mu_;
  std::vector<absl::Status> told_ ABSL_GUARDED_BY(mu_);
};

// What is waited for happens on gRPC's own threads, which tell nobody.
void Pause(int64_t ms) {
  Mutex mu;
  CondVar nobody_signals;
  MutexLock lock(&mu);
  const int64_t end_ns = SystemClock::Get()->SteadyNs() + ms * 1'000'000;
  while (SystemClock::Get()->SteadyNs() < end_ns) nobody_signals.WaitForMs(&mu, ms);
}

bool Eventually(const std::function<bool()>& holds) {
  const int64_t end_ns = SystemClock::Get()->SteadyNs() + kBoundMs * 1'000'000;
  while (!holds()) {
    if (SystemClock::Get()->SteadyNs() > end_ns) return false;
    Pause(5);
  }
  return true;
}

class CredentialsTest : public ::testing::Test {
 protected:
  ~CredentialsTest() override { listener_.Stop(1000); }

  void Serve(std::shared_ptr<const Credentials> credentials) {
    ASSERT_OK(listener_.Listen("127.0.0.1:0", {.credentials = std::move(credentials)}, {&service_}));
  }
  std::string address(const std::string& host = "127.0.0.1") const {
    return host + ":" + std::to_string(listener_.port());
  }
  // One call over a connection of its own; a failure comes soon.
  absl::Status Call(std::shared_ptr<const Credentials> credentials, const std::string& host = "127.0.0.1") {
    const int64_t begin_ns = SystemClock::Get()->SteadyNs();
    StoreChannel channel({.address = address(host),
                          .credentials = std::move(credentials),
                          .call_ms = 5'000,
                          .reconnect_ms = 200});
    const auto answer = channel.Call<v1::StoreUsageRequest, v1::StoreUsageResponse>(
        &StoreChannel::Stub::Usage, v1::StoreUsageRequest());
    EXPECT_LT(SystemClock::Get()->SteadyNs() - begin_ns, kBoundMs * 1'000'000);
    EXPECT_EQ(answer.ok() ? answer->contexts() : 7, 7u);
    return answer.status();
  }
  void ExpectRefused(const absl::Status& status, const std::string& words) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr(words)));
  }

  const Authority authority_{"authority"};
  const Authority stranger_{"stranger"};
  Party server_{authority_, authority_.Issue()};
  Party client_{authority_, authority_.Issue({.dns = {"client"}, .ip = {}})};
  Service service_;
  GrpcListener listener_;
};

TEST_F(CredentialsTest, PartsThatTrustOneAuthorityTalkByAddressAndByName) {
  Serve(server_.Load());
  const auto client = client_.Load();
  EXPECT_OK(Call(client));
  EXPECT_OK(Call(client, "localhost"));
  EXPECT_NEAR(static_cast<double>(client->expires_unix_s()), static_cast<double>(std::time(nullptr)) + 3600,
              60);
  EXPECT_OK(client->status());
}

TEST_F(CredentialsTest, AClientWithoutACertificateIsRefused) {
  Serve(server_.Load());
  client_.options().paths.cert_file.clear();
  client_.options().paths.key_file.clear();
  ExpectRefused(Call(client_.Load()), "asks for a client certificate, and this process has none");
}

TEST_F(CredentialsTest, AClientWithoutACertificateIsTakenWhereNoneIsAskedFor) {
  server_.options().client_certificates = false;
  server_.options().paths.ca_file.clear();
  Serve(server_.Load());
  client_.options().paths.cert_file.clear();
  client_.options().paths.key_file.clear();
  EXPECT_OK(Call(client_.Load()));
}

TEST_F(CredentialsTest, AClientOfAnotherAuthorityIsRefused) {
  Serve(server_.Load());
  client_.Write(stranger_.Issue());
  ExpectRefused(Call(client_.Load()), "does not take the certificate of this process");
}

TEST_F(CredentialsTest, AServerOfAnotherAuthorityIsNotBelieved) {
  server_.Write(stranger_.Issue());
  Serve(server_.Load());
  ExpectRefused(Call(client_.Load()),
                "has a certificate that this process does not take: unable to get local issuer");
}

TEST_F(CredentialsTest, AServerWhoseCertificateExpiredIsNotBelieved) {
  const ManualClock past((std::time(nullptr) - 1800) * 1000);
  server_.options().clock = &past;
  server_.Write(authority_.Issue({.ends_in_s = -60}));
  Serve(server_.Load());
  ExpectRefused(Call(client_.Load()), "certificate has expired");
}

TEST_F(CredentialsTest, AClientWhoseCertificateExpiredIsRefused) {
  const ManualClock past((std::time(nullptr) - 1800) * 1000);
  client_.options().clock = &past;
  client_.Write(authority_.Issue({.ends_in_s = -60}));
  Serve(server_.Load());
  ExpectRefused(Call(client_.Load()), "does not take the certificate of this process");
}

TEST_F(CredentialsTest, AServerOfAnotherNameIsNotBelieved) {
  server_.Write(authority_.Issue({.dns = {"elsewhere"}, .ip = {"10.0.0.1"}}));
  Serve(server_.Load());
  const auto client = client_.Load();
  ExpectRefused(Call(client), "IP address mismatch");
  ExpectRefused(Call(client, "localhost"), "hostname mismatch");
}

TEST_F(CredentialsTest, PeersMustBearTheNameThatTheSettingSays) {
  server_.Write(authority_.Issue({.dns = {"part.epic"}, .ip = {}}));
  server_.options().peer_name = "part.epic";
  Serve(server_.Load());
  client_.options().peer_name = "part.epic";
  ExpectRefused(Call(client_.Load()), "does not take the certificate of this process");
  client_.Write(authority_.Issue({.dns = {"other", "part.epic"}, .ip = {}}));
  EXPECT_OK(Call(client_.Load())) << "whatever the address is";
  client_.options().peer_name = "other";
  ExpectRefused(Call(client_.Load()), "hostname mismatch (asked for the name other)");
}

TEST_F(CredentialsTest, APlainClientOnAPortWithTlsHearsWhy) {
  Serve(server_.Load());
  ExpectRefused(Call(nullptr), "speaks TLS, and this process does not");
}

TEST_F(CredentialsTest, AClientWithTlsOnAPlainPortHearsWhy) {
  Serve(nullptr);
  ExpectRefused(Call(client_.Load()), "does not speak TLS");
  EXPECT_OK(Call(nullptr));
}

TEST_F(CredentialsTest, APortWhereNobodyListensIsNoFaultOfTls) {
  Serve(server_.Load());
  const std::string closed = address();
  listener_.Stop(1000);
  EXPECT_EQ(FindConnectionFault(closed, client_.Load().get()), "");
}

TEST_F(CredentialsTest, OneThatTakesConnectionsAndSaysNothingIsGivenUp) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
  ASSERT_EQ(listen(fd, 8), 0);
  socklen_t size = sizeof(at);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size), 0);
  const std::string mute = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  EXPECT_EQ(FindConnectionFault(mute, client_.Load().get()), "does not answer the TLS handshake in time");
  close(fd);
}

// A handshake of no more than this; whether the server takes it.
bool Handshake(uint16_t port, int max_version, const char* ciphers, const Party& files) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_security_level(context, 0);
  SSL_CTX_set_max_proto_version(context, max_version);
  EXPECT_EQ(SSL_CTX_set_cipher_list(context, ciphers), 1);
  EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context, files.path("cert").c_str()), 1);
  EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context, files.path("key").c_str(), SSL_FILETYPE_PEM), 1);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  SSL* session = SSL_new(context);
  SSL_set_fd(session, fd);
  const bool taken = SSL_connect(session) == 1;
  SSL_free(session);
  SSL_CTX_free(context);
  close(fd);
  return taken;
}

TEST_F(CredentialsTest, OldVersionsAndCiphersWithoutForwardSecrecyAreRefused) {
  Serve(server_.Load());
  const auto takes = [&](int version, const char* ciphers) {
    return Handshake(listener_.port(), version, ciphers, client_);
  };
  EXPECT_TRUE(takes(TLS1_3_VERSION, "DEFAULT"));
  EXPECT_TRUE(takes(TLS1_2_VERSION, "ECDHE-ECDSA-AES128-GCM-SHA256"));
  EXPECT_FALSE(takes(TLS1_1_VERSION, "DEFAULT:@SECLEVEL=0"));
  EXPECT_FALSE(takes(TLS1_VERSION, "DEFAULT:@SECLEVEL=0"));
  EXPECT_FALSE(takes(TLS1_2_VERSION, "ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0")) << "no CBC";
  EXPECT_FALSE(takes(TLS1_2_VERSION, "AES128-SHA:@SECLEVEL=0"));
}

TEST_F(CredentialsTest, ANewAuthorityIsRolledInUnderTrafficWithoutAFailure) {
  Serve(server_.Load());
  const auto client = client_.Load();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> calls{0};
  std::thread traffic([&] {
    while (!stop) {
      EXPECT_OK(Call(client));
      ++calls;
    }
  });
  // Both take it. In the middle of a pair of files a look finds them apart: told, and not taken.
  const auto roll = [&](const std::function<void(Party*)>& change) {
    for (Party* party : {&server_, &client_}) {
      const size_t told = party->told().size();
      change(party);
      EXPECT_TRUE(Eventually([&] { return party->told().size() > told && party->told().back().ok(); }));
    }
    // gRPC looks once a second at what it was given.
    Pause(1500);
  };
  roll([&](Party* party) { party->Trust(authority_.pem() + stranger_.pem()); });
  roll([&](Party* party) { party->Write(stranger_.Issue()); });
  roll([&](Party* party) { party->Trust(stranger_.pem()); });
  stop = true;
  traffic.join();
  EXPECT_GT(calls.load(), 10u);
  // Who has a certificate of the old one is out.
  Party late(stranger_, authority_.Issue());
  ExpectRefused(Call(late.Load()), "does not take the certificate of this process");
  EXPECT_OK(Call(client));
}

TEST_F(CredentialsTest, BadFilesAreToldOnceAndWhatWasThereBeforeGoesOn) {
  const auto credentials = server_.Load();
  Serve(credentials);
  const auto client = client_.Load();
  size_t told = 0;
  const auto refuses = [&](const std::string& words) {
    EXPECT_TRUE(Eventually([&] { return server_.told().size() == told + 1; })) << words;
    ++told;
    EXPECT_THAT(server_.told().back(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(words)));
    EXPECT_EQ(credentials->status(), server_.told().back());
    // gRPC looks once a second at what it was given, which must not have changed.
    Pause(1200);
    EXPECT_OK(Call(client)) << words;
    EXPECT_EQ(server_.told().size(), told) << "told once";
  };
  WriteFile(server_.path("cert"), "");
  refuses("is empty");
  WriteFile(server_.path("cert"), "words");
  refuses("has no certificate");
  WriteFile(server_.path("cert"), authority_.Issue().cert_pem);
  refuses("is not the key of");
  unlink(server_.path("cert").c_str());
  refuses("cannot be read");
  server_.Write(authority_.Issue());
  EXPECT_TRUE(Eventually([&] { return server_.told().back().ok(); }));
  EXPECT_OK(credentials->status());
  EXPECT_OK(Call(client));
}

// No file may grow beyond a byte while it lives.
class NoRoom {
 public:
  NoRoom() {
    old_handler_ = signal(SIGXFSZ, SIG_IGN);
    EPIC_CHECK(getrlimit(RLIMIT_FSIZE, &old_) == 0);
    const rlimit tight{.rlim_cur = 1, .rlim_max = old_.rlim_max};
    EPIC_CHECK(setrlimit(RLIMIT_FSIZE, &tight) == 0);
  }
  ~NoRoom() {
    EPIC_CHECK(setrlimit(RLIMIT_FSIZE, &old_) == 0);
    signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  sighandler_t old_handler_;
};

TEST_F(CredentialsTest, GoodFilesThatCannotBeTakenAreToldOnceAndTakenWhenTheyCan) {
  const auto credentials = server_.Load();
  const std::string next = server_.path("next");
  WriteFile(next, authority_.pem() + stranger_.pem());
  {
    const NoRoom no_room;
    ASSERT_EQ(rename(next.c_str(), server_.path("ca").c_str()), 0);
    EXPECT_TRUE(Eventually([&] { return !server_.told().empty(); }));
    EXPECT_FALSE(credentials->status().ok());
    Pause(20 * kReloadMs);
    EXPECT_EQ(server_.told().size(), 1u) << "told once";
    EXPECT_FALSE(server_.told().front().ok());
  }
  EXPECT_TRUE(Eventually([&] { return server_.told().size() == 2; }));
  EXPECT_OK(server_.told().back());
  EXPECT_OK(credentials->status());
}

TEST_F(CredentialsTest, ACertificateThatExpiresInUseIsTold) {
  ManualClock clock(std::time(nullptr) * 1000);
  server_.options().clock = &clock;
  const auto credentials = server_.Load();
  clock.AdvanceMs(7'200'000);
  EXPECT_TRUE(Eventually([&] { return server_.told().size() == 1; }));
  EXPECT_THAT(server_.told().front(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("expired on")));
  EXPECT_FALSE(credentials->status().ok());
}

TEST_F(CredentialsTest, NoiseOnThePortHarmsNobodyElse) {
  Serve(server_.Load());
  for (int i = 0; i < 50; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(listener_.port());
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    // Nothing, half a record, a record of zeros, plain HTTP/2.
    const std::string noise[] = {"", std::string("\x16\x03\x01\x02", 4), std::string(300, '\0'),
                                 "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"};
    const std::string& bytes = noise[i % 4];
    ASSERT_EQ(send(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    close(fd);
  }
  EXPECT_OK(Call(client_.Load()));
}

TEST_F(CredentialsTest, AStartWithoutWhatItNeedsSaysSo) {
  server_.options().paths.ca_file.clear();
  EXPECT_THAT(Credentials::Load(server_.options()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("tls.ca_file")));
  EXPECT_THAT(Credentials::Load({}), StatusIs(absl::StatusCode::kFailedPrecondition));
  client_.Write({.cert_pem = authority_.Issue().cert_pem, .key_pem = authority_.Issue().key_pem});
  EXPECT_THAT(Credentials::Load(client_.options()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is not the key of")));
}

}  // namespace
}  // namespace epic
