#include "services/node/node.h"

#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/worker_api/testing/fake_engine.h"
#include "services/worker_api/testing/fake_text.h"
#include "services/worker_api/testing/faulty_kv_store.h"

namespace epic {
namespace {

using ::epic::testing::ByteTokenizer;
using ::epic::testing::ChatMlTemplate;
using ::epic::testing::FakeEngine;
using ::epic::testing::FaultyKvStore;

// Waits for the last call of a chat.
class WaitingSink final : public ChatSink {
 public:
  void OnStart(const ChatStart&) override { started.set_value(); }
  bool OnDelta(ChatDelta delta) override {
    text += delta.text;
    return true;
  }
  void OnFinish(uint32_t, const std::string&) override {}
  void OnDone(const absl::Status& status, const ChatUsage&, const ChatTimings&) override {
    done.set_value(status);
  }
  std::promise<void> started;
  std::string text;
  std::promise<absl::Status> done;
};

class NodeTest : public ::testing::Test {
 protected:
  NodeTest() { MakeNode({}); }
  // A node on fakes with these settings, in the place of the last one. Not after RunEngine.
  void MakeNode(const std::vector<std::string>& sets, const Clock* clock = SystemClock::Get()) {
    ConfigSources sources;
    sources.environment = {{"HOME", "/nowhere"}};
    sources.sets = sets;
    auto config = LoadConfig(sources);
    ASSERT_OK(config);
    NodeOptions options;
    options.config = *std::move(config);
    options.other_causes = other_causes_;
    node_.reset();
    node_ = std::make_unique<Node>(options, clock, &metrics_, [this, clock](PackProgress*) {
      auto engine = std::make_unique<FakeEngine>();
      engine->set_answer({'h', 'i'});
      engine_ = engine.get();
      auto store = std::make_unique<FaultyKvStore>(clock);
      store_ = store.get();
      NodeParts parts;
      parts.alias = "m";
      parts.tokenizer = std::make_unique<ByteTokenizer>();
      parts.chat_template = std::make_unique<ChatMlTemplate>();
      parts.store = std::move(store);
      parts.engine = std::move(engine);
      return absl::StatusOr<NodeParts>(std::move(parts));
    });
  }
  ~NodeTest() override {
    stop_ = true;
    if (loop_.joinable()) loop_.join();
  }
  // The engine runs by itself from now on.
  void RunEngine() {
    loop_ = std::thread([this] {
      while (!stop_) {
        if (!engine_->Step()) std::this_thread::yield();
      }
    });
  }
  RequestScope Scope() {
    RequestScope scope;
    scope.request_id = "r";
    scope.cancel = cancel_.token();
    scope.received_steady_ns = SystemClock::Get()->SteadyNs();
    return scope;
  }
  std::shared_ptr<WaitingSink> Ask() {
    auto sink = std::make_shared<WaitingSink>();
    ChatRequest request;
    request.messages = {{"user", {{ContentPart::Kind::kText, "hello"}}}};
    node_->apis().chat->Complete(Scope(), request, sink);
    return sink;
  }

  ManualClock clock_;
  std::function<std::vector<std::string>()> other_causes_;
  Metrics metrics_;
  CancelSource cancel_;
  FakeEngine* engine_ = nullptr;
  FaultyKvStore* store_ = nullptr;
  std::unique_ptr<Node> node_;
  std::atomic<bool> stop_ = false;
  std::thread loop_;
};

TEST_F(NodeTest, RefusesWhileLoadingServesAndRefusesWhileDraining) {
  EXPECT_EQ(node_->apis().node->Health().status, "loading");
  EXPECT_EQ(CodeOf(Ask()->done.get_future().get()), ErrorCode::kLoading);
  EXPECT_TRUE(node_->apis().models->List().empty());
  ASSERT_OK(node_->Start());
  EXPECT_EQ(node_->apis().node->Health().status, "ok");
  EXPECT_TRUE(node_->apis().node->Health().able);
  RunEngine();
  const auto sink = Ask();
  EXPECT_OK(sink->done.get_future().get());
  EXPECT_EQ(sink->text, "hi");
  EXPECT_TRUE(node_->Drain(1000));
  EXPECT_EQ(node_->apis().node->Health().status, "draining");
  EXPECT_FALSE(node_->apis().node->Health().able);
  EXPECT_EQ(CodeOf(Ask()->done.get_future().get()), ErrorCode::kDraining);
}

TEST_F(NodeTest, AClientThatGoesIsNoticedByItself) {
  ASSERT_OK(node_->Start());
  const auto sink = Ask();
  sink->started.get_future().get();
  EXPECT_EQ(node_->apis().node->InFlight().size(), 1u);
  cancel_.Cancel();
  RunEngine();
  EXPECT_EQ(CodeOf(sink->done.get_future().get()), ErrorCode::kClientGone);
  EXPECT_TRUE(node_->apis().node->InFlight().empty());
}

TEST_F(NodeTest, RefusingNewRequestsLeavesTheRunningOnesAlone) {
  ASSERT_OK(node_->Start());
  const auto running = Ask();
  running->started.get_future().get();
  EXPECT_EQ(node_->RefuseNew(), 1u);
  EXPECT_EQ(node_->apis().node->Health().status, "draining");
  EXPECT_EQ(CodeOf(Ask()->done.get_future().get()), ErrorCode::kDraining);
  RunEngine();
  EXPECT_OK(running->done.get_future().get());
  EXPECT_TRUE(node_->Drain(1000));
  EXPECT_EQ(node_->RefuseNew(), 0u);
}

TEST_F(NodeTest, DrainInterruptsWhatDoesNotEndInTimeAndStopWaits) {
  ASSERT_OK(node_->Start());
  const auto sink = Ask();
  sink->started.get_future().get();
  EXPECT_FALSE(node_->Drain(1));
  node_->Stop();
  node_->Stop();
  EXPECT_EQ(CodeOf(sink->done.get_future().get()), ErrorCode::kDraining);
}

TEST_F(NodeTest, MetricsShowWhatWasDone) {
  ASSERT_OK(node_->Start());
  RunEngine();
  std::promise<absl::StatusOr<CreateContextResult>> created;
  CreateContextRequest request;
  request.text = "some text";
  node_->apis().contexts->Create(Scope(), request, [&created](auto result) { created.set_value(result); });
  ASSERT_OK(created.get_future().get());
  EXPECT_OK(Ask()->done.get_future().get());
  const std::string text = node_->apis().node->MetricsText();
  EXPECT_THAT(text, ::testing::HasSubstr("epic_compile_tokens_total 9\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("epic_generation_tokens_total 2\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("epic_store_contexts 1\n"));
}

TEST_F(NodeTest, AnEngineWithWorkThatStandsStillIsStuckNotBusy) {
  using ::testing::ElementsAre;
  using ::testing::HasSubstr;
  MakeNode({"engine.stuck_after_ms=2s"}, &clock_);
  ASSERT_OK(node_->Start());
  NodeApi* node = node_->apis().node;
  clock_.AdvanceMs(60'000);
  EXPECT_EQ(node->Health().status, "ok");  // nothing to do
  CompileRequest request;
  request.tokens = {1};
  class Ignore final : public CompileSink {
    absl::Status OnLayer(uint32_t, ByteSpan) override { return absl::OkStatus(); }
    void OnDone(const absl::Status&) override {}
  };
  ASSERT_OK(engine_->SubmitCompile(request, std::make_shared<Ignore>()));
  engine_->set_last_progress_ns(clock_.SteadyNs());
  clock_.AdvanceMs(2000);
  EXPECT_EQ(node->Health().status, "ok");  // busy
  clock_.AdvanceMs(3001);
  EXPECT_EQ(node->Health().status, "stuck");
  EXPECT_FALSE(node->Health().able);
  EXPECT_THAT(node->Health().causes, ElementsAre(HasSubstr("stood still for 5 s with 1 requests running")));
  engine_->set_last_progress_ns(clock_.SteadyNs());
  EXPECT_EQ(node->Health().status, "ok");  // it moves again
}

TEST_F(NodeTest, AFailingOrFullDiskIsDegradedAndStillAble) {
  using ::testing::ElementsAre;
  using ::testing::HasSubstr;
  MakeNode({}, &clock_);
  ASSERT_OK(node_->Start());
  clock_.AdvanceMs(1'000'000);
  NodeApi* node = node_->apis().node;
  EXPECT_EQ(node->Health().status, "ok");
  store_->set_disk({.errors = 3, .last_error_steady_ns = clock_.SteadyNs()});
  clock_.AdvanceMs(60'000);
  EXPECT_EQ(node->Health().status, "degraded");
  EXPECT_TRUE(node->Health().able);
  EXPECT_THAT(node->Health().causes, ElementsAre(HasSubstr("failed 3 times, last 60 s ago")));
  EXPECT_THAT(node->MetricsText(), HasSubstr("epic_store_disk_errors_total 3\n"));
  EXPECT_THAT(node->MetricsText(), HasSubstr("epic_store_disk_errors_total 3\n")) << "not counted twice";
  clock_.AdvanceMs(1);
  EXPECT_EQ(node->Health().status, "ok");
  store_->set_disk({.errors = 4, .last_error_steady_ns = clock_.SteadyNs() - 61'000'000'000, .full = true});
  EXPECT_EQ(node->Health().status, "degraded");
  EXPECT_TRUE(node->Health().able);
  EXPECT_THAT(node->Health().causes, ElementsAre(HasSubstr("full")));
  EXPECT_THAT(node->MetricsText(), HasSubstr("epic_store_disk_errors_total 4\n"));
}

TEST_F(NodeTest, ASlowDiskIsDegradedAndStillAble) {
  using ::testing::ElementsAre;
  using ::testing::HasSubstr;
  MakeNode({}, &clock_);
  ASSERT_OK(node_->Start());
  NodeApi* node = node_->apis().node;
  store_->set_disk({.slow = true, .wait_ns = 2'500'000'000});
  EXPECT_EQ(node->Health().status, "degraded");
  EXPECT_TRUE(node->Health().able);
  EXPECT_THAT(node->Health().causes, ElementsAre(HasSubstr("slow: calls wait for it 2500 ms")));
  EXPECT_THAT(node->MetricsText(), HasSubstr("epic_store_disk_slow 1\n"));
  EXPECT_THAT(node->MetricsText(), HasSubstr("epic_store_disk_wait_seconds 2.5\n"));
  store_->set_disk({});
  EXPECT_EQ(node->Health().status, "ok");
}

TEST_F(NodeTest, WhatOthersSayIsDegradedBesideItsOwnCauses) {
  using ::testing::ElementsAre;
  using ::testing::HasSubstr;
  std::vector<std::string> others;
  other_causes_ = [&others] { return others; };
  MakeNode({}, &clock_);
  ASSERT_OK(node_->Start());
  NodeApi* node = node_->apis().node;
  EXPECT_EQ(node->Health().status, "ok");
  others = {"the certificate"};
  EXPECT_EQ(node->Health().status, "degraded");
  EXPECT_TRUE(node->Health().able);
  EXPECT_THAT(node->Health().causes, ElementsAre("the certificate"));
  store_->set_disk({.slow = true, .wait_ns = 2'500'000'000});
  EXPECT_THAT(node->Health().causes, ElementsAre(HasSubstr("slow"), "the certificate"));
}

TEST_F(NodeTest, SettingsBoundRequestsAndCompiles) {
  MakeNode({"limits.default_max_tokens=1", "limits.tags=1", "limits.tag_bytes=3", "limits.name_bytes=4",
            "compile.max_running=1", "compile.max_queue=0", "engine.panel_tokens=1"});
  ASSERT_OK(node_->Start());
  const auto create = [this](const std::string& text, std::vector<std::string> tags, std::string name) {
    auto created = std::make_shared<std::promise<absl::Status>>();
    CreateContextRequest request;
    request.text = text;
    request.tags = std::move(tags);
    request.name = std::move(name);
    request.wait = 0;
    node_->apis().contexts->Create(Scope(), request,
                                   [created](auto result) { created->set_value(result.status()); });
    return created->get_future();
  };
  EXPECT_EQ(ParamOf(create("a", {"x", "y"}, "n").get()), "tags");
  EXPECT_EQ(ParamOf(create("a", {"four"}, "n").get()), "tags");
  EXPECT_EQ(ParamOf(create("a", {"one"}, "fives").get()), "name");
  // The engine stands still: the first compile holds the only place.
  EXPECT_OK(create("a", {"one"}, "four").get());
  EXPECT_EQ(CodeOf(create("b", {}, "b").get()), ErrorCode::kQueueFull);
  RunEngine();
  const auto chat = Ask();
  EXPECT_OK(chat->done.get_future().get());
  EXPECT_EQ(chat->text, "h");
}

TEST_F(NodeTest, AFailedLoadIsReportedAndTheNodeStaysLoading) {
  Metrics metrics;
  NodeOptions options;
  options.config = DefaultConfig();
  Node node(options, SystemClock::Get(), &metrics,
            [](PackProgress*) { return absl::StatusOr<NodeParts>(absl::NotFoundError("no such file")); });
  EXPECT_THAT(node.Start(), testing::StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(node.apis().node->Health().status, "loading");
}

}  // namespace
}  // namespace epic
