// The client against real doors of compile workers on loopback, whose compilers do what the test says.
#include "services/link_worker/rpc/compile_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "absl/base/thread_annotations.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/mutex.h"
#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/compile_worker/rpc/compile_door.h"
#include "services/worker_api/testing/faulty_kv_store.h"

namespace epic {
namespace {

using ::epic::testing::FaultyKvStore;
using ::epic::testing::StatusIs;

const std::string kTenant = "default";
constexpr int64_t kBoundMs = 20'000;

// Holds what it is asked for until the test answers.
class HeldCompiler final : public Compiler {
 public:
  absl::StatusOr<CompileTicket> Ensure(CompileJob job, Done done) override {
    MutexLock lock(&mu_);
    if (full_) return RetryLater(ErrorCode::kQueueFull, "full", 7);
    held_.emplace(++last_, std::move(done));
    changed_.SignalAll();
    return last_;
  }
  void Abandon(CompileTicket ticket) override {
    if (const Done done = Take(ticket); done) done(absl::CancelledError("abandoned"));
  }
  bool Detach(CompileTicket) override { return false; }
  void Forget(std::string_view, const CacheId& id) override {
    MutexLock lock(&mu_);
    forgotten_ = id;
    changed_.SignalAll();
  }

  void set_full() {
    MutexLock lock(&mu_);
    full_ = true;
  }
  bool WaitHeld(size_t count) {
    return Wait([this, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return held_.size() == count; });
  }
  bool WaitForgotten(const CacheId& id) {
    return Wait([this, &id]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return forgotten_ == id; });
  }
  void Answer(absl::StatusOr<CompileOutcome> outcome) {
    CompileTicket first = 0;
    {
      MutexLock lock(&mu_);
      first = held_.begin()->first;
    }
    Take(first)(std::move(outcome));
  }

 private:
  Done Take(CompileTicket ticket) {
    MutexLock lock(&mu_);
    const auto found = held_.find(ticket);
    if (found == held_.end()) return nullptr;
    Done done = std::move(found->second);
    held_.erase(found);
    changed_.SignalAll();
    return done;
  }
  bool Wait(const std::function<bool()>& holds) {
    const int64_t end_ns = SystemClock::Get()->SteadyNs() + kBoundMs * 1'000'000;
    MutexLock lock(&mu_);
    while (!holds()) {
      if (SystemClock::Get()->SteadyNs() > end_ns) return false;
      changed_.WaitForMs(&mu_, 100);
    }
    return true;
  }

  Mutex mu_;
  CondVar changed_;
  bool full_ ABSL_GUARDED_BY(mu_) = false;
  CompileTicket last_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<CompileTicket, Done> held_ ABSL_GUARDED_BY(mu_);
  CacheId forgotten_ ABSL_GUARDED_BY(mu_);
};

// A port that takes connections and says nothing, until Close resets them.
class MutePort {
 public:
  MutePort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    EPIC_CHECK(bind(fd_, reinterpret_cast<sockaddr*>(&at), size) == 0 && listen(fd_, 8) == 0);
    EPIC_CHECK(getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }
  ~MutePort() { Close(); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  const std::string& address() const { return address_; }

 private:
  int fd_;
  std::string address_;
};

struct Worker {
  HeldCompiler compiler;
  std::unique_ptr<CompileDoor> door;
};

class CompileClientTest : public ::testing::Test {
 protected:
  CompileClientTest() {
    NewContext context;
    context.tenant = kTenant;
    context.model = "m";
    context.tokens = job_.tokens = {1, 2, 3};
    const auto created = store_.CreateContext(context);
    EXPECT_OK(created);
    job_.tenant = kTenant;
    job_.key = {created->record.id, {.prefix_tokens = {}, .dtype = KvDtype::kF32}};
  }
  ~CompileClientTest() override {
    if (client_ != nullptr) client_->Stop();
    for (Worker& worker : workers_) {
      if (worker.door != nullptr) worker.door->Stop();
    }
    executor_.Stop();
  }

  std::string StartWorker(std::function<absl::Status(const CompileJob&)> check = [](const CompileJob&) {
    return absl::OkStatus();
  }) {
    Worker& worker = workers_.emplace_back();
    auto door = CompileDoor::Start({.drain_ms = 1000}, &worker.compiler, std::move(check));
    EXPECT_OK(door);
    worker.door = *std::move(door);
    return "127.0.0.1:" + std::to_string(worker.door->port());
  }
  void Connect(std::vector<std::string> addresses) {
    client_ = CompileClient::Make({.workers = std::move(addresses)}, &store_, &executor_);
  }
  std::shared_ptr<const KvObject> Store() {
    auto writer = store_.Reserve(kTenant, job_.key, layout_);
    EXPECT_OK(writer);
    const std::string slab(layout_.LayerBytes(), 'x');
    EXPECT_OK((*writer)->WriteLayer(0, std::as_bytes(std::span(slab))));
    auto object = (*writer)->Commit();
    EXPECT_OK(object);
    return *object;
  }
  CompileTicket Ensure() {
    const auto ticket = client_->Ensure(job_, [this](absl::StatusOr<CompileOutcome> outcome) {
      MutexLock lock(&mu_);
      outcome_ = std::move(outcome);
      changed_.SignalAll();
    });
    EXPECT_OK(ticket);
    return ticket.ok() ? *ticket : 0;
  }
  absl::StatusOr<CompileOutcome> Outcome() {
    const int64_t end_ns = SystemClock::Get()->SteadyNs() + kBoundMs * 1'000'000;
    MutexLock lock(&mu_);
    while (!outcome_.has_value() && SystemClock::Get()->SteadyNs() < end_ns) changed_.WaitForMs(&mu_, 100);
    return outcome_.has_value() ? *outcome_ : absl::InternalError("nobody answered");
  }

  ManualClock clock_;
  FaultyKvStore store_{&clock_};
  ThreadExecutor executor_{2, 64};
  const KvLayout layout_{.layers = 1, .kv_heads = 1, .head_dim = 4, .tokens = 3, .dtype = KvDtype::kF32};
  CompileJob job_;
  std::deque<Worker> workers_;
  std::unique_ptr<CompileClient> client_;
  Mutex mu_;
  CondVar changed_;
  std::optional<absl::StatusOr<CompileOutcome>> outcome_ ABSL_GUARDED_BY(mu_);
};

TEST_F(CompileClientTest, WhatAWorkerCompiledIsReadFromTheStore) {
  Connect({StartWorker()});
  Ensure();
  ASSERT_TRUE(workers_[0].compiler.WaitHeld(1));
  const auto object = Store();
  workers_[0].compiler.Answer(CompileOutcome{object, true});
  const auto outcome = Outcome();
  ASSERT_OK(outcome);
  EXPECT_EQ(outcome->object->build(), object->build());
  EXPECT_TRUE(outcome->computed_for_caller);
}

TEST_F(CompileClientTest, ErrorsOfTheWorkerArriveWithTheirCode) {
  Connect({StartWorker()});
  Ensure();
  ASSERT_TRUE(workers_[0].compiler.WaitHeld(1));
  workers_[0].compiler.Answer(Error(ErrorCode::kContextDeleted, "gone"));
  EXPECT_EQ(CodeOf(Outcome().status()), ErrorCode::kContextDeleted);
}

TEST_F(CompileClientTest, AWorkerThatIsFullIsNotAskedAgain) {
  Connect({StartWorker(), StartWorker()});
  for (Worker& worker : workers_) worker.compiler.set_full();
  Ensure();
  const absl::Status status = Outcome().status();
  EXPECT_EQ(CodeOf(status), ErrorCode::kQueueFull);
  EXPECT_EQ(RetryAfterMsOf(status), 7);
}

TEST_F(CompileClientTest, AJobThatIsNotWhatItSaysIsRefused) {
  Connect({StartWorker([](const CompileJob&) { return Error(ErrorCode::kInvalidRequest, "no", "tokens"); })});
  Ensure();
  EXPECT_THAT(Outcome(), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(CompileClientTest, AnotherWorkerIsAskedWhenOneCannotBeReached) {
  const std::string gone = StartWorker();
  workers_[0].door->Stop();
  const std::string alive = StartWorker();
  for (const std::vector<std::string>& order : {std::vector{gone, alive}, std::vector{alive, gone}}) {
    Connect(order);
    Ensure();
    ASSERT_TRUE(workers_[1].compiler.WaitHeld(1));
    workers_[1].compiler.Answer(CompileOutcome{Store(), false});
    EXPECT_OK(Outcome());
    client_->Stop();
    ASSERT_OK(store_.DropObject(kTenant, job_.key));
    MutexLock lock(&mu_);
    outcome_.reset();
  }
}

TEST_F(CompileClientTest, WithoutAnyWorkerTheWaiterHearsWhenToComeBack) {
  const std::string gone = StartWorker();
  workers_[0].door->Stop();
  Connect({gone});
  Ensure();
  const absl::Status status = Outcome().status();
  EXPECT_EQ(CodeOf(status), ErrorCode::kLoading);
  EXPECT_TRUE(RetryAfterMsOf(status).has_value());
  Connect({});
  EXPECT_EQ(CodeOf(client_->Ensure(job_, [](const auto&) {}).status()), ErrorCode::kContextObjectMissing);
}

TEST_F(CompileClientTest, WhoeverLeavesEndsTheCallAtTheWorker) {
  Connect({StartWorker()});
  const CompileTicket ticket = Ensure();
  ASSERT_TRUE(workers_[0].compiler.WaitHeld(1));
  client_->Abandon(ticket);
  EXPECT_THAT(Outcome(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_TRUE(workers_[0].compiler.WaitHeld(0)) << "the worker knows";
  client_->Abandon(ticket);
}

TEST_F(CompileClientTest, WhoeverDetachesHearsNothingAndTheCompileGoesOn) {
  Connect({StartWorker()});
  const CompileTicket ticket = Ensure();
  ASSERT_TRUE(workers_[0].compiler.WaitHeld(1));
  EXPECT_TRUE(client_->Detach(ticket));
  EXPECT_FALSE(client_->Detach(ticket));
  ASSERT_TRUE(workers_[0].compiler.WaitHeld(1));
  workers_[0].compiler.Answer(CompileOutcome{Store(), true});
  client_->Stop();
  MutexLock lock(&mu_);
  EXPECT_FALSE(outcome_.has_value());
}

TEST_F(CompileClientTest, AnotherWorkerIsAskedForWhatNobodyWaitsForAnyMore) {
  MutePort gone;
  const std::string alive = StartWorker();
  // Where the id points at.
  const bool second = std::hash<std::string>()(job_.key.id.text()) % 2 == 1;
  Connect(second ? std::vector{alive, gone.address()} : std::vector{gone.address(), alive});
  EXPECT_TRUE(client_->Detach(Ensure()));
  gone.Close();
  ASSERT_TRUE(workers_[0].compiler.WaitHeld(1));
  workers_[0].compiler.Answer(CompileOutcome{Store(), true});
}

TEST_F(CompileClientTest, StopWaitsForNoWorkerThatDoesNotAnswer) {
  MutePort mute;
  Connect({mute.address()});
  Ensure();
  EXPECT_TRUE(client_->Detach(Ensure()));
  client_->Forget(kTenant, job_.key.id);
  const int64_t begin_ns = SystemClock::Get()->SteadyNs();
  client_->Stop();
  EXPECT_LT(SystemClock::Get()->SteadyNs() - begin_ns, 5'000'000'000)
      << "no deadline of a call is waited for";
  EXPECT_EQ(CodeOf(Outcome().status()), ErrorCode::kDraining);
}

TEST_F(CompileClientTest, StopEndsDetachedCompilesAtTheWorker) {
  Connect({StartWorker()});
  const CompileTicket ticket = Ensure();
  ASSERT_TRUE(workers_[0].compiler.WaitHeld(1));
  EXPECT_TRUE(client_->Detach(ticket));
  client_->Stop();
  EXPECT_TRUE(workers_[0].compiler.WaitHeld(0));
  MutexLock lock(&mu_);
  EXPECT_FALSE(outcome_.has_value());
}

TEST_F(CompileClientTest, AnObjectThatTheStoreDidNotKeepIsNoAnswer) {
  Connect({StartWorker()});
  Ensure();
  ASSERT_TRUE(workers_[0].compiler.WaitHeld(1));
  const auto object = Store();
  ASSERT_OK(store_.DropObject(kTenant, job_.key));
  workers_[0].compiler.Answer(CompileOutcome{object, true});
  EXPECT_EQ(CodeOf(Outcome().status()), ErrorCode::kStorageFull);
}

TEST_F(CompileClientTest, ADeletedContextIsForgottenByAllWorkers) {
  Connect({StartWorker(), StartWorker()});
  client_->Forget(kTenant, job_.key.id);
  for (Worker& worker : workers_) EXPECT_TRUE(worker.compiler.WaitForgotten(job_.key.id));
}

TEST_F(CompileClientTest, StopReleasesEveryWaiterAndRefusesMore) {
  Connect({StartWorker()});
  Ensure();
  ASSERT_TRUE(workers_[0].compiler.WaitHeld(1));
  client_->Stop();
  EXPECT_EQ(CodeOf(Outcome().status()), ErrorCode::kDraining);
  EXPECT_EQ(CodeOf(client_->Ensure(job_, [](const auto&) {}).status()), ErrorCode::kDraining);
}

}  // namespace
}  // namespace epic
