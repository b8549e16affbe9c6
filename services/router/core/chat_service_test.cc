// The router's cores over the real compile and link services and fakes below them.
#include "services/router/core/chat_service.h"

#include <atomic>
#include <future>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/compile_worker/core/compile_service.h"
#include "services/link_worker/core/link_service.h"
#include "services/router/core/testing/world.h"

namespace epic {
namespace {

using ::epic::testing::ByteTokenizer;
using ::epic::testing::RecordingChatSink;
using ::epic::testing::StoreCall;
using Outcome = CreateContextResult::Outcome;
using CreateAnswer = absl::StatusOr<CreateContextResult>;

ContentPart Text(std::string text) { return {ContentPart::Kind::kText, std::move(text)}; }
ContentPart Ref(std::string id) { return {ContentPart::Kind::kContextId, std::move(id)}; }
ContentPart Named(std::string name) { return {ContentPart::Kind::kContextName, std::move(name)}; }

class RouterTest : public ::testing::Test {
 protected:
  RouterTest() {
    world_.engine.set_answer({'H', 'e', 'l', 'l', 'o', ByteTokenizer::kImEnd});
    world_.parts.compiler = &compiles_;
    world_.parts.linker = &links_;
    chat_.emplace(world_.parts, 1);
    contexts_.emplace(world_.parts);
  }
  // A create whose answer comes into the returned place.
  std::shared_ptr<std::optional<CreateAnswer>> Begin(CreateContextRequest request) {
    auto answer = std::make_shared<std::optional<CreateAnswer>>();
    contexts_->Create(world_.Scope(), std::move(request), [answer](CreateAnswer result) {
      EXPECT_FALSE(answer->has_value());
      *answer = std::move(result);
    });
    return answer;
  }
  CreateContextRequest TextOf(std::string text) {
    CreateContextRequest request;
    request.text = std::move(text);
    return request;
  }
  CreateAnswer Create(CreateContextRequest request) {
    const auto answer = Begin(std::move(request));
    world_.Settle();
    EXPECT_TRUE(answer->has_value());
    return **answer;
  }
  std::string IdOf(const std::string& text) {
    const CreateAnswer answer = Create(TextOf(text));
    EXPECT_OK(answer);
    return answer->record.id.text();
  }
  std::string IdOfAnotherModel(const std::string& text) {
    const Digest own = std::exchange(world_.model.identity, Sha256Of(AsBytes("another")));
    std::string id = IdOf(text);
    world_.model.identity = own;
    return id;
  }
  // Chats that name `good` and then `other` in each way there is, and the place of the latter.
  std::vector<std::pair<ChatRequest, std::string>> WaysToName(const std::string& good,
                                                              const std::string& other,
                                                              const std::string& name) {
    std::vector<std::pair<ChatRequest, std::string>> ways;
    ways.emplace_back(Asks({Text("?")}), "context_ids[1]");
    ways.back().first.context_ids = {good, other};
    ways.emplace_back(Asks({Ref(good), Text(" and "), Ref(other), Ref(other)}), "messages[1].content[2].id");
    ways.emplace_back(Asks({Text("?"), Ref(other)}), "messages[1].content[1].id");
    ways.back().first.context_ids = {good, good};
    ways.emplace_back(Asks({Ref(good)}), "messages[0].content[1].id");
    ways.back().first.messages[0].content.push_back(Ref(other));
    if (!name.empty()) ways.emplace_back(Asks({Ref(good), Named(name)}), "messages[1].content[1].name");
    return ways;
  }
  ChatRequest Asks(std::vector<ContentPart> parts) {
    ChatRequest request;
    request.messages = {{"system", {Text("Be brief.")}}, {"user", std::move(parts)}};
    return request;
  }
  std::shared_ptr<RecordingChatSink> Begin(ChatRequest request, RequestScope scope) {
    auto sink = std::make_shared<RecordingChatSink>();
    chat_->Complete(scope, std::move(request), sink);
    return sink;
  }
  std::shared_ptr<RecordingChatSink> Chat(ChatRequest request) {
    const auto sink = Begin(std::move(request), world_.Scope());
    world_.Settle();
    EXPECT_TRUE(sink->done);
    ExpectNothingLeft();
    return sink;
  }
  ErrorCode CodeOfChat(ChatRequest request) {
    const auto sink = Chat(std::move(request));
    EXPECT_FALSE(sink->start.has_value());
    return sink->status.ok() ? ErrorCode::kInternal : CodeOf(sink->status);
  }
  void ExpectNothingLeft() {
    EXPECT_EQ(world_.registry.size(), 0u);
    EXPECT_EQ(links_.stats().active, 0u);
    EXPECT_EQ(compiles_.stats().waiters, 0u);
    EXPECT_EQ(world_.store.Usage().leased_objects, 0u);
    EXPECT_EQ(world_.store.Usage().reservations, 0u);
  }

  testing::World world_;
  CompileService compiles_{
      {.max_running = 2, .max_queue = 2}, &world_.engine, &world_.store, &world_.executor, &world_.clock};
  LinkService links_{{}, &world_.model, &world_.store, &compiles_, &world_.executor, &world_.clock};
  std::optional<ChatService> chat_;
  std::optional<ContextService> contexts_;
};

const std::string kA(50, 'a'), kB(40, 'b'), kC(7, 'c');
const std::string kHeadText = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n";

// --- creates

TEST_F(RouterTest, ACreateIsAnsweredWhenTheContextIsReadyAndTheSameTextExistsThen) {
  const auto answer = Begin(TextOf(kA));
  world_.executor.RunAll();
  EXPECT_FALSE(answer->has_value());
  world_.Settle();
  ASSERT_OK(**answer);
  EXPECT_EQ((**answer)->outcome, Outcome::kCreated);
  EXPECT_EQ((**answer)->record.state, ContextState::kReady);
  EXPECT_EQ((**answer)->record.variants.size(), 1u);
  const CreateAnswer again = Create(TextOf(kA));
  EXPECT_EQ(again->outcome, Outcome::kExisted);
  EXPECT_EQ(again->record.id, (**answer)->record.id);
  EXPECT_EQ(world_.engine.compiles_started(), 1u);
  EXPECT_EQ(world_.timers.pending(), 0u);
}

TEST_F(RouterTest, WhenTheWaitEndsFirstTheAnswerIs202AndTheCompileGoesOn) {
  CreateContextRequest request = TextOf(kA);
  request.wait = 2;
  const auto answer = Begin(request);
  world_.executor.RunAll();
  world_.timers.AdvanceMs(1999);
  EXPECT_FALSE(answer->has_value());
  world_.timers.AdvanceMs(1);
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((**answer)->outcome, Outcome::kAccepted);
  EXPECT_EQ((**answer)->record.state, ContextState::kCompiling);
  world_.Settle();
  EXPECT_EQ(contexts_->Get(world_.Scope(), (**answer)->record.id.text())->state, ContextState::kReady);
  ExpectNothingLeft();
}

TEST_F(RouterTest, AWaitOfZeroIsAnsweredAtOnceAndASecondCreateWaitsForTheSameCompile) {
  CreateContextRequest request = TextOf(kA);
  request.wait = 0;
  const auto first = Begin(request);
  world_.executor.RunAll();
  EXPECT_EQ((**first)->outcome, Outcome::kAccepted);
  const CreateAnswer second = Create(TextOf(kA));
  EXPECT_EQ(second->outcome, Outcome::kExisted);
  EXPECT_EQ(second->record.state, ContextState::kReady);
  EXPECT_EQ(world_.engine.compiles_started(), 1u);
}

TEST_F(RouterTest, AClientThatGoesWhileItsCreateCompilesFreesTheRowsAndTheRecordStays) {
  const auto answer = Begin(TextOf(kA));
  world_.executor.RunAll();
  world_.engine.Step();
  world_.cancel.Cancel();
  world_.registry.Tick();
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ(CodeOf((*answer)->status()), ErrorCode::kClientGone);
  world_.Settle();
  EXPECT_EQ(world_.engine.compiles_finished(), 0u);
  ExpectNothingLeft();
  world_.cancel = CancelSource();
  ListContextsRequest list;
  list.state = "compiling";
  EXPECT_EQ(contexts_->List(world_.Scope(), list)->records.size(), 1u);
  EXPECT_EQ(Create(TextOf(kA))->record.state, ContextState::kReady);
}

TEST_F(RouterTest, AfterARestartTheCompilingRecordsAreDrivenInTheBackground) {
  for (int i = 0; i < 3; ++i) {
    world_.cancel = CancelSource();
    Begin(TextOf(kA + std::to_string(i)));
    world_.executor.RunAll();
    world_.cancel.Cancel();
    world_.registry.Tick();
    world_.Settle();
  }
  world_.cancel = CancelSource();
  contexts_->Redrive("default");
  world_.executor.RunAll();
  EXPECT_EQ(compiles_.stats().running, 1u);  // one at a time
  world_.Settle();
  ListContextsRequest list;
  list.state = "ready";
  EXPECT_EQ(contexts_->List(world_.Scope(), list)->records.size(), 3u);
  ExpectNothingLeft();
}

TEST_F(RouterTest, AFailedCompileIsAnErrorAndTheNextCreateTriesOnceMore) {
  world_.engine.set_compile_status(absl::InternalError("NaN"));
  EXPECT_EQ(CodeOf(Create(TextOf(kA)).status()), ErrorCode::kContextFailed);
  world_.engine.set_compile_status(absl::OkStatus());
  EXPECT_EQ(Create(TextOf(kA))->record.state, ContextState::kReady);
}

TEST_F(RouterTest, TooManyCompilesAre429AndTheRecordIsCompiledAtItsNextUse) {
  std::vector<std::shared_ptr<std::optional<CreateAnswer>>> answers;
  for (int i = 0; i < 5; ++i) answers.push_back(Begin(TextOf(kA + std::to_string(i))));
  world_.executor.RunAll();
  ASSERT_TRUE(answers[4]->has_value());
  EXPECT_EQ(CodeOf((*answers[4])->status()), ErrorCode::kQueueFull);
  EXPECT_TRUE(RetryAfterMsOf((*answers[4])->status()).has_value());
  world_.Settle();
  for (int i = 0; i < 4; ++i) EXPECT_OK(**answers[i]);
  EXPECT_OK(Create(TextOf(kA + "4")));
}

TEST_F(RouterTest, ContextsLongerThanTheWindowAreRefusedWithBothNumbers) {
  const absl::Status status = Create(TextOf(std::string(4097, 'x'))).status();
  EXPECT_EQ(CodeOf(status), ErrorCode::kContextLengthExceeded);
  EXPECT_THAT(MessageOf(status),
              ::testing::AllOf(::testing::HasSubstr("4097"), ::testing::HasSubstr("4096")));
  EXPECT_EQ(world_.store.Usage().contexts, 0u);
}

TEST_F(RouterTest, ACompilePrefixMakesAVariantBesideThePlainOne) {
  CreateContextRequest request = TextOf(kA);
  request.compile_prefix = {.type = "bos4", .text = {}, .context_id = {}};
  EXPECT_EQ(Create(request)->outcome, Outcome::kCreated);
  const CreateAnswer plain = Create(TextOf(kA));
  EXPECT_EQ(plain->record.variants.size(), 1u);
  request.compile_prefix = {.type = "none", .text = {}, .context_id = {}};
  EXPECT_EQ(Create(request)->record.variants.size(), 2u);
}

TEST_F(RouterTest, MessagesAreRenderedWithoutTheGenerationPrompt) {
  CreateContextRequest request;
  request.messages = {{"user", {Text("hi <|im_end|>")}}};
  const CreateAnswer answer = Create(request);
  ASSERT_OK(answer);
  const std::vector<TokenId> tokens = *world_.store.GetTokens("default", answer->record.id);
  EXPECT_EQ(world_.tokenizer.Decode(tokens, true), "<|im_start|>user\nhi <|im_end|><|im_end|>\n");
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), ByteTokenizer::kImEnd), 1);
}

TEST_F(RouterTest, RecordsAreReadListedChangedAndDeleted) {
  CreateContextRequest request = TextOf(kA);
  request.name = "doc";
  request.tags = {"x", "a", "x"};
  request.ttl = 100;
  const std::string id = Create(request)->record.id.text();
  const std::string other = IdOf(kB);
  EXPECT_EQ(contexts_->Get(world_.Scope(), id)->tags, (std::vector<std::string>{"a", "x"}));
  EXPECT_EQ(contexts_->List(world_.Scope(), {})->records.size(), 2u);
  PatchContextRequest patch;
  patch.name = "doc";
  EXPECT_EQ(CodeOf(contexts_->Patch(world_.Scope(), other, patch).status()), ErrorCode::kNameInUse);
  patch.name = "other";
  patch.ttl = std::optional<int64_t>(5);
  patch.pin = "hard";
  EXPECT_EQ(contexts_->Patch(world_.Scope(), other, patch)->name, "other");
  world_.timers.AdvanceMs(5000);
  EXPECT_EQ(CodeOf(contexts_->Get(world_.Scope(), other).status()), ErrorCode::kContextExpired);
  EXPECT_EQ(CodeOfChat(Asks({Ref(other)})), ErrorCode::kContextExpired);
  EXPECT_OK(contexts_->Delete(world_.Scope(), id));
  EXPECT_OK(contexts_->Delete(world_.Scope(), id));
  EXPECT_EQ(CodeOfChat(Asks({Ref(id)})), ErrorCode::kContextDeleted);
  EXPECT_EQ(CodeOf(contexts_->Get(world_.Scope(), "ctx_nonsense").status()), ErrorCode::kContextNotFound);
  ListContextsRequest list;
  list.limit = 0;
  EXPECT_EQ(ParamOf(contexts_->List(world_.Scope(), list).status()), "limit");
}

// --- chats

TEST_F(RouterTest, AnErasureIsAnsweredOnceTheBytesAreGone) {
  std::promise<absl::StatusOr<std::vector<std::string>>> answer;
  contexts_->Erase({}, "ctx_x", [&](auto pending) { EXPECT_EQ(ParamOf(pending.status()), "id"); });
  NewContext context;
  context.tenant = "default";
  context.tokens = {1, 2, 3};
  ASSERT_OK(world_.store.CreateContext(context).status());
  const CacheId id = CacheId::Of("default", {}, context.tokens);
  RequestScope scope;
  contexts_->Erase(scope, std::string(id.text()),
                   [&](auto pending) { answer.set_value(std::move(pending)); });
  const auto pending = answer.get_future().get();
  ASSERT_OK(pending.status());
  EXPECT_TRUE(pending->empty());
  EXPECT_EQ(CodeOf(world_.store.GetContext("default", id).status()), ErrorCode::kContextDeleted);
}

TEST_F(RouterTest, UsageCountsTheHeadOnceItIsStoredAndSixteenRowsAContext) {
  const std::string a = IdOf(kA), b = IdOf(kB), c = IdOf(kC);
  const auto first = Chat(Asks({Ref(a), Text(" and "), Ref(b), Ref(c), Text("?")}));
  ASSERT_OK(first->status);
  EXPECT_EQ(first->text[0], "Hello");
  EXPECT_EQ(first->finished[0], "stop");
  EXPECT_EQ(first->start->linking, "legolink-16");
  EXPECT_EQ(first->start->planned_recomputed, 39u);
  EXPECT_EQ(first->usage.recomputed_tokens, 39u);
  EXPECT_EQ(first->usage.cached_tokens, 97u - 39);
  const uint64_t compiles = world_.engine.compiles_started();
  const auto second = Chat(Asks({Ref(c), Ref(b), Text(" and "), Ref(a), Text("?")}));
  EXPECT_EQ(world_.engine.compiles_started(), compiles);
  EXPECT_EQ(second->usage.recomputed_tokens, 39u);
  const uint32_t head = static_cast<uint32_t>(world_.engine.links()[1].pieces[0].tokens.size());
  EXPECT_EQ(second->usage.cached_tokens, 97u - 39 + head);
  EXPECT_EQ(second->usage.cached_tokens + second->usage.recomputed_tokens + second->usage.fresh_tokens,
            second->usage.prompt_tokens);
  EXPECT_EQ(second->usage.prompt_tokens, first->usage.prompt_tokens);
}

TEST_F(RouterTest, ThePromptIsTheTemplatesTextAroundTheContextsAndUserTextHasNoControlTokens) {
  const std::string a = IdOf(kA);
  Chat(Asks({Ref(a), Text("<|im_end|>")}));
  const LinkRequest link = world_.engine.links()[0];
  ASSERT_EQ(link.pieces.size(), 3u);
  EXPECT_EQ(world_.tokenizer.Decode(link.pieces[0].tokens, true), kHeadText);
  EXPECT_FALSE(link.pieces[0].is_context);
  EXPECT_TRUE(link.pieces[1].is_context);
  const std::vector<TokenId>& tail = link.pieces[2].tokens;
  EXPECT_EQ(world_.tokenizer.Decode(tail, true), "<|im_end|><|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(std::count(tail.begin(), tail.end(), ByteTokenizer::kImEnd), 1);
}

TEST_F(RouterTest, ContextIdsStandBeforeTheLastUserMessagesOwnContent) {
  const std::string a = IdOf(kA), b = IdOf(kB);
  ChatRequest request = Asks({Ref(b), Text("?")});
  request.context_ids = {a};
  Chat(request);
  Chat(Asks({Ref(a), Ref(b), Text("?")}));
  const std::vector<LinkRequest> links = world_.engine.links();
  ASSERT_EQ(links.size(), 2u);
  for (size_t i = 0; i < links[0].pieces.size(); ++i) {
    EXPECT_EQ(links[0].pieces[i].tokens, links[1].pieces[i].tokens);
  }
  request.messages = {{"system", {Text("x")}}};
  const auto refused = Chat(request);
  EXPECT_EQ(ParamOf(refused->status), "context_ids");
}

TEST_F(RouterTest, TextOfTheUserBeforeTheFirstContextIsNoHead) {
  const std::string a = IdOf(kA);
  Chat(Asks({Text("Read this: "), Ref(a), Text("?")}));
  EXPECT_EQ(world_.store.hidden_contexts(), 0u);
  Chat(Asks({Text("no contexts")}));
  EXPECT_EQ(world_.store.hidden_contexts(), 0u);
}

TEST_F(RouterTest, LegolinkZeroReadsItsOwnVariantAndASystemPrefixIsExactInPlace) {
  const std::string a = IdOf(kA), b = IdOf(kB);
  ChatRequest request = Asks({Ref(a), Ref(b), Text("?")});
  request.linking.strategy = "legolink-0";
  Chat(request);
  const auto bos4 = Chat(request);
  EXPECT_EQ(bos4->usage.recomputed_tokens, 0u);
  EXPECT_EQ(world_.engine.links()[1].pieces[1].prefix_tokens,
            std::vector<TokenId>(4, ByteTokenizer::kEndOfText));
  EXPECT_EQ(contexts_->Get(world_.Scope(), a)->variants.size(), 2u);
  request.linking.compile_prefix = "system";
  Chat(request);
  const std::vector<PromptPiece> pieces = world_.engine.links()[2].pieces;
  EXPECT_EQ(pieces[1].prefix_tokens, pieces[0].tokens);
  request.messages[1].content.insert(request.messages[1].content.begin(), Text("first"));
  EXPECT_EQ(ParamOf(Chat(request)->status), "linking.compile_prefix");
}

TEST_F(RouterTest, OneBosWhereTheModelWantsIt) {
  ByteTokenizer with_bos(/*add_bos=*/true);
  world_.model.tokenizer = &with_bos;
  const std::string a = IdOf(kA);
  Chat(Asks({Ref(a), Text("?")}));
  const std::vector<PromptPiece> pieces = world_.engine.links()[0].pieces;
  EXPECT_EQ(pieces[0].tokens[0], ByteTokenizer::kEndOfText);
  EXPECT_NE(pieces[0].tokens[1], ByteTokenizer::kEndOfText);
  EXPECT_EQ(world_.store.GetTokens("default", *CacheId::Parse(a))->front(), TokenId{'a'});
}

TEST_F(RouterTest, RefusalsComeBeforeTheStart) {
  EXPECT_EQ(CodeOfChat(Asks({Ref("ctx_nonsense")})), ErrorCode::kContextNotFound);
  EXPECT_EQ(CodeOfChat(Asks({Ref("ctx_" + std::string(32, 'a'))})), ErrorCode::kContextNotFound);
  EXPECT_EQ(CodeOfChat(Asks({Named("nobody")})), ErrorCode::kContextNotFound);
  const std::string a = IdOf(kA);
  const Digest own = world_.model.identity;
  world_.model.identity = Sha256Of(AsBytes("another"));
  EXPECT_EQ(CodeOfChat(Asks({Ref(a)})), ErrorCode::kContextModelMismatch);
  world_.model.identity = own;
  ChatRequest missing = Asks({Ref(a)});
  missing.linking.on_missing = "error";
  world_.store.DropAllObjects();
  EXPECT_EQ(CodeOfChat(missing), ErrorCode::kContextObjectMissing);
  world_.engine.set_submit_status(RetryLater(ErrorCode::kQueueFull, "full", 500));
  EXPECT_EQ(CodeOfChat(Asks({Text("hi")})), ErrorCode::kQueueFull);
}

TEST_F(RouterTest, TheWindowBoundsPromptAndAnswerWithBothNumbers) {
  ChatRequest request = Asks({Text("hi")});
  request.max_tokens = 4090;
  const auto over = Chat(request);
  EXPECT_EQ(CodeOf(over->status), ErrorCode::kContextLengthExceeded);
  EXPECT_EQ(ParamOf(over->status), "max_tokens");
  EXPECT_THAT(MessageOf(over->status), ::testing::HasSubstr("4096"));
  const auto longer = Chat(Asks({Text(std::string(5000, 'x'))}));
  EXPECT_EQ(CodeOf(longer->status), ErrorCode::kContextLengthExceeded);
  Chat(Asks({Text("hi")}));
  const LinkRequest link = world_.engine.links().back();
  uint32_t prompt = 0;
  for (const PromptPiece& piece : link.pieces) prompt += static_cast<uint32_t>(piece.tokens.size());
  EXPECT_EQ(link.max_tokens, 4096 - prompt);
}

TEST_F(RouterTest, NamesAreResolvedAndFingerprintsTellStrategiesApart) {
  CreateContextRequest request = TextOf(kA);
  request.name = "doc";
  ASSERT_OK(Create(request));
  const auto linked = Chat(Asks({Named("doc"), Text("?")}));
  ASSERT_OK(linked->status);
  ChatRequest full = Asks({Named("doc"), Text("?")});
  full.linking.strategy = "full";
  const auto computed = Chat(full);
  EXPECT_EQ(computed->usage.recomputed_tokens, 50u);
  EXPECT_EQ(computed->usage.cached_tokens, 0u);
  EXPECT_NE(linked->start->system_fingerprint, computed->start->system_fingerprint);
  EXPECT_NE(linked->start->id, computed->start->id);
}

TEST_F(RouterTest, ACompilingContextIsWaitedForUpToTheDeadline) {
  CreateContextRequest request = TextOf(kA);
  request.wait = 0;
  const auto created = Begin(request);
  world_.executor.RunAll();
  const std::string id = (**created)->record.id.text();
  RequestScope scope = world_.Scope();
  scope.deadline_steady_ns = world_.clock.SteadyNs() + 1'000'000'000;
  const auto late = Begin(Asks({Ref(id), Text("?")}), scope);
  world_.executor.RunAll();
  world_.clock.AdvanceMs(1001);
  world_.registry.Tick();
  EXPECT_TRUE(late->done);
  EXPECT_EQ(CodeOf(late->status), ErrorCode::kContextCompiling);
  const auto patient = Begin(Asks({Ref(id), Text("?")}), world_.Scope());
  world_.Settle();
  EXPECT_OK(patient->status);
  EXPECT_EQ(patient->usage.cached_tokens, 34u);  // the create computed it, not this request
  ExpectNothingLeft();
}

TEST_F(RouterTest, AFailedContextIsCompiledOnceMoreElse400) {
  world_.engine.set_compile_status(absl::InternalError("NaN"));
  EXPECT_FALSE(Create(TextOf(kA)).ok());
  const std::string id = contexts_->List(world_.Scope(), {})->records[0].id.text();
  EXPECT_EQ(CodeOfChat(Asks({Ref(id)})), ErrorCode::kContextFailed);
  world_.engine.set_compile_status(absl::OkStatus());
  EXPECT_OK(Chat(Asks({Ref(id)}))->status);
  EXPECT_EQ(contexts_->Get(world_.Scope(), id)->state, ContextState::kReady);
}

TEST_F(RouterTest, ADeadlineInTheMiddleOfTheAnswerEndsItWithItsOwnCode) {
  RequestScope scope = world_.Scope();
  scope.deadline_steady_ns = world_.clock.SteadyNs() + 1'000'000'000;
  const auto sink = Begin(Asks({Text("hi")}), scope);
  world_.executor.RunAll();
  world_.engine.Step();
  world_.engine.Step();
  world_.clock.AdvanceMs(2000);
  world_.registry.Tick();
  world_.Settle();
  EXPECT_TRUE(sink->start.has_value());
  EXPECT_EQ(CodeOf(sink->status), ErrorCode::kDeadline);
  ExpectNothingLeft();
}

TEST_F(RouterTest, CancelAtEveryStepLeavesNothingBehind) {
  const std::string a = IdOf(kA), b = IdOf(kB);
  for (int steps = 0; steps < 14; ++steps) {
    world_.store.DropAllObjects();
    world_.cancel = CancelSource();
    const auto sink = Begin(Asks({Ref(a), Ref(b), Text("?")}), world_.Scope());
    for (int i = 0; i < steps; ++i) {
      if (i % 2 == 0) {
        world_.executor.RunOne();
      } else {
        world_.engine.Step();
      }
    }
    world_.cancel.Cancel();
    world_.registry.Tick();
    world_.Settle();
    EXPECT_TRUE(sink->done);
    EXPECT_EQ(CodeOf(sink->status), ErrorCode::kClientGone) << steps;
    ExpectNothingLeft();
  }
}

TEST_F(RouterTest, AClientThatGoesWhileAnObjectIsFetchedLeasesNoMore) {
  const std::string a = IdOf(kA), b = IdOf(kB);
  const uint64_t found = links_.stats().objects_found;
  world_.store.Hold(StoreCall::kAcquire);
  const auto sink = Begin(Asks({Ref(a), Ref(b), Text("?")}), world_.Scope());
  std::thread caller([&] { world_.executor.RunAll(); });
  world_.store.WaitUntilHeld(StoreCall::kAcquire);
  world_.cancel.Cancel();
  world_.registry.Tick();
  world_.store.Release(StoreCall::kAcquire);
  caller.join();
  EXPECT_TRUE(sink->done && !sink->start.has_value());
  EXPECT_EQ(CodeOf(sink->status), ErrorCode::kClientGone);
  EXPECT_LE(links_.stats().objects_found, found + 1);
  EXPECT_FALSE(world_.engine.Step());
  ExpectNothingLeft();
}

TEST_F(RouterTest, TheRegistryIsBoundedAndListsPhases) {
  std::vector<std::shared_ptr<RecordingChatSink>> sinks;
  for (int i = 0; i < 101; ++i) sinks.push_back(Begin(Asks({Text("hi")}), world_.Scope()));
  EXPECT_TRUE(sinks[100]->done);
  EXPECT_EQ(CodeOf(sinks[100]->status), ErrorCode::kQueueFull);
  EXPECT_EQ(world_.registry.List()[0].phase, "queued");
  world_.executor.RunAll();
  EXPECT_EQ(world_.registry.List()[0].phase, "answer");
  world_.registry.InterruptAll(Error(ErrorCode::kDraining, "stopping"));
  world_.Settle();
  EXPECT_EQ(CodeOf(sinks[0]->status), ErrorCode::kDraining);
  ExpectNothingLeft();
}

// --- places of contexts

TEST_F(RouterTest, ErrorsAboutAContextNameThePlaceWhereTheRequestNamesIt) {
  const std::string good = IdOf(kA);
  const auto named = [&](const std::string& text, const std::string& name) {
    CreateContextRequest request = TextOf(text);
    request.name = name;
    request.ttl = name == "expired" ? std::optional<int64_t>(5) : std::nullopt;
    return Create(request)->record.id.text();
  };
  const std::string missing = named("missing", "missing"), expired = named("expired", "expired");
  const std::string deleted = IdOf("deleted"), foreign = IdOfAnotherModel("foreign");
  const ObjectVariant plain = VariantOf(world_.engine, CompilePrefixKind::kNone, {});
  ASSERT_OK(world_.store.DropObject("default", {*CacheId::Parse(missing), plain}));
  ASSERT_OK(contexts_->Delete(world_.Scope(), deleted));
  world_.timers.AdvanceMs(5000);
  world_.engine.set_compile_status(absl::InternalError("NaN"));
  EXPECT_FALSE(Create(TextOf("failed")).ok());
  const std::string failed =
      CacheId::Of("default", world_.model.identity, *world_.tokenizer.Encode("failed")).text();
  const struct {
    ErrorCode code;
    std::string id, name, on_missing;
  } cases[] = {
      {ErrorCode::kContextNotFound, "ctx_" + std::string(32, 'a'), "nobody", "recompile"},
      {ErrorCode::kContextNotFound, "nonsense", "", "recompile"},
      {ErrorCode::kContextDeleted, deleted, "", "recompile"},
      {ErrorCode::kContextExpired, expired, "", "recompile"},
      {ErrorCode::kContextModelMismatch, foreign, "", "recompile"},
      {ErrorCode::kContextFailed, failed, "", "recompile"},
      {ErrorCode::kContextObjectMissing, missing, "missing", "error"},
  };
  for (const auto& c : cases) {
    for (auto& [request, place] : WaysToName(good, c.id, c.name)) {
      request.linking.on_missing = c.on_missing;
      const auto refused = Chat(std::move(request));
      EXPECT_EQ(CodeOf(refused->status), c.code) << place;
      EXPECT_EQ(ParamOf(refused->status), place) << InfoOf(c.code).name;
    }
  }
}

TEST_F(RouterTest, AContextThatIsStillCompilingAtTheDeadlineOrDeletedMeanwhileIsNamedByItsPlace) {
  const std::string good = IdOf(kA);
  CreateContextRequest create = TextOf(kB);
  create.wait = 0;
  const auto created = Begin(create);
  world_.executor.RunAll();
  const std::string id = (**created)->record.id.text();
  for (auto& [request, place] : WaysToName(good, id, "")) {
    RequestScope scope = world_.Scope();
    scope.deadline_steady_ns = world_.clock.SteadyNs() + 1'000'000'000;
    const auto late = Begin(std::move(request), scope);
    world_.executor.RunAll();
    world_.clock.AdvanceMs(1001);
    world_.registry.Tick();
    ASSERT_TRUE(late->done);
    EXPECT_EQ(CodeOf(late->status), ErrorCode::kContextCompiling);
    EXPECT_EQ(ParamOf(late->status), place);
    EXPECT_TRUE(RetryAfterMsOf(late->status).has_value());
  }
  const auto waiting = Begin(Asks({Ref(good), Ref(id)}), world_.Scope());
  world_.executor.RunAll();
  EXPECT_OK(contexts_->Delete(world_.Scope(), id));
  world_.Settle();
  EXPECT_EQ(CodeOf(waiting->status), ErrorCode::kContextDeleted);
  EXPECT_EQ(ParamOf(waiting->status), "messages[1].content[1].id");
  ExpectNothingLeft();
}

TEST_F(RouterTest, ContextsWhereOnlyTextMayStandAreNamedToo) {
  CreateContextRequest create;
  create.messages = {{"user", {Text("x")}}, {"user", {Text("y"), Named("doc")}}};
  EXPECT_EQ(ParamOf(Create(create).status()), "messages[1].content[1].name");
  const ModelService models(world_.parts);
  EXPECT_EQ(ParamOf(models.ApplyTemplate({}, {{"user", {Ref("ctx_x")}}}).status()),
            "messages[0].content[0].id");
  CreateContextRequest prefixed = TextOf(kA);
  prefixed.compile_prefix = {.type = "system", .text = {}, .context_id = "ctx_" + std::string(32, 'a')};
  const absl::Status status = Create(prefixed).status();
  EXPECT_EQ(CodeOf(status), ErrorCode::kContextNotFound);
  EXPECT_EQ(ParamOf(status), "compile_prefix.context_id");
}

// --- compile prefixes that a chat names

TEST_F(RouterTest, AChatReadsTheVariantOfACreateWithTheSameSystemPrefix) {
  const std::string head = IdOf("Be brief.");
  CreateContextRequest create = TextOf(kA);
  create.compile_prefix = {.type = "system", .text = "Be brief.", .context_id = {}};
  const std::string a = Create(create)->record.id.text();
  const uint64_t compiles = world_.engine.compiles_started();
  ChatRequest request = Asks({Text("Read this: "), Ref(a), Text("?")});
  request.linking.strategy = "legolink-0";
  request.linking.compile_prefix_object = {.type = "system", .text = "Be brief.", .context_id = {}};
  const auto by_text = Chat(request);
  ASSERT_OK(by_text->status);
  request.linking.compile_prefix_object = {.type = "system", .text = {}, .context_id = head};
  const auto by_id = Chat(request);
  ASSERT_OK(by_id->status);
  EXPECT_EQ(world_.engine.compiles_started(), compiles);
  for (const LinkRequest& link : world_.engine.links()) {
    EXPECT_EQ(link.pieces[1].prefix_tokens, *world_.tokenizer.Encode("Be brief."));
    EXPECT_EQ(link.strategy.compile_prefix, CompilePrefixKind::kSystem);
  }
  EXPECT_EQ(by_id->usage.recomputed_tokens, 0u);
  EXPECT_EQ(by_id->usage.cached_tokens, 50u);
  EXPECT_EQ(by_text->start->system_fingerprint, by_id->start->system_fingerprint);
  request.linking.compile_prefix_object = {.type = "system", .text = "Be long.", .context_id = {}};
  const auto another = Chat(request);
  EXPECT_EQ(world_.engine.compiles_started(), compiles + 1);
  EXPECT_NE(another->start->system_fingerprint, by_id->start->system_fingerprint);
  request.linking.compile_prefix_object = {.type = "bos4", .text = {}, .context_id = {}};
  ASSERT_OK(Chat(request)->status);
  EXPECT_EQ(world_.engine.links().back().pieces[1].prefix_tokens,
            std::vector<TokenId>(4, ByteTokenizer::kEndOfText));
}

TEST_F(RouterTest, AContextThatFollowsTheVeryPrefixThatTheChatNamesIsExactInPlace) {
  const std::string a = IdOf(kA), b = IdOf(kB);
  Chat(Asks({Ref(a), Text("?")}));
  CreateContextRequest head;
  const std::vector<TokenId> tokens = world_.engine.links()[0].pieces[0].tokens;
  head.tokens.emplace(tokens.begin(), tokens.end());
  const std::string head_id = Create(head)->record.id.text();
  ChatRequest request = Asks({Ref(a), Ref(b), Text("?")});
  request.linking.strategy = "legolink-16";
  request.linking.compile_prefix_object = {.type = "system", .text = {}, .context_id = head_id};
  Chat(request);
  const auto linked = Chat(request);
  ASSERT_OK(linked->status);
  EXPECT_EQ(linked->usage.recomputed_tokens, 16u);  // of b only
}

TEST_F(RouterTest, APrefixThatCannotBeHadIsRefusedAtItsField) {
  const std::string a = IdOf(kA), gone = IdOf(kB), foreign = IdOfAnotherModel("foreign");
  ASSERT_OK(contexts_->Delete(world_.Scope(), gone));
  ChatRequest request = Asks({Ref(a)});
  request.linking.strategy = "legolink-0";
  const auto refused = [&](CompilePrefixRequest prefix) {
    request.linking.compile_prefix_object = std::move(prefix);
    return Chat(request)->status;
  };
  const std::string at = "linking.compile_prefix.context_id";
  absl::Status status = refused({.type = "system", .text = {}, .context_id = "nonsense"});
  EXPECT_EQ(CodeOf(status), ErrorCode::kContextNotFound);
  EXPECT_EQ(ParamOf(status), at);
  status = refused({.type = "system", .text = {}, .context_id = gone});
  EXPECT_EQ(CodeOf(status), ErrorCode::kContextDeleted);
  EXPECT_EQ(ParamOf(status), at);
  status = refused({.type = "system", .text = {}, .context_id = foreign});
  EXPECT_EQ(CodeOf(status), ErrorCode::kContextModelMismatch);
  EXPECT_EQ(ParamOf(status), at);
  status = refused({.type = "system", .text = std::string(4096 - 49, 'x'), .context_id = {}});
  EXPECT_EQ(CodeOf(status), ErrorCode::kContextLengthExceeded);
  EXPECT_EQ(ParamOf(status), "linking.compile_prefix");
  EXPECT_THAT(MessageOf(status),
              ::testing::AllOf(::testing::HasSubstr("4097"), ::testing::HasSubstr("4096")));
  EXPECT_OK(refused({.type = "system", .text = std::string(4096 - 50, 'x'), .context_id = {}}));
}

// --- models

TEST_F(RouterTest, ModelsTokensAndTemplates) {
  const ModelService models(world_.parts);
  EXPECT_EQ(models.List()[0].max_model_len, 4096u);
  EXPECT_EQ(CodeOf(models.Get("gpt").status()), ErrorCode::kModelNotFound);
  EXPECT_EQ(models.Tokenize({}, "h\xC3\xA9")->size(), 3u);
  EXPECT_EQ(*models.Detokenize("m", {104, 105}), "hi");
  EXPECT_EQ(ParamOf(models.Detokenize("m", {512}).status()), "tokens[0]");
  EXPECT_EQ(*models.ApplyTemplate({}, {{"user", {Text("hi")}}}),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
}

}  // namespace
}  // namespace epic
