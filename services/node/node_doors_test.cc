// One node behind its two doors: what both must say alike of the contexts that a request names.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/http/http_server.h"
#include "common/rpc/grpc_status.h"
#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "epic/v1/chat.grpc.pb.h"
#include "epic/v1/contexts.grpc.pb.h"
#include "services/node/node.h"
#include "services/router/http/router_site.h"
#include "services/router/http/testing/raw_client.h"
#include "services/router/rpc/grpc_door.h"
#include "services/worker_api/testing/fake_engine.h"
#include "services/worker_api/testing/fake_text.h"
#include "services/worker_api/testing/faulty_kv_store.h"

namespace epic {
namespace {

using ::epic::testing::ByteTokenizer;
using ::epic::testing::ChatMlTemplate;
using ::epic::testing::FakeEngine;
using ::epic::testing::FaultyKvStore;
using Json = nlohmann::json;

// Code and param of an error.
using Fault = std::pair<std::string, std::string>;

Fault FaultOf(const absl::Status& status) {
  if (status.ok()) return {"ok", ""};
  return {std::string(InfoOf(CodeOf(status)).name), ParamOf(status)};
}

Json Part(const std::string& key, const std::string& value) { return {{"type", "context"}, {key, value}}; }

class NodeDoorsTest : public ::testing::Test {
 protected:
  // deadline_ms: of requests at the HTTP door; 0: none.
  void Start(int64_t deadline_ms = 0) {
    ConfigSources sources;
    sources.environment = {{"HOME", "/nowhere"}};
    auto config = LoadConfig(sources);
    ASSERT_OK(config);
    NodeOptions options;
    options.config = *std::move(config);
    node_ = std::make_unique<Node>(options, SystemClock::Get(), &metrics_, [this](PackProgress*) {
      auto engine = std::make_unique<FakeEngine>();
      engine->set_answer({'h', 'i'});
      engine_ = engine.get();
      auto store = std::make_unique<FaultyKvStore>(SystemClock::Get());
      store_ = store.get();
      NodeParts parts;
      parts.alias = "m";
      parts.tokenizer = std::make_unique<ByteTokenizer>();
      parts.chat_template = std::make_unique<ChatMlTemplate>();
      parts.store = std::move(store);
      parts.engine = std::move(engine);
      return absl::StatusOr<NodeParts>(std::move(parts));
    });
    ASSERT_OK(node_->Start());
    HttpOptions http;
    http.request_deadline_ms = deadline_ms;
    ASSERT_OK_AND_ASSIGN(http_, StartHttpDoor(http, node_->apis(), SystemClock::Get(), 1));
    GrpcDoorOptions grpc;
    grpc.address = "127.0.0.1:0";
    ASSERT_OK_AND_ASSIGN(grpc_, GrpcDoor::Start(grpc, node_->apis(), SystemClock::Get()));
    channel_ =
        grpc::CreateChannel("127.0.0.1:" + std::to_string(grpc_->port()), grpc::InsecureChannelCredentials());
  }
  // The engine runs by itself from now on.
  void RunEngine() {
    loop_ = std::thread([this] {
      while (!stop_) {
        if (!engine_->Step()) std::this_thread::yield();
      }
    });
  }
  ~NodeDoorsTest() override {
    stop_ = true;
    if (loop_.joinable()) loop_.join();
    if (http_ != nullptr) http_->Stop();
    if (grpc_ != nullptr) grpc_->Stop();
  }

  Json Http(const std::string& method, const std::string& path, const Json& body = {}) {
    const auto answer = testing::Ask(http_->port(), method, path, body.is_null() ? "" : body.dump());
    return answer.has_value() ? Json::parse(answer->body, nullptr, false) : Json();
  }
  std::string Create(const std::string& text, const Json& more = Json::object()) {
    Json body = {{"text", text}};
    body.update(more);
    return Http("POST", "/v1/contexts", body).value("id", "none");
  }
  Fault HttpFault(const Json& answer) {
    if (!answer.contains("error")) return {"ok", ""};
    const Json& error = answer["error"];
    return {error["code"], error["param"].is_null() ? "" : error["param"]};
  }
  absl::Status GrpcChat(const v1::ChatRequest& request, v1::Usage* usage = nullptr) {
    grpc::ClientContext context;
    auto reader = v1::ChatService::NewStub(channel_)->Complete(&context, request);
    v1::ChatEvent event;
    while (reader->Read(&event)) {
      if (usage != nullptr && event.has_done()) *usage = event.done().usage();
    }
    return FromGrpcStatus(reader->Finish());
  }
  // The same chat at both doors: context_ids, then messages[0].content as JSON parts.
  void ExpectFault(const std::vector<std::string>& context_ids, const Json& content, const Json& linking,
                   const Fault& fault) {
    const Json body = {{"context_ids", context_ids},
                       {"messages", {{{"role", "user"}, {"content", content}}}},
                       {"linking", linking}};
    EXPECT_EQ(HttpFault(Http("POST", "/v1/chat/completions", body)), fault) << body;
    v1::ChatRequest request;
    for (const std::string& id : context_ids) request.add_context_ids(id);
    request.add_messages()->set_role("user");
    for (const Json& part : content) {
      v1::ContentPart& to = *request.mutable_messages(0)->add_content();
      if (part.contains("text")) to.set_text(part["text"]);
      if (part.contains("id")) to.set_context_id(part["id"]);
      if (part.contains("name")) to.set_context_name(part["name"]);
    }
    if (linking.contains("on_missing"))
      request.mutable_linking()->set_on_missing(v1::Linking::ON_MISSING_ERROR);
    EXPECT_EQ(FaultOf(GrpcChat(request)), fault) << body;
  }

  Metrics metrics_;
  FakeEngine* engine_ = nullptr;
  FaultyKvStore* store_ = nullptr;
  std::unique_ptr<Node> node_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<GrpcDoor> grpc_;
  std::shared_ptr<grpc::Channel> channel_;
  std::atomic<bool> stop_ = false;
  std::thread loop_;
};

TEST_F(NodeDoorsTest, BothDoorsNameThePlaceOfAContextThatCannotBeUsed) {
  Start();
  RunEngine();
  const std::string good = Create("good"), deleted = Create("deleted"), missing = Create("missing");
  EXPECT_EQ(Http("DELETE", "/v1/contexts/" + deleted)["deleted"], true);
  const Json text = {{"type", "text"}, {"text", "?"}}, none = Json::object();
  const std::string unknown = "ctx_" + std::string(32, 'a');
  ExpectFault({good, unknown}, Json::array({text}), none, {"context_not_found", "context_ids[1]"});
  ExpectFault({good, "nonsense"}, Json::array({text}), none, {"context_not_found", "context_ids[1]"});
  ExpectFault({good}, {text, Part("id", deleted)}, none, {"context_deleted", "messages[0].content[1].id"});
  ExpectFault({}, {text, Part("name", "nobody")}, none, {"context_not_found", "messages[0].content[1].name"});
  ObjectVariant variant;
  variant.dtype = engine_->kv_dtype();
  variant.compute = engine_->compute();
  ASSERT_OK(store_->DropObject("default", {*CacheId::Parse(missing), variant}));
  ExpectFault({good, good, missing}, Json::array({text}), {{"on_missing", "error"}},
              {"context_object_missing", "context_ids[2]"});
  engine_->set_compile_status(absl::InternalError("NaN"));
  ExpectFault({good}, Json::array({Part("id", missing)}), none,
              {"context_failed", "messages[0].content[0].id"});
}

TEST_F(NodeDoorsTest, AContextThatStillCompilesAtTheDeadlineIsNamed) {
  Start(/*deadline_ms=*/300);
  const std::string slow = Create("slow", {{"wait", 0}});  // the engine does not run
  const Json body = {{"messages", {{{"role", "user"}, {"content", {Part("id", slow)}}}}}};
  EXPECT_EQ(HttpFault(Http("POST", "/v1/chat/completions", body)),
            Fault("context_compiling", "messages[0].content[0].id"));
  RunEngine();
}

TEST_F(NodeDoorsTest, AListGoesOnAfterAContextThatWasDeletedMeanwhile) {
  Start();
  RunEngine();
  std::vector<std::string> left;
  for (int i = 0; i < 5; ++i) left.push_back(Create("text " + std::to_string(i)));
  std::vector<std::string> seen;
  std::string path = "/v1/contexts?limit=2";
  for (Json page = Http("GET", path); seen.size() < 5; page = Http("GET", path + "&after=" + seen.back())) {
    ASSERT_TRUE(page.contains("data")) << page;
    for (const Json& record : page["data"]) seen.push_back(record["id"]);
    EXPECT_EQ(page["has_more"], seen.size() < 5);
    Http("DELETE", "/v1/contexts/" + seen.back());
  }
  std::sort(seen.begin(), seen.end());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(seen, left);

  const auto stub = v1::ContextService::NewStub(channel_);
  v1::ListContextsRequest list;
  v1::ListContextsResponse page;
  grpc::ClientContext first, second, third;
  ASSERT_TRUE(stub->List(&first, list, &page).ok());
  ASSERT_EQ(page.contexts_size(), 2);
  const std::string newest = page.contexts(0).id(), oldest = page.contexts(1).id();
  Http("DELETE", "/v1/contexts/" + newest);
  list.set_after(newest);
  ASSERT_TRUE(stub->List(&second, list, &page).ok());
  ASSERT_EQ(page.contexts_size(), 1);
  EXPECT_EQ(page.contexts(0).id(), oldest);

  const std::string never = "ctx_" + std::string(32, 'a');
  EXPECT_EQ(HttpFault(Http("GET", "/v1/contexts?after=" + never)), Fault("context_not_found", "after"));
  EXPECT_EQ(HttpFault(Http("GET", "/v1/contexts?after=5")), Fault("invalid_request", "after"));
  list.set_after(never);
  EXPECT_EQ(FaultOf(FromGrpcStatus(stub->List(&third, list, &page))), Fault("context_not_found", "after"));
}

TEST_F(NodeDoorsTest, BothDoorsReadTheVariantThatACreateMadeBehindTheSameSystemPrefix) {
  Start();
  RunEngine();
  const Json prefix = {{"type", "system"}, {"text", "Be brief."}};
  const std::string id = Create(std::string(40, 'x'), {{"compile_prefix", prefix}});
  const uint64_t compiles = engine_->compiles_finished();
  const Json body = {
      {"context_ids", {id}},
      {"messages", {{{"role", "user"}, {"content", "?"}}}},
      {"linking", {{"strategy", "legolink-0"}, {"compile_prefix", prefix}, {"on_missing", "error"}}}};
  const Json answer = Http("POST", "/v1/chat/completions", body);
  ASSERT_TRUE(answer.contains("usage")) << answer;
  EXPECT_EQ(answer["usage"]["recomputed_tokens"], 0);
  v1::ChatRequest request;
  request.add_context_ids(id);
  request.add_messages()->set_role("user");
  request.mutable_messages(0)->add_content()->set_text("?");
  v1::Linking& linking = *request.mutable_linking();
  linking.set_strategy("legolink-0");
  linking.mutable_prefix()->set_type(v1::COMPILE_PREFIX_TYPE_SYSTEM);
  linking.mutable_prefix()->set_text("Be brief.");
  linking.set_on_missing(v1::Linking::ON_MISSING_ERROR);
  v1::Usage usage;
  ASSERT_OK(GrpcChat(request, &usage));
  EXPECT_GE(usage.cached_tokens(), 40u);
  EXPECT_EQ(usage.recomputed_tokens(), 0u);
  EXPECT_LE(engine_->compiles_finished(), compiles + 1);  // of the template's head
  Json alone = body;
  alone["linking"]["compile_prefix"].erase("text");
  EXPECT_EQ(HttpFault(Http("POST", "/v1/chat/completions", alone)),
            Fault("invalid_request", "linking.compile_prefix"));
}

}  // namespace
}  // namespace epic
