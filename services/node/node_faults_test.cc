// A real node behind a real HTTP door, with faults inside: numbers that are none, an engine that stands
// still, model files that change. On a tiny model that computes NaN for every text with a Q.
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/mutex.h"
#include "common/http/http_server.h"
#include "common/status/status_macros.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/engine/testing/tiny_engines.h"
#include "services/node/node.h"
#include "services/router/http/router_site.h"
#include "services/router/http/testing/raw_client.h"
#include "services/worker_api/served_model.h"

namespace epic {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr TokenId kPoison = 3 + 'Q';  // behind three control tokens, bytes stand for themselves
const std::string kTenant = "default";

// Puts a copy of a stored object in its place that has NaN among its values, with right checksums.
absl::Status Poison(KvStore* store, const ObjectKey& key, const KvLayout& layout) {
  EPIC_ASSIGN_OR_RETURN(const AcquireResult stored, store->Acquire(kTenant, key, layout));
  if (stored.object == nullptr) return absl::NotFoundError("nothing to poison");
  EPIC_RETURN_IF_ERROR(store->DropObject(kTenant, key));
  EPIC_ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer, store->Reserve(kTenant, key, layout));
  for (uint32_t layer = 0; layer < layout.layers; ++layer) {
    const ByteSpan slab = stored.object->Layer(layer);
    std::vector<std::byte> bytes(slab.begin(), slab.end());
    // Values of the last row of the first head: no strategy of the test computes it again.
    const uint16_t nan = 0x7fc0;
    std::memcpy(bytes.data() + layout.HeadBytes() - sizeof(nan), &nan, sizeof(nan));
    EPIC_RETURN_IF_ERROR(writer->WriteLayer(layer, bytes));
  }
  return writer->Commit().status();
}

class NodeFaultsTest : public ::testing::Test {
 protected:
  NodeFaultsTest() {
    options_.config = DefaultConfig();
    options_.config.model.path = dir_.path() + "/tiny.gguf";
    options_.config.store.data_dir = dir_.path() + "/store";
    options_.config.engine.threads = 2;
    testing::WriteFileOrDie(options_.config.model.path, testing::PoisonedTiny(kPoison).Finish());
    Start();
  }
  ~NodeFaultsTest() override { StopAll(); }

  void Start() {
    metrics_ = std::make_unique<Metrics>();
    node_ = std::make_unique<Node>(
        options_, SystemClock::Get(), metrics_.get(),
        [this](PackProgress* progress) -> absl::StatusOr<NodeParts> {
          EPIC_ASSIGN_OR_RETURN(NodeParts parts, LoadParts(options_.config, SystemClock::Get(), progress));
          store_ = parts.store.get();
          engine_ = parts.engine.get();
          return parts;
        });
    HttpOptions door;
    auto server = StartHttpDoor(door, node_->apis(), SystemClock::Get(), 1);
    ASSERT_OK(server);
    server_ = *std::move(server);
    door.door = HttpDoor::kAdmin;
    auto admin = StartHttpDoor(door, node_->apis(), SystemClock::Get(), 2);
    ASSERT_OK(admin);
    admin_ = *std::move(admin);
    ASSERT_OK(node_->Start());
  }
  void StopAll() {
    server_.reset();
    admin_.reset();
    node_.reset();
  }

  struct Reply {
    int status = 0;
    json body;
    bool may_retry = true;  // what clients that re-send by themselves are told
  };
  static Reply Call(const HttpServer& server, const std::string& method, const std::string& path,
                    const json& body = nullptr) {
    const auto answer =
        testing::Ask(server.port(), method, path, body.is_null() ? std::string() : body.dump());
    if (!answer.has_value()) return {};
    return {answer->status, json::parse(answer->body, nullptr, false),
            !answer->headers.contains("x-should-retry")};
  }
  static json ChatBody(const std::string& text, const std::vector<std::string>& contexts = {}) {
    const json message = {{"role", "user"}, {"content", text}};
    json body = {{"max_tokens", 6}, {"temperature", 0}, {"logprobs", true}};
    body["messages"] = json::array({message});
    body["context_ids"] = contexts;
    body["logit_bias"] = Bias(-100);  // no answer may come upon the poison by itself
    return body;
  }
  static json Bias(int bias) { return {{std::to_string(kPoison), bias}}; }
  Reply Chat(const json& body) const { return Call(*server_, "POST", "/v1/chat/completions", body); }
  Reply Create(const std::string& text) const {
    return Call(*server_, "POST", "/v1/contexts", {{"text", text}});
  }
  double Count(const std::string& series) {
    const std::string text = node_->apis().node->MetricsText();
    const size_t at = text.find("\n" + series + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size() + 2));
  }
  static void ExpectNotANumber(const Reply& reply, const std::string& says) {
    EXPECT_EQ(reply.status, 500) << reply.body;
    ASSERT_TRUE(reply.body.is_object() && reply.body.contains("error")) << reply.body;
    EXPECT_EQ(reply.body["error"]["code"], "internal_error");
    EXPECT_THAT(reply.body["error"]["message"].get<std::string>(), HasSubstr(says));
  }

  testing::TempDir dir_;
  NodeOptions options_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<Node> node_;
  std::unique_ptr<HttpServer> server_, admin_;
  KvStore* store_ = nullptr;
  Engine* engine_ = nullptr;
};

TEST_F(NodeFaultsTest, APromptWhoseOutputIsNoNumberIs500AndItsNeighboursAnswerAsAlone) {
  const Reply alone = Chat(ChatBody("hello world"));
  ASSERT_EQ(alone.status, 200) << alone.body;
  std::vector<Reply> clean(4), bad(4);
  std::vector<std::thread> clients;
  for (size_t i = 0; i < clean.size(); ++i) {
    clients.emplace_back([&, i] { clean[i] = Chat(ChatBody("hello world")); });
    clients.emplace_back([&, i] { bad[i] = Chat(ChatBody("hello Q world")); });
  }
  for (std::thread& client : clients) client.join();
  for (const Reply& reply : bad) {
    ExpectNotANumber(reply, "not a number");
    EXPECT_FALSE(reply.may_retry) << "the same weights would fail again";
  }
  for (const Reply& reply : clean) {
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body["choices"], alone.body["choices"]);  // text and log-probabilities
  }
  EXPECT_EQ(Count(R"(epic_not_finite_total{in="output"})"), 4);
  EXPECT_EQ(Call(*server_, "GET", "/health").status, 200);
}

TEST_F(NodeFaultsTest, AnAnswerThatRunsIntoItEndsTheStreamWithTheError) {
  json body = ChatBody("hello world");
  body["logit_bias"] = Bias(100);
  body["stream"] = true;
  const auto answer = testing::Ask(server_->port(), "POST", "/v1/chat/completions", body.dump());
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 200);
  EXPECT_THAT(answer->body, HasSubstr(R"("content":"Q")"));
  EXPECT_THAT(answer->body, HasSubstr(R"(data: {"error":{)"));
  EXPECT_THAT(answer->body, HasSubstr("not a number"));
  EXPECT_THAT(answer->body, ::testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_THAT(answer->body, ::testing::Not(HasSubstr(R"("finish_reason":")")));
  body["stream"] = false;
  ExpectNotANumber(Chat(body), "not a number");
}

TEST_F(NodeFaultsTest, ACompileOfNoNumbersIsNotStoredAndItsContextFails) {
  const double before = Count("epic_store_objects_in_memory");
  const Reply failed = Create("the world with a Q in it");
  EXPECT_EQ(failed.status, 400) << failed.body;
  EXPECT_EQ(failed.body["error"]["code"], "context_failed");
  EXPECT_THAT(failed.body["error"]["message"].get<std::string>(), HasSubstr("not numbers"));
  EXPECT_EQ(Count("epic_store_objects_in_memory"), before);
  EXPECT_EQ(Count("epic_store_reservations"), 0);
  EXPECT_EQ(Count(R"(epic_not_finite_total{in="compile"})"), 1);
  const Reply list = Call(*server_, "GET", "/v1/contexts?state=failed");
  ASSERT_EQ(list.body["data"].size(), 1u) << list.body;
  EXPECT_EQ(Create("the world").status, 201);
}

TEST_F(NodeFaultsTest, AStoredObjectOfNoNumbersFailsOneRequestAndIsCompiledAnewForTheNext) {
  const Reply first = Create("that is the world of hello and the list");
  const Reply second = Create("to the world in the list");
  ASSERT_EQ(first.status, 201);
  const std::string id = first.body["id"], other = second.body["id"];
  const json body = ChatBody("hello", {other, id});
  const Reply sound = Chat(body);
  ASSERT_EQ(sound.status, 200) << sound.body;
  ASSERT_OK_AND_ASSIGN(const CacheId parsed, CacheId::Parse(id));
  const ObjectKey key{parsed, VariantOf(*engine_, CompilePrefixKind::kNone, {})};
  ASSERT_OK(Poison(store_, key, engine_->LayoutOf(first.body["tokens"].get<uint32_t>(), 0)));
  json legolink = body;
  legolink["linking"] = {{"strategy", "legolink-2"}};

  const double compiled = Count("epic_compile_tokens_total");
  const Reply failed = Chat(legolink);
  ExpectNotANumber(failed, "1 parts of this prompt were not numbers and have been dropped");
  EXPECT_TRUE(failed.may_retry);
  EXPECT_EQ(Count(R"(epic_not_finite_total{in="object"})"), 1);
  EXPECT_EQ(Count("epic_store_leased_objects"), 0);

  EXPECT_EQ(Chat(legolink).status, 200);
  EXPECT_EQ(Count("epic_compile_tokens_total"), compiled + first.body["tokens"].get<double>());
  EXPECT_EQ(Chat(body).body["choices"], sound.body["choices"]);
  EXPECT_EQ(Count(R"(epic_not_finite_total{in="object"})"), 1);
}

TEST_F(NodeFaultsTest, QualityThroughTheAdminDoorRefusesAndFailsAsAChatDoes) {
  const std::string id = Create("that is the world of hello and the list").body["id"];
  const auto compare = [&](json body) {
    // One token: the greedy answer heeds no bias, and its second might stand behind the poison.
    if (body.contains("max_tokens")) body["max_tokens"] = 1;
    return Call(*admin_, "POST", "/debug/quality", body);
  };
  const Reply good = compare(ChatBody("hello", {id}));
  EXPECT_EQ(good.status, 200) << good.body;
  EXPECT_GE(good.body["kl_mean"], 0);
  ExpectNotANumber(compare(ChatBody("hello Q", {id})), "not a number");
  EXPECT_EQ(compare(ChatBody("hello", {"ctx_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"})).status, 404);
  EXPECT_EQ(compare({{"messages", 5}}).status, 400);
  EXPECT_EQ(compare(json::object()).status, 400);
  json strategy = ChatBody("hello");
  strategy["linking"] = {{"strategy", "bogus"}};
  EXPECT_EQ(compare(strategy).status, 400);
  EXPECT_EQ(Call(*server_, "POST", "/debug/quality", ChatBody("hello")).status, 404)
      << "not on the public door";
  EXPECT_EQ(compare(ChatBody("hello", {id})).status, 200);
}

// Blocks the engine's thread at its first token until it is told to go on.
class Blocker final : public LinkSink {
 public:
  void OnLinked(const LinkStats&) override {}
  bool OnToken(const GeneratedToken&) override {
    MutexLock lock(&mu_);
    blocked_ = true;
    changed_.SignalAll();
    while (!open_) changed_.Wait(&mu_);
    return true;
  }
  void OnFinish(uint32_t, FinishReason) override {}
  void OnDone(const absl::Status&) override {}
  void AwaitBlocked() {
    MutexLock lock(&mu_);
    while (!blocked_) changed_.Wait(&mu_);
  }
  void Open() {
    MutexLock lock(&mu_);
    open_ = true;
    changed_.SignalAll();
  }
  // Opens at the end of a scope, so that a test that fails ends too.
  struct Opener {
    explicit Opener(Blocker* b) : blocker(b) {}
    ~Opener() { blocker->Open(); }
    Blocker* const blocker;
  };

 private:
  Mutex mu_;
  CondVar changed_;
  bool blocked_ ABSL_GUARDED_BY(mu_) = false;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

TEST_F(NodeFaultsTest, HealthIs503WithACauseWhileTheEngineHangsAnd200WhenItMovesAgain) {
  StopAll();
  options_.config.engine.stuck_after_ms = 200;
  Start();
  const auto blocker = std::make_shared<Blocker>();
  const Blocker::Opener opener(blocker.get());
  LinkRequest request;
  request.pieces = {{.tokens = {5, 6, 7}}};
  request.max_tokens = 2;
  ASSERT_OK(engine_->SubmitLink(request, blocker));
  blocker->AwaitBlocked();
  const auto health_becomes = [&](int status) {
    const int64_t begin_ns = SystemClock::Get()->SteadyNs();
    Reply reply;
    do {
      reply = Call(*server_, "GET", "/health");
    } while (reply.status != status && SystemClock::Get()->SteadyNs() - begin_ns < 10'000'000'000);
    return reply;
  };
  const Reply stuck = health_becomes(503);
  ASSERT_EQ(stuck.status, 503) << stuck.body;
  EXPECT_EQ(stuck.body["status"], "stuck");
  ASSERT_EQ(stuck.body["causes"].size(), 1u);
  EXPECT_THAT(stuck.body["causes"][0].get<std::string>(), HasSubstr("the engine has stood still for"));
  EXPECT_EQ(Call(*admin_, "GET", "/ready").status, 503);
  EXPECT_EQ(Call(*admin_, "GET", "/live").status, 200);
  EXPECT_EQ(Call(*server_, "GET", "/v1/models").status, 200) << "what needs no engine is answered";
  blocker->Open();
  EXPECT_EQ(health_becomes(200).body["status"], "ok");
  EXPECT_EQ(Chat(ChatBody("hello")).status, 200);
}

TEST_F(NodeFaultsTest, AServingNodeDoesNotCareWhatBecomesOfItsModelFile) {
  const std::string id = Create("that is the world of hello").body["id"];
  const json body = ChatBody("hello world", {id});
  const Reply before = Chat(body);
  ASSERT_EQ(before.status, 200) << before.body;
  const std::string path = options_.config.model.path;
  const auto same = [&] { return Chat(body).body["choices"] == before.body["choices"]; };
  testing::WriteFileOrDie(path, std::string(std::filesystem::file_size(path), '\xff'));
  EXPECT_TRUE(same()) << "written over";
  std::filesystem::resize_file(path, 0);
  EXPECT_TRUE(same()) << "cut";
  EXPECT_EQ(Create("another text of the world").status, 201);
  std::filesystem::remove(path);
  EXPECT_TRUE(same()) << "removed";
}

TEST_F(NodeFaultsTest, AnotherModelInTheSamePlaceHasAnotherIdentityAndContextsKeepTheirs) {
  const Reply made = Create("that is the world of hello");
  const std::string id = made.body["id"];
  const std::string identity = Call(*server_, "GET", "/v1/models").body["data"][0]["identity"];
  StopAll();
  testing::WriteFileOrDie(options_.config.model.path, testing::PoisonedTiny(kPoison + 1).Finish());
  Start();
  const json models = Call(*server_, "GET", "/v1/models").body["data"];
  EXPECT_NE(models[0]["identity"], identity);
  const Reply mismatch = Chat(ChatBody("hello", {id}));
  EXPECT_EQ(mismatch.status, 409) << mismatch.body;
  EXPECT_EQ(mismatch.body["error"]["code"], "context_model_mismatch");
  EXPECT_EQ(Call(*server_, "GET", "/v1/contexts/" + id).status, 200);
  const Reply again = Create("that is the world of hello");
  EXPECT_EQ(again.status, 201);
  EXPECT_NE(again.body["id"], id);
  EXPECT_EQ(Chat(ChatBody("hello", {again.body["id"].get<std::string>()})).status, 200);
}

}  // namespace
}  // namespace epic
