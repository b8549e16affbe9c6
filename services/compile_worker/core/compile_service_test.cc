#include "services/compile_worker/core/compile_service.h"

#include <atomic>
#include <optional>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/status/error.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "services/worker_api/testing/fake_engine.h"
#include "services/worker_api/testing/faulty_kv_store.h"

namespace epic {
namespace {

using ::epic::testing::FakeEngine;
using ::epic::testing::FaultyKvStore;
using ::epic::testing::ManualExecutor;
using ::epic::testing::StoreCall;
using Outcome = absl::StatusOr<CompileOutcome>;

const std::string kTenant = "default";

NewContext ContextOf(std::vector<TokenId> tokens) {
  return {.tenant = kTenant,
          .model_identity = {},
          .model = "m",
          .tokens = std::move(tokens),
          .ttl_seconds = {},
          .pin_until_ms = {},
          .tags = {},
          .name = {},
          .compile_prefix = {}};
}

// Layers written on the engine's thread, or beside it.
class CompileServiceTest : public ::testing::TestWithParam<bool> {
 protected:
  // Creates the record and describes its plain compile.
  CompileJob JobOf(std::vector<TokenId> tokens) {
    const absl::StatusOr<CreateResult> created = store_.CreateContext(ContextOf(tokens));
    EXPECT_OK(created);
    CompileJob job;
    job.tenant = kTenant;
    job.key = {created->record.id, {.prefix_tokens = {}, .dtype = KvDtype::kF32}};
    job.tokens = std::move(tokens);
    job.sets_state = true;
    return job;
  }
  CompileTicket EnsureOrDie(CompileJob job, std::optional<Outcome>* out) {
    absl::StatusOr<CompileTicket> ticket =
        service_.Ensure(std::move(job), [out](Outcome outcome) { *out = std::move(outcome); });
    EXPECT_OK(ticket);
    return *ticket;
  }
  // Runs executor and engine until nothing moves.
  void Settle() {
    do {
      executor_.RunAll();
    } while (engine_.Step());
    executor_.RunAll();
  }
  ContextState StateOf(const CompileJob& job) { return store_.GetContext(kTenant, job.key.id)->state; }

  ManualClock clock_;
  FakeEngine engine_;
  FaultyKvStore store_{&clock_};
  ManualExecutor executor_;
  CompileService service_{{.max_running = 2, .max_queue = 2, .queues_layers = GetParam()},
                          &engine_,
                          &store_,
                          &executor_,
                          &clock_};
};

INSTANTIATE_TEST_SUITE_P(Layers, CompileServiceTest, ::testing::Bool());

TEST_P(CompileServiceTest, ManyWaitersShareOneCompileAndOneOfThemPaidForIt) {
  const CompileJob job = JobOf({1, 2, 3});
  std::optional<Outcome> first, second;
  EnsureOrDie(job, &first);
  executor_.RunAll();
  EnsureOrDie(job, &second);
  Settle();
  ASSERT_TRUE(first.has_value() && second.has_value());
  ASSERT_OK(*first);
  ASSERT_OK(*second);
  EXPECT_EQ((*first)->object, (*second)->object);
  EXPECT_TRUE((*first)->computed_for_caller);
  EXPECT_FALSE((*second)->computed_for_caller);
  EXPECT_EQ(engine_.compiles_started(), 1u);
  EXPECT_EQ(StateOf(job), ContextState::kReady);
  EXPECT_EQ(service_.stats().waiters, 0u);
}

TEST_P(CompileServiceTest, AnObjectThatIsStoredIsNotCompiledAgain) {
  const CompileJob job = JobOf({1, 2, 3});
  std::optional<Outcome> first, second;
  EnsureOrDie(job, &first);
  Settle();
  ASSERT_OK(store_.SetState(kTenant, job.key.id, ContextState::kCompiling, 0, ""));
  EnsureOrDie(job, &second);
  Settle();
  ASSERT_OK(*second);
  EXPECT_FALSE((*second)->computed_for_caller);
  EXPECT_EQ(engine_.compiles_started(), 1u);
  EXPECT_EQ(StateOf(job), ContextState::kReady);
}

TEST_P(CompileServiceTest, TheLastWaiterToLeaveCancelsTheCompileAndItsReservation) {
  const CompileJob job = JobOf({1, 2, 3});
  std::optional<Outcome> first, second;
  const CompileTicket a = EnsureOrDie(job, &first);
  const CompileTicket b = EnsureOrDie(job, &second);
  executor_.RunAll();
  engine_.Step();
  EXPECT_EQ(store_.Usage().reservations, 1u);
  service_.Abandon(a);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(CodeOf(first->status()), ErrorCode::kClientGone);
  EXPECT_FALSE(second.has_value());
  service_.Abandon(b);
  service_.Abandon(b);
  Settle();
  EXPECT_EQ(engine_.compiles_finished(), 0u);
  EXPECT_EQ(store_.Usage().reservations, 0u);
  EXPECT_EQ(service_.stats().running, 0u);
  EXPECT_EQ(service_.stats().cancelled, 1u);
  EXPECT_EQ(StateOf(job), ContextState::kCompiling);
}

TEST_P(CompileServiceTest, ADetachedCompileGoesOnWithoutWaiters) {
  const CompileJob job = JobOf({1, 2, 3});
  std::optional<Outcome> first, second;
  const CompileTicket a = EnsureOrDie(job, &first);
  const CompileTicket b = EnsureOrDie(job, &second);
  EXPECT_TRUE(service_.Detach(a));
  EXPECT_FALSE(service_.Detach(a));
  service_.Abandon(b);
  Settle();
  EXPECT_FALSE(first.has_value());
  EXPECT_EQ(StateOf(job), ContextState::kReady);
}

TEST_P(CompileServiceTest, JoiningACancelledCompileStartsItAgain) {
  const CompileJob job = JobOf({1, 2, 3});
  std::optional<Outcome> first, second;
  service_.Abandon(EnsureOrDie(job, &first));
  EXPECT_EQ(service_.stats().running, 1u);  // cancelled, not yet ended
  EnsureOrDie(job, &second);
  Settle();
  ASSERT_TRUE(second.has_value());
  EXPECT_OK(*second);
}

TEST_P(CompileServiceTest, TheQueueIsBoundedAndSaysWhenToComeBack) {
  std::vector<std::optional<Outcome>> outcomes(5);
  std::vector<CompileTicket> tickets;
  for (uint32_t i = 0; i < 4; ++i) tickets.push_back(EnsureOrDie(JobOf({i + 1}), &outcomes[i]));
  const auto refused = service_.Ensure(JobOf({9}), [](Outcome) { FAIL(); });
  EXPECT_EQ(CodeOf(refused.status()), ErrorCode::kQueueFull);
  EXPECT_EQ(RetryAfterMsOf(refused.status()), 1000);
  service_.Abandon(tickets[3]);  // queued: its place is free at once
  EnsureOrDie(JobOf({9}), &outcomes[4]);
  Settle();
  for (int i : {0, 1, 2, 4}) EXPECT_OK(*outcomes[i]);
  EXPECT_EQ(engine_.compiles_started(), 4u);
}

TEST_P(CompileServiceTest, ShortContextsRunTogetherUpToARowLimitWhateverTheirNumber) {
  CompileService service(
      {.max_running = 2, .max_queue = 100, .max_batch_rows = 100, .queues_layers = GetParam()}, &engine_,
      &store_, &executor_, &clock_);
  std::vector<std::optional<Outcome>> outcomes(9);
  std::vector<CompileTicket> tickets;
  const auto ensure = [&](std::vector<TokenId> tokens, std::vector<TokenId> prefix = {}) {
    CompileJob job = JobOf(std::move(tokens));
    job.prefix_tokens = std::move(prefix);
    const size_t i = tickets.size();
    auto ticket =
        service.Ensure(std::move(job), [&, i](Outcome outcome) { outcomes[i] = std::move(outcome); });
    ASSERT_OK(ticket);
    tickets.push_back(*ticket);
  };
  // 32 rows, 16 (one counts for 16), 34 with the prefix: 82. The next has 18 rows, and place; then none has.
  ensure(std::vector<TokenId>(32, 1));
  ensure({2});
  ensure(std::vector<TokenId>(30, 3), {1, 1, 1, 1});
  ensure(std::vector<TokenId>(18, 4));
  ensure({5});
  ensure(std::vector<TokenId>(90, 6));
  ensure({7});
  EXPECT_EQ(service.stats().running, 4u);
  EXPECT_EQ(service.stats().queued, 3u);
  executor_.RunAll();
  EXPECT_EQ(engine_.compiles_started(), 4u) << "in the engine together";
  // A place that becomes free goes to the first in the queue.
  service.Abandon(tickets[1]);
  engine_.Step();
  executor_.RunAll();
  EXPECT_EQ(engine_.compiles_started(), 5u);
  EXPECT_EQ(service.stats().queued, 2u);
  Settle();
  for (size_t i = 0; i < tickets.size(); ++i) {
    ASSERT_TRUE(outcomes[i].has_value());
    EXPECT_EQ(outcomes[i]->ok(), i != 1);
  }
  // All rows are given back.
  ensure(std::vector<TokenId>(84, 8));
  ensure({9});
  EXPECT_EQ(service.stats().running, 2u);
  Settle();
  EXPECT_EQ(store_.Usage().reservations, 0u);
}

TEST_P(CompileServiceTest, AFailedCompileMarksTheRecordAndTheNextTryMayMendIt) {
  const CompileJob job = JobOf({1, 2, 3});
  engine_.set_compile_status(absl::InternalError("NaN in layer 1"));
  std::optional<Outcome> first, second;
  EnsureOrDie(job, &first);
  Settle();
  EXPECT_EQ(CodeOf(first->status()), ErrorCode::kContextFailed);
  EXPECT_EQ(StateOf(job), ContextState::kFailed);
  EXPECT_EQ(store_.GetContext(kTenant, job.key.id)->error, "NaN in layer 1");
  EXPECT_EQ(store_.Usage().objects_in_memory, 0u);
  engine_.set_compile_status(absl::OkStatus());
  EnsureOrDie(job, &second);
  Settle();
  EXPECT_OK(*second);
  EXPECT_EQ(StateOf(job), ContextState::kReady);
}

TEST_P(CompileServiceTest, AFullEngineOrAStopLeavesTheRecordCompiling) {
  const CompileJob job = JobOf({1, 2, 3});
  engine_.set_submit_status(RetryLater(ErrorCode::kQueueFull, "full", 500));
  std::optional<Outcome> first;
  EnsureOrDie(job, &first);
  Settle();
  EXPECT_EQ(CodeOf(first->status()), ErrorCode::kQueueFull);
  EXPECT_EQ(StateOf(job), ContextState::kCompiling);
  EXPECT_EQ(store_.Usage().reservations, 0u);
}

TEST_P(CompileServiceTest, AFullStoreFailsTheContextWithItsOwnCode) {
  const CompileJob job = JobOf({1, 2, 3});
  for (const StoreCall call : {StoreCall::kReserve, StoreCall::kWriteLayer, StoreCall::kCommit}) {
    store_.Fail(call, Error(ErrorCode::kStorageFull, "full"));
    std::optional<Outcome> first;
    EnsureOrDie(job, &first);
    Settle();
    EXPECT_EQ(CodeOf(first->status()), ErrorCode::kStorageFull);
    EXPECT_EQ(StateOf(job), ContextState::kFailed);
    EXPECT_EQ(store_.Usage().reservations, 0u);
  }
  std::optional<Outcome> second;
  EnsureOrDie(job, &second);
  Settle();
  EXPECT_OK(*second);
  EXPECT_EQ(StateOf(job), ContextState::kReady);
}

TEST_P(CompileServiceTest, AStateThatTheStoreRefusesIsWrittenByTheNextUse) {
  const CompileJob job = JobOf({1, 2, 3});
  store_.Fail(StoreCall::kSetState, absl::UnavailableError("EIO"));
  std::optional<Outcome> first, second;
  EnsureOrDie(job, &first);
  Settle();
  EXPECT_OK(*first);
  EXPECT_EQ(StateOf(job), ContextState::kCompiling);
  EnsureOrDie(job, &second);
  Settle();
  EXPECT_OK(*second);
  EXPECT_EQ(StateOf(job), ContextState::kReady);
  EXPECT_EQ(engine_.compiles_started(), 1u);
}

TEST_P(CompileServiceTest, ADamagedObjectIsCompiledAgain) {
  const CompileJob job = JobOf({1, 2, 3});
  std::optional<Outcome> first, second;
  EnsureOrDie(job, &first);
  Settle();
  store_.CorruptNext();
  EnsureOrDie(job, &second);
  Settle();
  ASSERT_OK(*second);
  EXPECT_TRUE((*second)->computed_for_caller);
  EXPECT_EQ(engine_.compiles_started(), 2u);
}

TEST_P(CompileServiceTest, AWaiterLeavesAtOnceWhileTheStoreHangs) {
  const CompileJob job = JobOf({1, 2, 3});
  ThreadExecutor executor(1, 10);
  CompileService service({}, &engine_, &store_, &executor, &clock_);
  store_.Hold(StoreCall::kReserve);
  std::optional<Outcome> first;
  const auto ticket = service.Ensure(job, [&first](Outcome outcome) { first = std::move(outcome); });
  ASSERT_OK(ticket);
  service.Abandon(*ticket);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(CodeOf(first->status()), ErrorCode::kClientGone);
  store_.Release(StoreCall::kReserve);
  executor.Stop();
  EXPECT_EQ(service.stats().running, 0u);
  EXPECT_EQ(store_.Usage().reservations, 0u);
  EXPECT_EQ(engine_.compiles_started(), 0u);
}

TEST_P(CompileServiceTest, DeletingTheContextEndsItsCompiles) {
  const CompileJob job = JobOf({1, 2, 3});
  std::optional<Outcome> first;
  EnsureOrDie(job, &first);
  executor_.RunAll();
  engine_.Step();
  EXPECT_TRUE(*store_.DeleteContext(kTenant, job.key.id));
  service_.Forget(kTenant, job.key.id);
  EXPECT_EQ(CodeOf(first->status()), ErrorCode::kContextDeleted);
  Settle();
  EXPECT_EQ(store_.Usage().objects_in_memory, 0u);
  EXPECT_EQ(store_.Usage().reservations, 0u);
}

TEST_P(CompileServiceTest, StopRefusesAndReleasesEveryWaiter) {
  std::vector<std::optional<Outcome>> outcomes(3);
  for (uint32_t i = 0; i < 3; ++i) EnsureOrDie(JobOf({i + 1}), &outcomes[i]);
  executor_.RunAll();
  service_.Stop();
  for (const auto& outcome : outcomes) EXPECT_EQ(CodeOf(outcome->status()), ErrorCode::kDraining);
  EXPECT_EQ(CodeOf(service_.Ensure(JobOf({7}), [](Outcome) {}).status()), ErrorCode::kDraining);
  Settle();
  EXPECT_EQ(service_.stats().running, 0u);
  EXPECT_EQ(store_.Usage().reservations, 0u);
}

// Random joins, leaves, detachments and deletions on several threads: every callback comes exactly once and
// nothing is left.
TEST(CompileServiceStressTest, RandomWaitersOnManyThreadsLeaveNothingBehind) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  ManualClock clock;
  FakeEngine engine;
  FaultyKvStore store(&clock);
  ThreadExecutor executor(2, 1000);
  CompileService service({.max_running = 3, .max_queue = 4}, &engine, &store, &executor, &clock);
  std::atomic<bool> stop = false;
  std::thread loop([&] {
    while (!stop) {
      if (!engine.Step()) std::this_thread::yield();
    }
  });
  std::atomic<int> expected = 0, called = 0;
  std::vector<std::thread> clients;
  for (uint64_t t = 0; t < 3; ++t) {
    clients.emplace_back([&, t] {
      Rng rng(seed + t);
      for (int i = 0; i < 300; ++i) {
        const std::vector<TokenId> tokens = {static_cast<TokenId>(rng.Below(6))};
        const auto created = store.CreateContext(ContextOf(tokens));
        if (!created.ok()) continue;
        CompileJob job;
        job.tenant = kTenant;
        job.key = {created->record.id, {.prefix_tokens = {}, .dtype = KvDtype::kF32}};
        job.tokens = tokens;
        job.sets_state = true;
        const auto ticket = service.Ensure(std::move(job), [&called](Outcome) { ++called; });
        if (!ticket.ok()) continue;
        ++expected;
        const uint64_t dice = rng.Below(4);
        if (dice == 0) service.Abandon(*ticket);
        if (dice == 1 && service.Detach(*ticket)) --expected;
        if (dice == 2 && rng.Below(4) == 0) {
          ASSERT_OK(store.DeleteContext(kTenant, created->record.id));
          service.Forget(kTenant, created->record.id);
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  while (service.stats().running > 0) std::this_thread::yield();
  stop = true;
  loop.join();
  executor.Stop();
  EXPECT_EQ(called, expected);
  EXPECT_EQ(service.stats().waiters, 0u);
  EXPECT_EQ(service.stats().queued, 0u);
  EXPECT_EQ(store.Usage().reservations, 0u);
  EXPECT_EQ(store.Usage().leased_objects, 0u);
}

}  // namespace
}  // namespace epic
