// The whole node, without doors, on the default model and the real store: what a user sees through the apis.
// Skipped where the model's file is absent.
#include <future>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/node/node.h"

namespace epic {
namespace {

class WaitingSink final : public ChatSink {
 public:
  void OnStart(const ChatStart& s) override { start = s; }
  bool OnDelta(ChatDelta delta) override {
    text += delta.text;
    if (!std::exchange(began, true)) first.set_value();
    return true;
  }
  void OnFinish(uint32_t, const std::string&) override {}
  void OnDone(const absl::Status& status, const ChatUsage& used, const ChatTimings& took) override {
    usage = used;
    timings = took;
    done.set_value(status);
  }
  ChatStart start;
  std::string text;
  ChatUsage usage;
  ChatTimings timings;
  bool began = false;
  std::promise<void> first;
  std::promise<absl::Status> done;
};

class NodeDefaultModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::optional<std::string> path = testing::DefaultModelPath();
    if (!path.has_value()) GTEST_SKIP() << "the default model is not in the cache: run deploy/fetch_model.sh";
    options_.config = DefaultConfig();
    options_.config.model.path = *path;
    options_.config.store.data_dir = dir_.path() + "/store";
    Restart();
  }
  void Restart() {
    node_.reset();
    metrics_ = std::make_unique<Metrics>();
    node_ = std::make_unique<Node>(
        options_, SystemClock::Get(), metrics_.get(),
        [this](PackProgress* progress) { return LoadParts(options_.config, SystemClock::Get(), progress); });
    ASSERT_OK(node_->Start());
  }
  RequestScope Scope() {
    RequestScope scope;
    scope.cancel = cancel_.token();
    scope.received_steady_ns = SystemClock::Get()->SteadyNs();
    return scope;
  }
  CreateContextResult CreateOrDie(const std::string& text) {
    std::promise<absl::StatusOr<CreateContextResult>> done;
    CreateContextRequest request;
    request.text = text;
    node_->apis().contexts->Create(Scope(), request,
                                   [&done](auto result) { done.set_value(std::move(result)); });
    absl::StatusOr<CreateContextResult> result = done.get_future().get();
    EXPECT_OK(result);
    return *std::move(result);
  }
  std::shared_ptr<WaitingSink> Begin(const std::vector<std::string>& ids, const std::string& strategy,
                                     int64_t max_tokens) {
    ChatRequest request;
    request.messages = {{"user", {{ContentPart::Kind::kText, "What are these texts about?"}}}};
    request.context_ids = ids;
    request.linking.strategy = strategy;
    request.temperature = 0;
    request.max_tokens = max_tokens;
    auto sink = std::make_shared<WaitingSink>();
    node_->apis().chat->Complete(Scope(), request, sink);
    return sink;
  }
  std::shared_ptr<WaitingSink> Chat(const std::vector<std::string>& ids, const std::string& strategy) {
    auto sink = Begin(ids, strategy, 8);
    EXPECT_OK(sink->done.get_future().get());
    EXPECT_EQ(sink->usage.cached_tokens + sink->usage.recomputed_tokens + sink->usage.fresh_tokens,
              sink->usage.prompt_tokens);
    return sink;
  }
  double MetricOf(const std::string& name) {
    const std::string text = node_->apis().node->MetricsText();
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }

  testing::TempDir dir_;
  NodeOptions options_;
  CancelSource cancel_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<Node> node_;
};

TEST_F(NodeDefaultModelTest, ContextsAreReusedInAnyOrderAndAfterARestart) {
  const std::string licence = testing::ReadFileOrDie(testing::SourceDir() + "/LICENSE");
  std::vector<std::string> ids;
  for (size_t i = 0; i < 3; ++i) {
    const CreateContextResult made = CreateOrDie(licence.substr(i * 1500, 1200));
    EXPECT_EQ(made.outcome, CreateContextResult::Outcome::kCreated);
    ids.push_back(made.record.id.text());
  }
  const auto full = Chat(ids, "full");
  EXPECT_EQ(full->usage.cached_tokens, 0u);
  Chat(ids, "legolink-16");  // compiles the template's head
  const double compiled = MetricOf("epic_compile_tokens_total");
  const auto linked = Chat(ids, "legolink-16");
  EXPECT_EQ(linked->usage.recomputed_tokens, 48u);
  EXPECT_EQ(linked->start.planned_recomputed, 48u);
  EXPECT_EQ(linked->usage.prompt_tokens, full->usage.prompt_tokens);
  EXPECT_LT(linked->timings.link_ms, full->timings.link_ms);
  for (const std::vector<std::string>& order :
       {std::vector{ids[2], ids[0], ids[1]}, {ids[1], ids[2], ids[0]}}) {
    EXPECT_EQ(Chat(order, "legolink-16")->usage.recomputed_tokens, 48u);
  }
  EXPECT_EQ(MetricOf("epic_compile_tokens_total"), compiled);

  Restart();
  for (size_t i = 0; i < 3; ++i) {
    const CreateContextResult again = CreateOrDie(licence.substr(i * 1500, 1200));
    EXPECT_EQ(again.outcome, CreateContextResult::Outcome::kExisted);
    EXPECT_EQ(again.record.id.text(), ids[i]);
  }
  const auto after = Chat(ids, "legolink-16");
  EXPECT_EQ(after->usage.recomputed_tokens, 48u);
  EXPECT_EQ(after->text, linked->text);
  EXPECT_EQ(MetricOf("epic_compile_tokens_total"), 0);
}

TEST_F(NodeDefaultModelTest, AClientThatGoesWhileTokensComeFreesItsRowsAndLeases) {
  const std::string licence = testing::ReadFileOrDie(testing::SourceDir() + "/LICENSE");
  const std::string id = CreateOrDie(licence.substr(0, 1200)).record.id.text();
  const auto sink = Begin({id}, "legolink-16", 1000);
  sink->first.get_future().get();
  const int64_t gone_ns = SystemClock::Get()->SteadyNs();
  cancel_.Cancel();
  EXPECT_EQ(CodeOf(sink->done.get_future().get()), ErrorCode::kClientGone);
  EXPECT_LT(SystemClock::Get()->SteadyNs() - gone_ns, 1'000'000'000);
  EXPECT_TRUE(node_->Drain(1000));
  EXPECT_EQ(MetricOf("epic_store_leased_objects"), 0);
  EXPECT_EQ(MetricOf("epic_engine_private_segment_bytes"), 0);
}

}  // namespace
}  // namespace epic
