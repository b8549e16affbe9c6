#include "services/router/rpc/grpc_door.h"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "common/base/mutex.h"
#include "common/rpc/grpc_status.h"
#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "epic/v1/chat.grpc.pb.h"
#include "epic/v1/contexts.grpc.pb.h"
#include "epic/v1/models.grpc.pb.h"

namespace epic {
namespace {

constexpr int kPatienceSeconds = 20;

class FakeContexts final : public ContextApi {
 public:
  void Create(const RequestScope& scope, CreateContextRequest request, CreateDone done) override {
    last_scope = scope;
    if (request.text == "wait") {
      waiting.set_value({scope.cancel, std::move(done)});
      return;
    }
    CreateContextResult result;
    result.record.model = request.model.value_or("default-model");
    done(result);
  }
  absl::StatusOr<ContextRecord> Get(const RequestScope&, const std::string& id) override {
    if (id == "block") {
      blocked.set_value();
      unblock.get_future().get();
    }
    return Error(ErrorCode::kContextDeleted, id + " was deleted", "id");
  }
  absl::StatusOr<ContextPage> List(const RequestScope&, const ListContextsRequest& request) override {
    ContextPage page;
    page.records.resize(static_cast<size_t>(request.limit.value_or(20)));
    page.has_more = true;
    return page;
  }
  absl::StatusOr<ContextRecord> Patch(const RequestScope&, const std::string&,
                                      const PatchContextRequest& patch) override {
    ContextRecord record;
    record.name = patch.name.value_or("");
    return record;
  }
  absl::Status Delete(const RequestScope&, const std::string&) override { return absl::OkStatus(); }
  void Erase(const RequestScope&, const std::string&, EraseDone done) override {
    done(std::vector<std::string>{"b"});
  }

  RequestScope last_scope;
  std::promise<std::pair<CancelToken, CreateDone>> waiting;
  std::promise<void> blocked, unblock;  // of Get("block")
};

// What the door's observer heard.
class Events {
 public:
  RpcObserver Observer() {
    return [this](const RpcEvent& event) {
      MutexLock lock(&mu_);
      events_.push_back(event);
      changed_.SignalAll();
    };
  }
  // The last of `count` events.
  RpcEvent Wait(size_t count) {
    MutexLock lock(&mu_);
    bool in_time = true;
    while (events_.size() < count && in_time) in_time = changed_.WaitForMs(&mu_, kPatienceSeconds * 1000);
    EXPECT_EQ(events_.size(), count);
    return events_.empty() ? RpcEvent{} : events_.back();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<RpcEvent> events_ ABSL_GUARDED_BY(mu_);
};

// Answers every request with `deltas` pieces of text, or hands the sink to the test.
class FakeChat final : public ChatApi {
 public:
  void Complete(const RequestScope& scope, ChatRequest request, std::shared_ptr<ChatSink> sink) override {
    if (hand_over) {
      handed.set_value({scope.cancel, sink});
      return;
    }
    if (request.messages.empty()) {
      sink->OnDone(Error(ErrorCode::kInvalidRequest, "messages is empty", "messages"), {}, {});
      return;
    }
    sink->OnStart({.id = "chatcmpl-1", .linking = "legolink-16", .planned_recomputed = 128});
    for (int i = 0; i < deltas; ++i) sink->OnDelta({.choice = 0, .text = std::to_string(i) + " "});
    sink->OnFinish(0, "stop");
    sink->OnDone(absl::OkStatus(),
                 {.prompt_tokens = 10, .cached_tokens = 7, .recomputed_tokens = 2, .fresh_tokens = 1},
                 {.ttft_ms = 3});
  }
  int deltas = 100;
  bool hand_over = false;
  std::promise<std::pair<CancelToken, std::shared_ptr<ChatSink>>> handed;
};

class FakeModels final : public ModelApi {
 public:
  std::vector<ModelInfo> List() const override { return {{.id = "m", .max_model_len = 8192}}; }
  absl::StatusOr<ModelInfo> Get(const std::string& id) const override {
    return Error(ErrorCode::kModelNotFound, id + " is not served");
  }
  absl::StatusOr<std::vector<TokenPiece>> Tokenize(const std::optional<std::string>&,
                                                   const std::string& content) const override {
    return std::vector<TokenPiece>{{1, content}};
  }
  absl::StatusOr<std::string> Detokenize(const std::optional<std::string>&,
                                         const std::vector<int64_t>& tokens) const override {
    return std::string(tokens.size(), '\xff');
  }
  absl::StatusOr<std::string> ApplyTemplate(const std::optional<std::string>&,
                                            const std::vector<ChatMessage>& messages) const override {
    return messages.at(0).role;
  }
};

class GrpcDoorTest : public ::testing::Test {
 protected:
  void Start(GrpcDoorOptions options = {}, const Clock* clock = SystemClock::Get()) {
    options.address = "127.0.0.1:0";
    auto door = GrpcDoor::Start(options, {&contexts_, &chat_, &models_, nullptr}, clock, events_.Observer());
    ASSERT_TRUE(door.ok()) << door.status().ToString();
    door_ = std::move(door).value();
    channel_ =
        grpc::CreateChannel("127.0.0.1:" + std::to_string(door_->port()), grpc::InsecureChannelCredentials());
  }
  static void Bound(grpc::ClientContext* context) {
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(kPatienceSeconds));
  }

  FakeContexts contexts_;
  FakeChat chat_;
  FakeModels models_;
  Events events_;
  std::unique_ptr<GrpcDoor> door_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(GrpcDoorTest, CreateCarriesTheRequestIdThereAndBack) {
  Start();
  grpc::ClientContext context;
  Bound(&context);
  context.AddMetadata("x-request-id", "abc-1");
  v1::CreateContextRequest request;
  request.set_text("hello");
  v1::CreateContextResponse response;
  const grpc::Status status = v1::ContextService::NewStub(channel_)->Create(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.outcome(), v1::CreateContextResponse::OUTCOME_CREATED);
  EXPECT_EQ(contexts_.last_scope.request_id, "abc-1");
  EXPECT_GT(contexts_.last_scope.deadline_steady_ns, contexts_.last_scope.received_steady_ns);
  EXPECT_EQ(context.GetServerInitialMetadata().find("x-request-id")->second, "abc-1");
}

TEST_F(GrpcDoorTest, AnUnsafeRequestIdIsReplaced) {
  Start();
  grpc::ClientContext context;
  Bound(&context);
  context.AddMetadata("x-request-id", "a b\"c");
  v1::CreateContextRequest request;
  request.set_text("hello");
  v1::CreateContextResponse response;
  ASSERT_TRUE(v1::ContextService::NewStub(channel_)->Create(&context, request, &response).ok());
  EXPECT_TRUE(contexts_.last_scope.request_id.starts_with("req_"));
}

TEST_F(GrpcDoorTest, ErrorsCarryOurCodeAndTheField) {
  Start();
  grpc::ClientContext context;
  Bound(&context);
  v1::GetContextRequest request;
  request.set_id("ctx_x");
  v1::Context response;
  const absl::Status status =
      FromGrpcStatus(v1::ContextService::NewStub(channel_)->Get(&context, request, &response));
  EXPECT_EQ(CodeOf(status), ErrorCode::kContextDeleted);
  EXPECT_EQ(ParamOf(status), "id");
}

TEST_F(GrpcDoorTest, ListUpdateAndDeleteAnswer) {
  Start();
  const auto stub = v1::ContextService::NewStub(channel_);
  grpc::ClientContext list_context, update_context, delete_context;
  v1::ListContextsRequest list;
  list.set_limit(3);
  v1::ListContextsResponse page;
  ASSERT_TRUE(stub->List(&list_context, list, &page).ok());
  EXPECT_EQ(page.contexts_size(), 3);
  EXPECT_TRUE(page.has_more());
  v1::UpdateContextRequest update;
  update.mutable_update_mask()->add_paths("name");
  update.set_name("manual");
  v1::Context record;
  ASSERT_TRUE(stub->Update(&update_context, update, &record).ok());
  EXPECT_EQ(record.name(), "manual");
  v1::DeleteContextRequest erase;
  erase.set_id("ctx_x");
  v1::DeleteContextResponse erased;
  ASSERT_TRUE(stub->Delete(&delete_context, erase, &erased).ok());
  EXPECT_TRUE(erased.deleted());
  EXPECT_EQ(erased.pending_size(), 0);
  grpc::ClientContext wait_context, odd_context;
  erase.set_erase(v1::ERASE_MODE_WAIT);
  ASSERT_TRUE(stub->Delete(&wait_context, erase, &erased).ok());
  EXPECT_TRUE(erased.deleted());
  ASSERT_EQ(erased.pending_size(), 1);
  EXPECT_EQ(erased.pending(0), "b");
  erase.set_erase(static_cast<v1::EraseMode>(9));
  EXPECT_EQ(stub->Delete(&odd_context, erase, &erased).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(GrpcDoorTest, AClientThatGivesUpACreateCancelsIt) {
  Start();
  grpc::ClientContext context;
  v1::CreateContextRequest request;
  request.set_text("wait");
  std::thread client([&] {
    v1::CreateContextResponse response;
    EXPECT_EQ(v1::ContextService::NewStub(channel_)->Create(&context, request, &response).error_code(),
              grpc::StatusCode::CANCELLED);
  });
  auto [token, done] = contexts_.waiting.get_future().get();
  EXPECT_FALSE(token.cancelled());
  context.TryCancel();
  client.join();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
  while (!token.cancelled() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  EXPECT_TRUE(token.cancelled());
  done(absl::CancelledError("the client is gone"));
  EXPECT_EQ(events_.Wait(1).code, "client_gone");
}

TEST_F(GrpcDoorTest, AChatStreamsStartDeltasFinishAndDoneInOrder) {
  Start();
  grpc::ClientContext context;
  Bound(&context);
  v1::ChatRequest request;
  request.add_messages()->set_role("user");
  auto reader = v1::ChatService::NewStub(channel_)->Complete(&context, request);
  std::string text;
  std::vector<v1::ChatEvent::EventCase> kinds;
  v1::ChatEvent event;
  while (reader->Read(&event)) {
    text += event.delta().text();
    if (kinds.empty() || kinds.back() != event.event_case()) kinds.push_back(event.event_case());
  }
  ASSERT_TRUE(reader->Finish().ok());
  EXPECT_EQ(kinds, (std::vector{v1::ChatEvent::kStart, v1::ChatEvent::kDelta, v1::ChatEvent::kFinish,
                                v1::ChatEvent::kDone}));
  EXPECT_TRUE(text.starts_with("0 1 2 "));
  EXPECT_TRUE(text.ends_with("98 99 "));
  EXPECT_EQ(event.done().usage().cached_tokens(), 7u);
}

TEST_F(GrpcDoorTest, ARefusalIsTheStatusWithoutAnyEvent) {
  Start();
  grpc::ClientContext context;
  Bound(&context);
  auto reader = v1::ChatService::NewStub(channel_)->Complete(&context, v1::ChatRequest());
  v1::ChatEvent event;
  EXPECT_FALSE(reader->Read(&event));
  const absl::Status status = FromGrpcStatus(reader->Finish());
  EXPECT_EQ(CodeOf(status), ErrorCode::kInvalidRequest);
  EXPECT_EQ(ParamOf(status), "messages");
}

TEST_F(GrpcDoorTest, AClientThatGoesCancelsItsChat) {
  chat_.hand_over = true;
  Start();
  CancelToken token;
  std::shared_ptr<ChatSink> sink;
  {
    grpc::ClientContext context;
    auto reader = v1::ChatService::NewStub(channel_)->Complete(&context, v1::ChatRequest());
    std::tie(token, sink) = chat_.handed.get_future().get();
    sink->OnStart({.id = "x"});
    v1::ChatEvent event;
    ASSERT_TRUE(reader->Read(&event));
    context.TryCancel();
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
  while (!token.cancelled() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  EXPECT_TRUE(token.cancelled());
  sink->OnDone(absl::CancelledError("gone"), {}, {});
  const RpcEvent event = events_.Wait(1);
  EXPECT_EQ(event.call, "chat");
  EXPECT_EQ(event.code, "client_gone");
}

TEST_F(GrpcDoorTest, AClientThatDoesNotReadIsCutWithBoundedMemory) {
  chat_.hand_over = true;
  Start({.max_stream_buffer_bytes = 64 << 10});
  grpc::ClientContext context;
  Bound(&context);
  auto reader = v1::ChatService::NewStub(channel_)->Complete(&context, v1::ChatRequest());
  auto [token, sink] = chat_.handed.get_future().get();
  sink->OnStart({.id = "x"});
  bool accepted = true;
  const std::string piece(16 << 10, 'x');
  for (int i = 0; i < 10'000 && accepted; ++i) accepted = sink->OnDelta({.choice = 0, .text = piece});
  EXPECT_FALSE(accepted);
  EXPECT_TRUE(token.cancelled());
  sink->OnDone(absl::CancelledError("too slow"), {}, {});
  v1::ChatEvent event;
  while (reader->Read(&event)) {
  }
  const grpc::Status end = reader->Finish();
  EXPECT_EQ(CodeOf(FromGrpcStatus(end)), ErrorCode::kClientGone);
  EXPECT_FALSE(end.error_details().empty()) << "every failed call carries our code";
  EXPECT_EQ(events_.Wait(1).code, "client_gone");
}

TEST_F(GrpcDoorTest, ModelsTokenizeAndTemplatesAnswer) {
  Start();
  const auto stub = v1::ModelService::NewStub(channel_);
  grpc::ClientContext a, b, c, d, e;
  v1::ListModelsResponse models;
  ASSERT_TRUE(stub->List(&a, {}, &models).ok());
  EXPECT_EQ(models.models(0).max_model_len(), 8192u);
  v1::GetModelRequest get;
  get.set_id("nope");
  v1::Model model;
  EXPECT_EQ(CodeOf(FromGrpcStatus(stub->Get(&b, get, &model))), ErrorCode::kModelNotFound);
  v1::TokenizeRequest tokenize;
  tokenize.set_content("hi");
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(stub->Tokenize(&c, tokenize, &tokens).ok());
  EXPECT_EQ(tokens.tokens(0).piece(), "hi");
  v1::DetokenizeRequest detokenize;
  detokenize.add_tokens(5);
  v1::DetokenizeResponse text;
  ASSERT_TRUE(stub->Detokenize(&d, detokenize, &text).ok());
  EXPECT_EQ(text.content(), "\xff");
  v1::ApplyTemplateRequest apply;
  apply.add_messages()->set_role("user");
  v1::ApplyTemplateResponse prompt;
  ASSERT_TRUE(stub->ApplyTemplate(&e, apply, &prompt).ok());
  EXPECT_EQ(prompt.prompt(), "user");
}

TEST_F(GrpcDoorTest, EveryCallIsReportedWhenItIsOver) {
  Start();
  grpc::ClientContext create_context, get_context, chat_context, refused_context, list_context;
  create_context.AddMetadata("x-request-id", "abc-1");
  v1::CreateContextRequest create;
  create.set_text("hello");
  v1::CreateContextResponse created;
  const auto contexts = v1::ContextService::NewStub(channel_);
  ASSERT_TRUE(contexts->Create(&create_context, create, &created).ok());
  RpcEvent event = events_.Wait(1);
  EXPECT_EQ(event.call, "create_context");
  EXPECT_EQ(event.code, "ok");
  EXPECT_EQ(event.request_id, "abc-1");
  EXPECT_GE(event.duration_us, 0);
  v1::Context record;
  EXPECT_FALSE(contexts->Get(&get_context, {}, &record).ok());
  event = events_.Wait(2);
  EXPECT_EQ(event.call, "get_context");
  EXPECT_EQ(event.code, "context_deleted");
  EXPECT_TRUE(event.request_id.starts_with("req_"));
  const auto chat = v1::ChatService::NewStub(channel_);
  v1::ChatRequest request;
  request.add_messages()->set_role("user");
  v1::ChatEvent piece;
  auto reader = chat->Complete(&chat_context, request);
  while (reader->Read(&piece)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  event = events_.Wait(3);
  EXPECT_EQ(event.call, "chat");
  EXPECT_EQ(event.code, "ok");
  reader = chat->Complete(&refused_context, {});
  EXPECT_FALSE(reader->Finish().ok());
  EXPECT_EQ(events_.Wait(4).code, "invalid_request");
  v1::ListModelsResponse models;
  ASSERT_TRUE(v1::ModelService::NewStub(channel_)->List(&list_context, {}, &models).ok());
  EXPECT_EQ(events_.Wait(5).call, "list_models");
}

TEST_F(GrpcDoorTest, ACallPastItsDeadlineIsReportedAsSuchNotAsAClientThatWent) {
  ManualClock clock;
  Start({}, &clock);
  grpc::ClientContext context;
  Bound(&context);
  v1::CreateContextRequest request;
  request.set_text("wait");
  std::thread client([&] {
    v1::CreateContextResponse response;
    v1::ContextService::NewStub(channel_)->Create(&context, request, &response);
  });
  auto [token, done] = contexts_.waiting.get_future().get();
  clock.AdvanceMs(kPatienceSeconds * 1000);
  context.TryCancel();  // as a client does when its own timer fires
  client.join();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
  while (!token.cancelled() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  done(CreateContextResult());  // too late
  EXPECT_EQ(events_.Wait(1).code, "deadline_exceeded");
  door_.reset();  // before its clock
}

TEST_F(GrpcDoorTest, CallsThatBlockLeaveStreamsAloneAndAreBounded) {
  Start({.worker_threads = 1, .worker_queue = 1});
  const auto contexts = v1::ContextService::NewStub(channel_);
  v1::GetContextRequest request;
  request.set_id("block");
  grpc::ClientContext blocked_context, waiting_context, refused_context, chat_context;
  std::thread blocked([&] {
    v1::Context record;
    contexts->Get(&blocked_context, request, &record);
  });
  contexts_.blocked.get_future().get();
  // The only worker is taken: of two more calls one waits and the other is refused.
  std::vector<std::thread> callers;
  std::promise<void> refused;
  std::atomic<int> refusals = 0;
  for (grpc::ClientContext* context : {&waiting_context, &refused_context}) {
    callers.emplace_back([&, context] {
      v1::GetContextRequest other;
      v1::Context record;
      const absl::Status status = FromGrpcStatus(contexts->Get(context, other, &record));
      if (CodeOf(status) == ErrorCode::kQueueFull && refusals++ == 0) refused.set_value();
    });
  }
  auto refusal = refused.get_future();
  EXPECT_EQ(refusal.wait_for(std::chrono::seconds(kPatienceSeconds)), std::future_status::ready);
  v1::ChatRequest chat;
  chat.add_messages()->set_role("user");
  v1::ChatEvent piece;
  auto reader = v1::ChatService::NewStub(channel_)->Complete(&chat_context, chat);
  while (reader->Read(&piece)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  contexts_.unblock.set_value();
  blocked.join();
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(refusals, 1);
}

TEST_F(GrpcDoorTest, ATakenPortIsAClearError) {
  Start();
  const auto try_at = [&](const std::string& address) {
    return GrpcDoor::Start({.address = address}, {&contexts_, &chat_, &models_, nullptr}, SystemClock::Get());
  };
  const std::string port = std::to_string(door_->port());
  ::testing::internal::CaptureStderr();
  const auto taken = try_at("127.0.0.1:" + port), by_name = try_at("localhost:" + port);
  const auto foreign = try_at("192.0.2.1:8081"), none = try_at("127.0.0.1"),
             nowhere = try_at("127.0.0.1:http");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "gRPC must not speak to the user";
  EXPECT_THAT(taken, testing::StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(MessageOf(taken.status()), "cannot bind 127.0.0.1:" + port +
                                           ": Address already in use; choose another address or stop what "
                                           "uses it");
  EXPECT_THAT(by_name, testing::StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(foreign, testing::StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(none, testing::StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(nowhere, testing::StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace epic
