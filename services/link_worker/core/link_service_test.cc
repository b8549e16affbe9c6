#include "services/link_worker/core/link_service.h"

#include <atomic>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/cancel.h"
#include "common/base/random.h"
#include "common/status/error.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "services/compile_worker/core/compile_service.h"
#include "services/worker_api/testing/fake_engine.h"
#include "services/worker_api/testing/fake_text.h"
#include "services/worker_api/testing/faulty_kv_store.h"

namespace epic {
namespace {

using ::epic::testing::ByteTokenizer;
using ::epic::testing::ChatMlTemplate;
using ::epic::testing::FakeEngine;
using ::epic::testing::FaultyKvStore;
using ::epic::testing::ManualExecutor;
using ::epic::testing::StoreCall;

const std::string kTenant = "default";

std::vector<TokenId> TokensOf(std::string_view text) {
  return {reinterpret_cast<const unsigned char*>(text.data()),
          reinterpret_cast<const unsigned char*>(text.data()) + text.size()};
}

// Collects one call's output.
class Collector final : public LinkEvents {
 public:
  void OnAdmitted(std::optional<uint32_t> planned_recomputed) override {
    EXPECT_FALSE(admitted || done);
    admitted = true;
    planned = planned_recomputed;
  }
  bool OnDelta(LinkDelta delta) override {
    EXPECT_TRUE(admitted && !done);
    text[delta.choice] += delta.text;
    logprobs += static_cast<int>(delta.logprobs.size());
    return !gone;
  }
  void OnFinish(uint32_t choice, FinishReason reason) override { finished[choice] = reason; }
  void OnDone(const absl::Status& end, const LinkUsage& used, const LinkTimings& took) override {
    EXPECT_FALSE(done);
    status = end;
    usage = used;
    timings = took;
    done = true;
  }
  bool admitted = false, gone = false;
  std::atomic<bool> done = false;
  std::optional<uint32_t> planned;
  std::map<uint32_t, std::string> text;
  std::map<uint32_t, FinishReason> finished;
  int logprobs = 0;
  absl::Status status;
  LinkUsage usage;
  LinkTimings timings;
};

class LinkServiceTest : public ::testing::Test {
 protected:
  LinkServiceTest() { engine_.set_answer(TokensOf("Hello, world")); }

  LinkPiece Text(std::string_view text) {
    LinkPiece piece;
    piece.tokens = TokensOf(text);
    return piece;
  }
  LinkPiece Head(std::string_view text) {
    LinkPiece piece = Text(text);
    piece.kind = LinkPiece::Kind::kHead;
    return piece;
  }
  LinkPiece Context(std::string_view text) {
    LinkPiece piece = Text(text);
    piece.kind = LinkPiece::Kind::kContext;
    const absl::StatusOr<CreateResult> created = store_.CreateContext({.tenant = kTenant,
                                                                       .model_identity = {},
                                                                       .model = "m",
                                                                       .tokens = piece.tokens,
                                                                       .ttl_seconds = {},
                                                                       .pin_until_ms = {},
                                                                       .tags = {},
                                                                       .name = {},
                                                                       .compile_prefix = {}});
    EXPECT_OK(created);
    piece.context = created->record.id;
    piece.variant = VariantOf(engine_, CompilePrefixKind::kNone, {});
    piece.sets_state = true;
    return piece;
  }
  LinkJob JobOf(std::vector<LinkPiece> pieces) {
    LinkJob job;
    job.tenant = kTenant;
    job.pieces = std::move(pieces);
    job.max_tokens = 100;
    job.received_steady_ns = clock_.SteadyNs();
    return job;
  }
  std::shared_ptr<Collector> Run(LinkJob job) {
    auto collector = std::make_shared<Collector>();
    links_.Link(std::move(job), collector);
    Settle();
    EXPECT_TRUE(collector->done);
    ExpectNothingLeft();
    return collector;
  }
  void Settle() {
    do {
      executor_.RunAll();
    } while (engine_.Step());
    executor_.RunAll();
  }
  void ExpectNothingLeft() {
    EXPECT_EQ(links_.stats().active, 0u);
    EXPECT_EQ(compiles_.stats().waiters, 0u);
    EXPECT_EQ(store_.Usage().leased_objects, 0u);
    EXPECT_EQ(store_.Usage().reservations, 0u);
    EXPECT_EQ(engine_.Gauges().held_objects, 0u);
  }

  ManualClock clock_;
  FakeEngine engine_;
  ByteTokenizer tokenizer_;
  ChatMlTemplate template_;
  FaultyKvStore store_{&clock_};
  ManualExecutor executor_;
  ServedModel model_{.alias = "m",
                     .identity = {},
                     .architecture = "llama",
                     .tokenizer = &tokenizer_,
                     .chat_template = &template_,
                     .engine = &engine_};
  CompileService compiles_{{}, &engine_, &store_, &executor_, &clock_};
  LinkService links_{{.max_tokens = 64, .max_heads = 2}, &model_, &store_, &compiles_, &executor_, &clock_};
};

const std::string kLong(50, 'x'), kOther(40, 'y'), kShort(7, 'z');

TEST_F(LinkServiceTest, UsageIsTheSumOfMinSixteenOnceEverythingIsCompiled) {
  const auto pieces = [&] {
    return std::vector<LinkPiece>{Head("system"), Context(kLong), Context(kShort), Context(kOther),
                                  Text("?")};
  };
  const auto first = Run(JobOf(pieces()));
  ASSERT_OK(first->status);
  EXPECT_EQ(first->text[0], "Hello, world");
  // All of it was compiled for this request: nothing may be called cached.
  EXPECT_EQ(first->usage.cached_tokens, 0u);
  EXPECT_EQ(first->usage.recomputed_tokens, 97u);
  EXPECT_EQ(first->usage.fresh_tokens, 7u);
  EXPECT_EQ(first->planned, 97u);
  EXPECT_EQ(first->timings.recompiled_objects, 3u);
  const auto second = Run(JobOf(pieces()));
  EXPECT_EQ(second->usage.recomputed_tokens, 16u + 7 + 16);
  EXPECT_EQ(second->planned, 39u);
  EXPECT_EQ(second->usage.fresh_tokens, 1u);
  EXPECT_EQ(second->usage.cached_tokens, 104u - 39 - 1);
  EXPECT_EQ(second->usage.prompt_tokens, 104u);
  EXPECT_EQ(second->usage.completion_tokens, 12u);
  EXPECT_EQ(engine_.compiles_started(), 4u);
}

TEST_F(LinkServiceTest, AnotherOrderCompilesNothing) {
  Run(JobOf({Head("system"), Context(kLong), Context(kOther), Text("?")}));
  const uint64_t compiles = engine_.compiles_started();
  const auto other = Run(JobOf({Head("system"), Context(kOther), Context(kLong), Text("?")}));
  EXPECT_EQ(engine_.compiles_started(), compiles);
  EXPECT_EQ(other->usage.recomputed_tokens, 32u);
}

TEST_F(LinkServiceTest, TheSameContextTwiceIsLeasedAndCompiledOnce) {
  const auto twice = Run(JobOf({Context(kLong), Text("and"), Context(kLong), Text("?")}));
  EXPECT_EQ(engine_.compiles_started(), 1u);
  // The first stands at offset 0, exact in place, and was computed now; of the second 16 rows are repaired.
  EXPECT_EQ(twice->usage.recomputed_tokens, 66u);
  EXPECT_EQ(twice->usage.cached_tokens, 34u);
}

TEST_F(LinkServiceTest, FullAndPromptsWithoutContextsReadAndCompileNothing) {
  LinkJob full = JobOf({Head("system"), Context(kLong), Text("?")});
  full.strategy.kind = StrategyKind::kFull;
  const auto done = Run(std::move(full));
  EXPECT_EQ(done->usage.recomputed_tokens, 50u);
  EXPECT_EQ(done->usage.fresh_tokens, 7u);
  Run(JobOf({Head("system"), Text("hello")}));
  EXPECT_EQ(engine_.compiles_started(), 0u);
  EXPECT_EQ(store_.hidden_contexts(), 0u);
}

TEST_F(LinkServiceTest, AMissingObjectIsRefusedWhenTheClientSaysSo) {
  LinkJob job = JobOf({Context(kLong), Text("?")});
  job.pieces[0].on_missing = OnMissing::kError;
  job.pieces[0].place = "context_ids[0]";
  const auto refused = Run(std::move(job));
  EXPECT_FALSE(refused->admitted);
  EXPECT_EQ(ParamOf(refused->status), "context_ids[0]");
  EXPECT_EQ(CodeOf(refused->status), ErrorCode::kContextObjectMissing);
  EXPECT_EQ(engine_.compiles_started(), 0u);
}

TEST_F(LinkServiceTest, ADamagedObjectIsComputedAgainForTheCallThatMeetsIt) {
  Run(JobOf({Context(kLong), Context(kOther), Text("?")}));
  store_.CorruptNext();
  const auto done = Run(JobOf({Context(kLong), Context(kOther), Text("?")}));
  ASSERT_OK(done->status);
  EXPECT_EQ(done->text[0], "Hello, world");
  EXPECT_EQ(done->timings.recompiled_objects, 1u);
  EXPECT_EQ(engine_.compiles_started(), 3u);
}

TEST_F(LinkServiceTest, AnObjectLostOnItsWayIsFetchedAgainAndNothingOfTheFirstRunIsSeen) {
  Run(JobOf({Head("system"), Context(kLong), Context(kOther), Text("?")}));
  const uint64_t compiles = engine_.compiles_started();
  engine_.LoseObject(1, 1);
  const auto done = Run(JobOf({Head("system"), Context(kLong), Context(kOther), Text("?")}));
  ASSERT_OK(done->status);
  EXPECT_EQ(done->text[0], "Hello, world");
  EXPECT_EQ(done->finished, (std::map<uint32_t, FinishReason>{{0, FinishReason::kStop}}));
  EXPECT_EQ(done->usage.completion_tokens, 12u);
  EXPECT_EQ(done->usage.recomputed_tokens, 32u);
  EXPECT_EQ(engine_.compiles_started(), compiles) << "the store had it still";
  EXPECT_EQ(links_.stats().objects_lost, 1u);
  EXPECT_EQ(engine_.links_started(), 3u);
}

TEST_F(LinkServiceTest, AnObjectLostOnItsWayThatTheStoreHasNoMoreIsCompiledOrRefused) {
  Run(JobOf({Context(kLong), Context(kOther), Text("?")}));
  const uint64_t compiles = engine_.compiles_started();
  for (const OnMissing on_missing : {OnMissing::kRecompile, OnMissing::kError}) {
    LinkJob job = JobOf({Context(kLong), Context(kOther), Text("?")});
    job.pieces[1].on_missing = on_missing;
    job.pieces[1].place = "context_ids[1]";
    auto collector = std::make_shared<Collector>();
    engine_.LoseObject(1, 1);
    links_.Link(std::move(job), collector);
    EXPECT_EQ(engine_.Gauges().held_objects, 2u);
    store_.CorruptNext();  // of the second acquisition
    Settle();
    ASSERT_TRUE(collector->done);
    if (on_missing == OnMissing::kError) {
      EXPECT_EQ(CodeOf(collector->status), ErrorCode::kContextObjectMissing);
      EXPECT_EQ(ParamOf(collector->status), "context_ids[1]");
      EXPECT_TRUE(collector->text.empty());
    } else {
      ASSERT_OK(collector->status);
      EXPECT_EQ(collector->text[0], "Hello, world");
      EXPECT_EQ(collector->timings.recompiled_objects, 1u);
      EXPECT_EQ(collector->usage.recomputed_tokens, 40u);  // the first is exact in place
    }
    EXPECT_EQ(engine_.compiles_started(), compiles + 1);
    ExpectNothingLeft();
  }
}

TEST_F(LinkServiceTest, AnObjectLostAgainAndAgainIsComputedForTheCallOrRefused) {
  Run(JobOf({Head("system"), Context(kLong), Context(kOther), Context(kLong), Text("?")}));
  for (const OnMissing on_missing : {OnMissing::kRecompile, OnMissing::kError}) {
    LinkJob job = JobOf({Head("system"), Context(kLong), Context(kOther), Context(kLong), Text("?")});
    job.pieces[1].on_missing = on_missing;
    engine_.LoseObject(1, 2);
    const auto done = Run(std::move(job));
    if (on_missing == OnMissing::kError) {
      EXPECT_EQ(CodeOf(done->status), ErrorCode::kContextObjectMissing);
      continue;
    }
    ASSERT_OK(done->status);
    EXPECT_EQ(done->text[0], "Hello, world");
    // Both places of it, and sixteen rows of the other.
    EXPECT_EQ(done->usage.recomputed_tokens, 50u + 16 + 50);
    EXPECT_EQ(done->usage.fresh_tokens, 1u);
    EXPECT_EQ(done->usage.cached_tokens, 6u + 24);
  }
  engine_.LoseObject(0, 2);
  const auto headless = Run(JobOf({Head("system"), Context(kLong), Text("?")}));
  ASSERT_OK(headless->status);
  EXPECT_EQ(headless->usage.fresh_tokens, 6u + 1);
}

TEST_F(LinkServiceTest, ACallThatIsCancelledWhenItsObjectIsLostEndsCancelled) {
  Run(JobOf({Context(kLong), Context(kOther), Text("?")}));
  engine_.LoseObject(1, 1);
  auto collector = std::make_shared<Collector>();
  const auto call = links_.Link(JobOf({Context(kLong), Context(kOther), Text("?")}), collector);
  engine_.Step();  // lost; the executor has what follows
  call->Cancel();
  EXPECT_TRUE(collector->done);
  EXPECT_EQ(CodeOf(collector->status), ErrorCode::kClientGone);
  Settle();
  EXPECT_EQ(engine_.links_started(), 2u);
  ExpectNothingLeft();
}

TEST_F(LinkServiceTest, AFailedContextEndsTheCallAndAFailedHeadOnlyCostsItsCaching) {
  engine_.set_compile_status(absl::InternalError("NaN"));
  LinkJob job = JobOf({Context(kLong), Text("?")});
  job.pieces[0].place = "context_ids[0]";
  const auto failed = Run(std::move(job));
  EXPECT_EQ(ParamOf(failed->status), "context_ids[0]");
  EXPECT_EQ(CodeOf(failed->status), ErrorCode::kContextFailed);
  EXPECT_FALSE(failed->admitted);
  engine_.set_compile_status(absl::OkStatus());
  Run(JobOf({Context(kLong), Text("?")}));
  engine_.set_compile_status(absl::InternalError("NaN"));
  const auto done = Run(JobOf({Head("system"), Context(kLong), Text("?")}));
  EXPECT_OK(done->status);
  EXPECT_EQ(done->usage.fresh_tokens, 7u);
  EXPECT_EQ(done->usage.recomputed_tokens, 16u);
}

TEST_F(LinkServiceTest, HeadsAreBoundedAndTheOldestGoes) {
  for (const std::string head : {"one", "two", "three"}) {
    Run(JobOf({Head(head), Context(kLong), Text("?")}));
  }
  EXPECT_EQ(store_.hidden_contexts(), 2u);
  const uint64_t compiles = engine_.compiles_started();
  Run(JobOf({Head("three"), Context(kLong), Text("?")}));
  EXPECT_EQ(engine_.compiles_started(), compiles);
  Run(JobOf({Head("one"), Context(kLong), Text("?")}));
  EXPECT_EQ(engine_.compiles_started(), compiles + 1);
  const auto longer = Run(JobOf({Head(std::string(65, 'h')), Context(kLong), Text("?")}));
  EXPECT_EQ(longer->usage.fresh_tokens, 66u);
}

TEST_F(LinkServiceTest, AStopStringEndsTheChoiceWithoutLeakingItsHead) {
  LinkJob job = JobOf({Text("hi")});
  job.stop = {"o, w"};
  job.choices = 2;
  job.sampling.logprobs = true;
  const auto done = Run(std::move(job));
  EXPECT_EQ(done->text[0], "Hell");
  EXPECT_EQ(done->text[1], "Hell");
  EXPECT_EQ(done->finished[0], FinishReason::kStop);
  EXPECT_EQ(done->logprobs, 8);
  EXPECT_EQ(done->usage.completion_tokens, 16u);  // the tokens of the stop string were generated too
}

TEST_F(LinkServiceTest, HeldTextIsFlushedWhenTheLengthEndsTheChoice) {
  LinkJob job = JobOf({Text("hi")});
  job.stop = {"lo!"};
  job.max_tokens = 5;
  const auto done = Run(std::move(job));
  EXPECT_EQ(done->text[0], "Hello");
  EXPECT_EQ(done->finished[0], FinishReason::kLength);
}

TEST_F(LinkServiceTest, EndTokensAreNotTextAndMayBeIgnored) {
  engine_.set_answer({'a', ByteTokenizer::kImEnd, 'b'});
  const auto ends = Run(JobOf({Text("hi")}));
  EXPECT_EQ(ends->text[0], "a");
  EXPECT_EQ(ends->usage.completion_tokens, 1u);
  LinkJob job = JobOf({Text("hi")});
  job.ignore_eos = true;
  EXPECT_EQ(Run(std::move(job))->text[0], "ab");
}

TEST_F(LinkServiceTest, AReaderThatIsGoneCancelsTheCall) {
  auto collector = std::make_shared<Collector>();
  collector->gone = true;
  links_.Link(JobOf({Text("hi")}), collector);
  Settle();
  EXPECT_TRUE(collector->done);
  EXPECT_EQ(CodeOf(collector->status), ErrorCode::kClientGone);
  EXPECT_EQ(collector->text[0], "H");
  ExpectNothingLeft();
}

TEST_F(LinkServiceTest, AFullEngineIsARefusal) {
  engine_.set_submit_status(RetryLater(ErrorCode::kQueueFull, "full", 700));
  const auto refused = Run(JobOf({Text("hi")}));
  EXPECT_FALSE(refused->admitted);
  EXPECT_EQ(CodeOf(refused->status), ErrorCode::kQueueFull);
  EXPECT_EQ(RetryAfterMsOf(refused->status), 700);
}

TEST_F(LinkServiceTest, AnErrorOfTheEngineEndsTheStream) {
  engine_.set_link_status(absl::InternalError("out of order"));
  const auto done = Run(JobOf({Text("hi")}));
  EXPECT_TRUE(done->admitted);
  EXPECT_EQ(CodeOf(done->status), ErrorCode::kInternal);
}

TEST_F(LinkServiceTest, ObjectsThatHoldNoNumbersAreDroppedWhenTheEngineFailsAndCompiledAnewNext) {
  Metrics metrics;
  LinkService links({}, &model_, &store_, &compiles_, &executor_, &clock_, &metrics);
  const Counter dropped = metrics.GetCounter(MetricId::kNotFiniteTotal, {"object"});
  const auto run = [&](std::vector<LinkPiece> pieces) {
    auto collector = std::make_shared<Collector>();
    links.Link(JobOf(std::move(pieces)), collector);
    Settle();
    EXPECT_TRUE(collector->done);
    ExpectNothingLeft();
    return collector;
  };
  const auto pieces = [&] {
    return std::vector<LinkPiece>{Head("system"), Context(kLong), Context(kLong), Text("?")};
  };
  ASSERT_OK(run(pieces())->status);
  const uint64_t compiles = engine_.compiles_started();
  store_.PoisonAllObjects();
  const uint64_t sound = [&] {
    EXPECT_OK(run({Context(kOther), Text("?")})->status);
    return engine_.compiles_started() - compiles;
  }();
  EXPECT_EQ(sound, 1u);

  engine_.set_link_status(Error(ErrorCode::kInternal, "the output is not a number"));
  const auto failed = run(pieces());
  EXPECT_EQ(CodeOf(failed->status), ErrorCode::kInternal);
  EXPECT_FALSE(IsUnexpected(failed->status));
  EXPECT_NE(MessageOf(failed->status).find("2 parts of this prompt"), std::string::npos) << failed->status;
  EXPECT_EQ(dropped.Value(), 2u);

  engine_.set_link_status(absl::OkStatus());
  EXPECT_OK(run(pieces())->status);
  EXPECT_EQ(engine_.compiles_started(), compiles + 1 + 2);
}

TEST_F(LinkServiceTest, SoundObjectsStayWhenTheEngineFails) {
  ASSERT_OK(Run(JobOf({Context(kLong), Text("?")}))->status);
  const uint64_t compiles = engine_.compiles_started();
  engine_.set_link_status(Error(ErrorCode::kInternal, "the output is not a number"));
  const auto failed = Run(JobOf({Context(kLong), Text("?")}));
  EXPECT_EQ(MessageOf(failed->status), "the output is not a number");
  store_.PoisonAllObjects();
  engine_.set_link_status(RetryLater(ErrorCode::kDraining, "stopping", 1000));
  EXPECT_EQ(CodeOf(Run(JobOf({Context(kLong), Text("?")}))->status), ErrorCode::kDraining);
  engine_.set_link_status(absl::OkStatus());
  ASSERT_OK(Run(JobOf({Context(kLong), Text("?")}))->status);
  EXPECT_EQ(engine_.compiles_started(), compiles) << "only numbers that are none drop an object";
}

TEST_F(LinkServiceTest, ACancelBetweenTheFailureAndTheLookAtObjectsChangesNothing) {
  ASSERT_OK(Run(JobOf({Context(kLong), Text("?")}))->status);
  store_.PoisonAllObjects();
  engine_.set_link_status(Error(ErrorCode::kInternal, "the output is not a number"));
  auto collector = std::make_shared<Collector>();
  const auto call = links_.Link(JobOf({Context(kLong), Text("?")}), collector);
  engine_.RunAll();
  EXPECT_FALSE(collector->done);
  call->Cancel();
  Settle();
  EXPECT_TRUE(collector->done);
  EXPECT_EQ(CodeOf(collector->status), ErrorCode::kInternal);
  ExpectNothingLeft();
}

TEST_F(LinkServiceTest, ACallThatIsCancelledWhileItWaitsForACompileTellsForWhich) {
  const auto job = [&] {
    LinkJob made = JobOf({Head("system"), Context(kLong), Context(kOther), Text("?")});
    made.pieces[1].place = "messages[0].content[0].id";
    made.pieces[2].place = "context_ids[0]";
    return made;
  };
  auto collector = std::make_shared<Collector>();
  links_.Link(job(), collector)->Cancel();
  EXPECT_EQ(ParamOf(collector->status), "messages[0].content[0].id");
  Settle();
  LinkJob first = JobOf({Context(kLong), Text("?")});
  Run(std::move(first));  // compiled now
  collector = std::make_shared<Collector>();
  links_.Link(job(), collector)->Cancel();
  EXPECT_EQ(ParamOf(collector->status), "context_ids[0]");
  Settle();
  Run(job());
  collector = std::make_shared<Collector>();
  links_.Link(job(), collector)->Cancel();  // the engine has it
  Settle();
  EXPECT_EQ(CodeOf(collector->status), ErrorCode::kClientGone);
  EXPECT_EQ(ParamOf(collector->status), "");
  ExpectNothingLeft();
}

TEST_F(LinkServiceTest, AClientThatWentBeforeItsCallBeganCostsNothing) {
  CancelSource gone;
  gone.Cancel();
  for (LinkJob job : {JobOf({Head("system"), Context(kLong), Text("?")}), JobOf({Text("?")})}) {
    job.cancel = gone.token();
    auto collector = std::make_shared<Collector>();
    links_.Link(std::move(job), collector);
    EXPECT_TRUE(collector->done && !collector->admitted);
    EXPECT_EQ(CodeOf(collector->status), ErrorCode::kClientGone);
  }
  EXPECT_EQ(links_.stats().heads, 0u);
  EXPECT_EQ(links_.stats().objects_missing, 0u);
  EXPECT_FALSE(engine_.Step());
  ExpectNothingLeft();
}

TEST_F(LinkServiceTest, AClientThatGoesWhileAnObjectIsFetchedIsNotWaitedForAnyLonger) {
  const std::vector<LinkPiece> pieces = {Context(kLong), Context(kOther), Text("?")};
  Run(JobOf(pieces));  // compiled now
  const uint64_t found = links_.stats().objects_found;
  for (const size_t contexts : {2, 1}) {  // another one would be fetched; the engine would be asked
    CancelSource client;
    LinkJob job = JobOf({pieces.begin() + 2 - static_cast<int64_t>(contexts), pieces.end()});
    job.cancel = client.token();
    store_.Hold(StoreCall::kAcquire);
    auto collector = std::make_shared<Collector>();
    std::thread caller([&] { links_.Link(std::move(job), collector); });
    store_.WaitUntilHeld(StoreCall::kAcquire);
    client.Cancel();
    store_.Release(StoreCall::kAcquire);
    caller.join();
    EXPECT_TRUE(collector->done && !collector->admitted);
    EXPECT_EQ(CodeOf(collector->status), ErrorCode::kClientGone);
    EXPECT_FALSE(engine_.Step());
    ExpectNothingLeft();
  }
  EXPECT_EQ(links_.stats().objects_found, found + 2) << "one for each call";
}

TEST_F(LinkServiceTest, CancelInEachPhaseFreesEverything) {
  for (int steps = 0; steps < 12; ++steps) {
    store_.DropAllObjects();
    auto collector = std::make_shared<Collector>();
    const auto call =
        links_.Link(JobOf({Head("system"), Context(kLong), Context(kOther), Text("?")}), collector);
    for (int i = 0; i < steps; ++i) {
      executor_.RunAll();
      engine_.Step();
    }
    call->Cancel();
    call->Cancel();
    Settle();
    EXPECT_TRUE(collector->done);
    EXPECT_EQ(CodeOf(collector->status), ErrorCode::kClientGone) << steps;
    ExpectNothingLeft();
  }
}

TEST_F(LinkServiceTest, RandomCancelsOnManyThreadsLeaveNothingBehind) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  ThreadExecutor executor(2, 10000);
  CompileService compiles({}, &engine_, &store_, &executor, &clock_);
  LinkService links({.max_tokens = 64, .max_heads = 2}, &model_, &store_, &compiles, &executor, &clock_);
  std::atomic<bool> stop = false;
  std::thread loop([&] {
    while (!stop) {
      if (!engine_.Step()) std::this_thread::yield();
    }
  });
  std::vector<std::thread> clients;
  for (uint64_t t = 0; t < 3; ++t) {
    clients.emplace_back([&, t] {
      Rng rng(seed + t);
      for (int i = 0; i < 100; ++i) {
        if (rng.Below(5) == 0) store_.DropAllObjects();
        auto collector = std::make_shared<Collector>();
        const std::string a(20 + rng.Below(3), 'a'), b(30 + rng.Below(3), 'b');
        const auto call = links.Link(
            JobOf({Head(std::string(1 + rng.Below(4), 's')), Context(a), Context(b), Text("?")}), collector);
        for (uint64_t spin = rng.Below(50); spin > 0; --spin) std::this_thread::yield();
        if (rng.Below(2) == 0) call->Cancel();
        while (!collector->done) std::this_thread::yield();
        EXPECT_TRUE(collector->status.ok() || CodeOf(collector->status) == ErrorCode::kClientGone)
            << collector->status;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  while (compiles.stats().running > 0) std::this_thread::yield();
  stop = true;
  loop.join();
  executor.Stop();
  EXPECT_EQ(links.stats().active, 0u);
  EXPECT_EQ(compiles.stats().waiters, 0u);
  EXPECT_EQ(store_.Usage().reservations, 0u);
  EXPECT_EQ(store_.Usage().leased_objects, 0u);
  EXPECT_EQ(engine_.Gauges().held_objects, 0u);
}

}  // namespace
}  // namespace epic
