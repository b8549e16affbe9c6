// What the server tests share: a door over fake Apis, and the check of a four-key error. Tests only.
#ifndef EPIC_SERVICES_ROUTER_HTTP_TESTING_SERVER_FIXTURE_H_
#define EPIC_SERVICES_ROUTER_HTTP_TESTING_SERVER_FIXTURE_H_

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/http/http_server.h"
#include "common/testing/status_matchers.h"
#include "services/router/http/router_site.h"
#include "services/router/http/testing/fakes.h"
#include "services/router/http/testing/raw_client.h"

namespace epic::testing {

// Remembers the events of a door and waits for one.
class EventLog {
 public:
  void Add(const HttpEvent& event) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    statuses_.push_back(event.status);
    changed_.SignalAll();
  }
  // True when an answer with `status` was reported within ten seconds.
  bool WaitFor(int status) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    while (std::find(statuses_.begin(), statuses_.end(), status) == statuses_.end()) {
      if (!changed_.WaitForMs(&mu_, 10'000)) return false;
    }
    return true;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<int> statuses_ ABSL_GUARDED_BY(mu_);
};

class DoorTest : public ::testing::Test {
 protected:
  void Serve(HttpOptions options = {}) {
    auto server = StartHttpDoor(std::move(options), fakes_.apis(), SystemClock::Get(), 1,
                                [this](const HttpEvent& event) { events_.Add(event); });
    ASSERT_OK(server);
    server_ = *std::move(server);
  }
  uint16_t port() const { return server_->port(); }

  // Waits for `token` to be cancelled, at most `ms`. Polls: a token has no way to wait on.
  static bool CancelledWithin(const CancelToken& token, int64_t ms) {
    Mutex mu;
    CondVar never;
    const int64_t end = SystemClock::Get()->SteadyNs() + ms * 1'000'000;
    while (!token.cancelled()) {
      if (SystemClock::Get()->SteadyNs() > end) return false;
      MutexLock lock(&mu);
      never.WaitForMs(&mu, 2);
    }
    return true;
  }

  FakeApis fakes_;
  EventLog events_;
  std::unique_ptr<HttpServer> server_;
};

inline void ExpectError(const std::optional<RawAnswer>& answer, int status, const std::string& code) {
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, status) << answer->body;
  const nlohmann::json body = nlohmann::json::parse(answer->body, nullptr, false);
  ASSERT_TRUE(body.is_object() && body.contains("error")) << answer->body;
  EXPECT_EQ(body["error"].size(), 4u);
  for (const char* key : {"message", "type", "param", "code"}) EXPECT_TRUE(body["error"].contains(key));
  EXPECT_EQ(body["error"]["code"], code) << answer->body;
  EXPECT_TRUE(answer->headers.contains("x-request-id"));
}

}  // namespace epic::testing

#endif  // EPIC_SERVICES_ROUTER_HTTP_TESTING_SERVER_FIXTURE_H_
