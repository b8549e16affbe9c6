// The records of a store through its gRPC door on loopback, as a client sees them.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/kv_store/record_client.h"
#include "common/rpc/kv_store/remote_kv_store.h"
#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/rpc/testing/store_process.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kMemory = uint64_t{1} << 20;

class RecordCallsTest : public ::testing::Test {
 protected:
  void Serve(const StoreDoorOptions& options) {
    process_ = std::make_unique<StoreProcess>(kMemory, options);
    channel_ = std::make_shared<StoreChannel>(
        StoreChannelOptions{.address = process_->address(), .reconnect_ms = 300});
    client_ = std::make_unique<RecordClient>(channel_, process_->clock());
  }
  void SetUp() override { Serve({}); }
  static CacheId IdOf(const NewContext& context) {
    return CacheId::Of(context.tenant, context.model_identity, context.tokens);
  }

  std::unique_ptr<StoreProcess> process_;
  std::shared_ptr<StoreChannel> channel_;
  std::unique_ptr<RecordClient> client_;
};

TEST_F(RecordCallsTest, ARecordIsWhatTheStoreHas) {
  NewContext context = ContextOf(1, 8, "a");
  context.name = "../../\xc3\xa9\xff\n";
  context.tags = {"", "x"};
  context.ttl_seconds = 60;
  const auto created = client_->CreateContext(context);
  ASSERT_OK(created);
  EXPECT_TRUE(created->created);
  const CacheId id = IdOf(context);
  const auto stored = process_->store()->GetContext("a", id);
  ASSERT_OK(stored);
  EXPECT_EQ(created->record, *stored);
  EXPECT_EQ(*client_->GetContext("a", id), *stored);
  EXPECT_EQ(*client_->FindByName("a", {}, context.name), *stored);
  EXPECT_EQ(*client_->GetTokens("a", id), context.tokens);
  EXPECT_FALSE(client_->CreateContext(context)->created);
  ASSERT_OK(client_->SetState("a", id, ContextState::kFailed, 7, "cut \xc3"));
  EXPECT_EQ(client_->GetContext("a", id)->error, "cut \xc3");
  ASSERT_OK(client_->Touch("a", {id, id}));
  EXPECT_EQ(client_->GetContext("a", id)->hits, 2u);
  const auto patched = client_->UpdateContext("a", id, {.ttl_seconds = std::optional<int64_t>()});
  ASSERT_OK(patched);
  EXPECT_FALSE(patched->expires_at_ms.has_value());
  EXPECT_TRUE(*client_->DeleteContext("a", id));
  EXPECT_FALSE(*client_->DeleteContext("a", id));
  EXPECT_EQ(CodeOf(client_->GetContext("a", id).status()), ErrorCode::kContextDeleted);
}

TEST_F(RecordCallsTest, OneBadItemFailsAlone) {
  const NewContext context = ContextOf(1);
  ASSERT_OK(client_->CreateContext(context));
  const CacheId there = IdOf(context), missing = IdOf(ContextOf(2));
  const auto records = client_->GetContexts("default", {missing, there, missing});
  ASSERT_OK(records);
  ASSERT_EQ(records->size(), 3u);
  EXPECT_EQ(CodeOf((*records)[0].status()), ErrorCode::kContextNotFound);
  ASSERT_OK((*records)[1]);
  EXPECT_EQ((*records)[1]->id, there);
  EXPECT_EQ(CodeOf((*records)[2].status()), ErrorCode::kContextNotFound);
}

TEST_F(RecordCallsTest, PagesGoOn) {
  std::vector<CacheId> expected;
  for (uint64_t seed = 1; seed <= 7; ++seed) {
    process_->clock()->AdvanceMs(1);
    ASSERT_OK(client_->CreateContext(ContextOf(seed)));
    expected.insert(expected.begin(), IdOf(ContextOf(seed)));
  }
  std::vector<CacheId> listed;
  ContextQuery query{.limit = 3};
  for (bool more = true; more;) {
    const auto page = client_->ListContexts("default", query);
    ASSERT_OK(page);
    for (const ContextRecord& record : page->records) listed.push_back(record.id);
    more = page->has_more;
    query.after = listed.back();
  }
  EXPECT_EQ(listed, expected);
  EXPECT_EQ(client_->Usage()->usage.contexts, 7u);
}

TEST_F(RecordCallsTest, ErrorsKeepTheirCodeAndField) {
  NewContext context = ContextOf(1);
  context.name = "n";
  ASSERT_OK(client_->CreateContext(context));
  NewContext other = ContextOf(2);
  other.name = "n";
  EXPECT_EQ(CodeOf(client_->CreateContext(other).status()), ErrorCode::kNameInUse);
  EXPECT_EQ(CodeOf(client_->CreateContext(ContextOf(3, 0)).status()), ErrorCode::kInvalidRequest);
  const auto list = client_->ListContexts("default", {.limit = 20, .after = IdOf(ContextOf(9))});
  EXPECT_EQ(CodeOf(list.status()), ErrorCode::kContextNotFound);
  EXPECT_EQ(ParamOf(list.status()), "after");
}

TEST_F(RecordCallsTest, TooManyOrMalformedItemsAreRefusedAsAWhole) {
  v1::StoreGetContextsRequest request;
  for (int i = 0; i < 1025; ++i) request.add_ids("x");
  const auto many = channel_->Call(&StoreChannel::Stub::GetContexts, request);
  EXPECT_EQ(CodeOf(many.status()), ErrorCode::kInvalidRequest);
  v1::StoreDeleteContextRequest remove;
  remove.set_id("ctx_");
  EXPECT_EQ(CodeOf(channel_->Call(&StoreChannel::Stub::DeleteContext, remove).status()),
            ErrorCode::kInvalidRequest);
}

TEST_F(RecordCallsTest, AnOversizedRequestIsRefusedAndTheDoorGoesOn) {
  Serve({.max_message_bytes = 64 << 10});
  EXPECT_EQ(client_->CreateContext(ContextOf(1, 100'000)).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_OK(client_->CreateContext(ContextOf(2)));
}

TEST_F(RecordCallsTest, GarbageOnTheWireEndsTheCallAndNothingElse) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    v1::StoreCreateContextRequest request;
    request.set_tenant("a");
    // Random bytes where fields are expected, in a message that can be parsed and in fields that it has.
    request.set_model_identity(std::string(rng.Below(40), static_cast<char>(rng.Next())));
    request.set_pin(static_cast<v1::Pin>(rng.Next()));
    request.mutable_compile_prefix()->set_context_id(std::string(rng.Below(40), 'a'));
    request.mutable_compile_prefix()->set_type(static_cast<v1::CompilePrefixType>(rng.Below(9)));
    request.add_tokens(static_cast<uint32_t>(rng.Next()));
    const auto answer = channel_->Call(&StoreChannel::Stub::CreateContext, request);
    if (!answer.ok()) {
      EXPECT_EQ(CodeOf(answer.status()), ErrorCode::kInvalidRequest) << "seed " << seed;
    }
  }
  EXPECT_OK(client_->CreateContext(ContextOf(2)));
}

// A call that waits for an erasure, on a thread of gRPC.
struct EraseCall {
  explicit EraseCall(StoreChannel* channel, const CacheId& id, int64_t deadline_ms = 60'000) {
    request.set_tenant("default");
    request.set_id(id.text());
    request.set_erase(v1::ERASE_MODE_WAIT);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(deadline_ms));
    channel->stub()->async()->DeleteContext(&context, &request, &response,
                                            [this](const grpc::Status& status) { ended.set_value(status); });
  }
  grpc::Status Wait() { return ended.get_future().get(); }

  grpc::ClientContext context;
  v1::StoreDeleteContextRequest request;
  v1::StoreDeleteContextResponse response;
  std::promise<grpc::Status> ended;
};

TEST_F(RecordCallsTest, AnErasureIsAnsweredWhenItIsDoneAndNotBefore) {
  ASSERT_OK(client_->CreateContext(ContextOf(1)));
  process_->reclaim_gate()->Close();
  EraseCall erase(channel_.get(), IdOf(ContextOf(1)));
  process_->reclaim_gate()->AwaitRuns(1);
  EXPECT_EQ(CodeOf(client_->GetContext("default", IdOf(ContextOf(1))).status()), ErrorCode::kContextDeleted);
  auto ended = erase.ended.get_future();
  EXPECT_EQ(ended.wait_for(std::chrono::milliseconds(0)), std::future_status::timeout);
  process_->reclaim_gate()->Open();
  EXPECT_TRUE(ended.get().ok());
  EXPECT_TRUE(erase.response.existed());
  EXPECT_EQ(erase.response.pending_size(), 0);
  EraseCall again(channel_.get(), IdOf(ContextOf(1)));
  EXPECT_TRUE(again.Wait().ok());
  EXPECT_FALSE(again.response.existed());
}

TEST_F(RecordCallsTest, WhenTheDeadlineComesFirstTheNodeIsPending) {
  ASSERT_OK(client_->CreateContext(ContextOf(1)));
  process_->reclaim_gate()->Close();
  EraseCall erase(channel_.get(), IdOf(ContextOf(1)), 1'000);
  const grpc::Status status = erase.Wait();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(erase.response.existed());
  ASSERT_EQ(erase.response.pending_size(), 1);
  EXPECT_EQ(erase.response.pending(0), "local");
  process_->reclaim_gate()->Open();
}

TEST_F(RecordCallsTest, WaitingForErasuresTakesNoWorkerAndWhoeverGoesIsLetGo) {
  std::atomic<int> reported{0};
  std::promise<void> all_reported;
  constexpr int kCalls = 20;
  StoreDoorObservers observers;
  observers.on_call = [&](const RpcEvent& event) {
    if (event.call != "erase_context") return;
    EXPECT_EQ(event.code, "client_gone");
    if (++reported == kCalls) all_reported.set_value();
  };
  process_.reset();
  process_ =
      std::make_unique<StoreProcess>(kMemory, StoreDoorOptions{.worker_threads = 2}, nullptr, observers);
  channel_ = std::make_shared<StoreChannel>(StoreChannelOptions{.address = process_->address()});
  client_ = std::make_unique<RecordClient>(channel_, process_->clock());
  process_->reclaim_gate()->Close();
  std::vector<std::unique_ptr<EraseCall>> calls;
  for (int i = 0; i < kCalls; ++i) {
    ASSERT_OK(client_->CreateContext(ContextOf(i)));
    calls.push_back(std::make_unique<EraseCall>(channel_.get(), IdOf(ContextOf(i))));
  }
  for (int i = 0; i < kCalls; ++i) {
    while (client_->GetContext("default", IdOf(ContextOf(i))).ok()) std::this_thread::yield();
  }
  EXPECT_OK(client_->CreateContext(ContextOf(100)).status()) << "workers are free";
  for (auto& call : calls) call->context.TryCancel();
  for (auto& call : calls) EXPECT_EQ(call->Wait().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(all_reported.get_future().wait_for(std::chrono::seconds(5)), std::future_status::ready);
  process_->reclaim_gate()->Open();
  process_->store()->DrainErasures();
}

TEST_F(RecordCallsTest, AModeThatIsNotKnownIsRefused) {
  v1::StoreDeleteContextRequest remove;
  remove.set_tenant("default");
  remove.set_id(IdOf(ContextOf(1)).text());
  remove.set_erase(static_cast<v1::EraseMode>(7));
  const absl::Status status = channel_->Call(&StoreChannel::Stub::DeleteContext, remove).status();
  EXPECT_EQ(CodeOf(status), ErrorCode::kInvalidRequest);
  EXPECT_EQ(ParamOf(status), "erase");
}

TEST_F(RecordCallsTest, AClientOfTheStoreWaitsToo) {
  ASSERT_OK_AND_ASSIGN(const auto remote, MakeRemoteKvStore({.address = process_->address()}));
  ASSERT_OK(remote->CreateContext(ContextOf(1)).status());
  std::promise<std::vector<std::string>> first;
  const auto existed = remote->EraseContext("default", IdOf(ContextOf(1)),
                                            [&](auto pending) { first.set_value(std::move(pending)); });
  ASSERT_OK(existed);
  EXPECT_TRUE(*existed);
  EXPECT_TRUE(first.get_future().get().empty());
  // One that ends while an erasure runs: the node, by its address, may still have bytes.
  process_->reclaim_gate()->Close();
  std::promise<std::vector<std::string>> second;
  {
    ASSERT_OK_AND_ASSIGN(const auto brief, MakeRemoteKvStore({.address = process_->address()}));
    ASSERT_OK(brief->EraseContext("default", IdOf(ContextOf(1)),
                                  [&](auto pending) { second.set_value(std::move(pending)); }));
  }
  EXPECT_EQ(second.get_future().get(), std::vector<std::string>{process_->address()});
  process_->reclaim_gate()->Open();
}

TEST_F(RecordCallsTest, ANodeThatIsGoneIsUnavailableAndOneThatIsBackIsUsed) {
  ASSERT_OK(client_->CreateContext(ContextOf(1)));
  process_->Stop();
  EXPECT_EQ(client_->CreateContext(ContextOf(2)).status().code(), absl::StatusCode::kUnavailable);
  process_->Start();
  const StoreChannelOptions patient{.address = process_->address()};
  RecordClient client(std::make_shared<StoreChannel>(patient), process_->clock());
  EXPECT_FALSE(client.CreateContext(ContextOf(1))->created);
  EXPECT_OK(client.CreateContext(ContextOf(2)));
}

}  // namespace
}  // namespace epic::kv_store
