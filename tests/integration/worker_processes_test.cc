// A store, a compile worker and a link worker as processes on loopback, with mutual TLS and the default
// model: the answer is that of the same cores in one process, token by token. Skipped where the model's file
// is absent.
#include <grpcpp/client_context.h>
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/rpc/credentials.h"
#include "common/status/error.h"
#include "common/testing/child_process.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "tests/integration/worker_cluster.h"

namespace epic {
namespace {

class WorkerProcessesTest : public WorkerCluster {};

TEST_F(WorkerProcessesTest, AnswerAsOneProcessDoesAndEndInOrder) {
  const auto created = remote_->CreateContext(one_->ContextOf(context_));
  ASSERT_OK(created);
  ASSERT_OK(one_->parts().store->CreateContext(one_->ContextOf(context_)));
  const ObjectKey key = Key(created->record.id);
  const auto compiled = Compile(key);
  ASSERT_OK(compiled);
  EXPECT_TRUE(compiled->computed_for_caller());
  const auto again = Compile(key);
  ASSERT_OK(again);
  EXPECT_FALSE(again->computed_for_caller());
  EXPECT_EQ(again->build(), compiled->build());
  const auto record = remote_->GetContext(kTenant, key.id);
  ASSERT_OK(record);
  EXPECT_EQ(record->state, ContextState::kReady);

  ASSERT_OK(LinkInOneProcess(key, "legolink-16").status);  // compiles it there, too
  for (const char* strategy : {"legolink-16", "naive", "full"}) {
    const Answer want = LinkInOneProcess(key, strategy);
    ASSERT_OK(want.status);
    EXPECT_EQ(want.tokens.size(), kTokens);
    ExpectSame(Link(Prompt(key, strategy)), want);
  }
  const auto reference = one_->parts().store->Acquire(
      kTenant, key, one_->parts().engine->LayoutOf(static_cast<uint32_t>(context_.size()), 0));
  ASSERT_OK(reference);
  ASSERT_NE(reference->object, nullptr);
  const Digest& build = reference->object->build();
  EXPECT_EQ(compiled->build(), std::string(build.bytes.begin(), build.bytes.end()));

  EXPECT_NE(link_->Metrics().find("epic_object_lookups_total{result=\"hit\"} 2\n"), std::string::npos);
  EXPECT_NE(compile_->Metrics().find("epic_compiles_total{result=\"ok\"} 1\n"), std::string::npos);
  for (const Part* part : {&*link_, &*compile_}) {
    EXPECT_NE(testing::HttpGet(part->admin, "/health").find(R"({"status":"ok","causes":[]})"),
              std::string::npos);
  }
  testing::WriteFile(File("link", "cert"), "");
  EXPECT_NE(HealthWith(link_->admin, "degraded").find("is empty"), std::string::npos);
  EXPECT_EQ(link_->End(SIGTERM), 0);
  EXPECT_EQ(compile_->End(SIGTERM), 0);
  EXPECT_EQ(store_->End(SIGTERM), 0);
}

TEST_F(WorkerProcessesTest, WhatIsMissingIsCompiledByTheWorkerOrRefused) {
  const auto created = remote_->CreateContext(one_->ContextOf(context_));
  ASSERT_OK(created);
  ASSERT_OK(one_->parts().store->CreateContext(one_->ContextOf(context_)));
  const ObjectKey key = Key(created->record.id);
  v1::LinkPromptRequest strict = Prompt(key, "legolink-16");
  strict.mutable_pieces(0)->set_on_missing(v1::Linking::ON_MISSING_ERROR);
  EXPECT_EQ(CodeOf(Link(strict).status), ErrorCode::kContextObjectMissing);

  const Answer want = LinkInOneProcess(key, "legolink-16");
  const Answer first = Link(Prompt(key, "legolink-16"));
  ExpectSame(first, want);
  EXPECT_EQ(first.recompiled, 1u);
  const Answer second = Link(strict);
  EXPECT_EQ(second.tokens, want.tokens);
  EXPECT_EQ(second.recompiled, 0u);

  // Without its compile worker, and with another one in its place.
  ASSERT_OK(remote_->DropObject(kTenant, key));
  const std::string place = compile_->grpc;
  EXPECT_EQ(compile_->End(SIGKILL), -SIGKILL);
  EXPECT_EQ(CodeOf(Link(Prompt(key, "legolink-16")).status), ErrorCode::kLoading);
  EXPECT_OK(Link(Prompt(key, "full")).status) << "needs no object";
  StartCompileWorker(place);
  // The link worker tries to connect about once a second; until then it says when to come back.
  const int64_t end_ns = SystemClock::Get()->SteadyNs() + int64_t{kBoundS} * 1'000'000'000;
  Answer third;
  do {
    third = Link(Prompt(key, "legolink-16"));
  } while (!third.status.ok() && CodeOf(third.status) == ErrorCode::kLoading &&
           SystemClock::Get()->SteadyNs() < end_ns);
  ExpectSame(third, want);
  EXPECT_EQ(third.recompiled, 1u);
  EXPECT_NE(compile_->Metrics().find("epic_compiles_total{result=\"ok\"} 1\n"), std::string::npos);
}

TEST_F(WorkerProcessesTest, WrongRequestsAndStrangersAreRefused) {
  const auto created = remote_->CreateContext(one_->ContextOf(context_));
  ASSERT_OK(created);
  const ObjectKey key = Key(created->record.id);
  v1::LinkPromptRequest other = Prompt(key, "legolink-16");
  other.mutable_pieces(0)->add_tokens(1);
  EXPECT_THAT(Link(other).status, testing::StatusIs(absl::StatusCode::kInvalidArgument));
  context_.push_back(1);
  EXPECT_THAT(Compile(key), testing::StatusIs(absl::StatusCode::kInvalidArgument));
  context_.pop_back();
  ObjectKey variant = key;
  variant.variant.dtype = KvDtype::kF32;
  EXPECT_THAT(Compile(variant), testing::StatusIs(absl::StatusCode::kInvalidArgument));
  v1::LinkPromptRequest empty = Prompt(key, "legolink-16");
  empty.clear_pieces();
  EXPECT_THAT(Link(empty).status, testing::StatusIs(absl::StatusCode::kInvalidArgument));
  v1::LinkPromptRequest none = Prompt(key, "legolink-16");
  none.set_choices(0);
  EXPECT_THAT(Link(none).status, testing::StatusIs(absl::StatusCode::kInvalidArgument));

  linker_ = v1::LinkWorkerService::NewStub(MakeChannel(link_->grpc, nullptr, {}));
  EXPECT_THAT(Link(Prompt(key, "full")).status, testing::StatusIs(absl::StatusCode::kUnavailable));
  compiler_ = v1::CompileWorkerService::NewStub(MakeChannel(compile_->grpc, nullptr, {}));
  EXPECT_THAT(Compile(key), testing::StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(WorkerProcessesTest, ACancelledCallFreesWhatItHolds) {
  const CacheId id = CacheId::Of(kTenant, one_->parts().identity, context_);
  v1::LinkPromptRequest request = Prompt(Key(id), "full");
  request.mutable_pieces()->DeleteSubrange(0, 1);
  request.set_max_tokens(2000);
  const auto context = Call();
  const auto stream = linker_->Link(context.get(), request);
  v1::LinkEvent event;
  bool began = false;
  while (!began && stream->Read(&event)) began = event.has_delta();
  ASSERT_TRUE(began);
  EXPECT_NE(link_->Metrics().find("epic_requests_running 1\n"), std::string::npos);
  context->TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  const int64_t end_ns = SystemClock::Get()->SteadyNs() + int64_t{kBoundS} * 1'000'000'000;
  bool free = false;
  while (!free && SystemClock::Get()->SteadyNs() < end_ns) {
    free = link_->Metrics().find("epic_requests_running 0\n") != std::string::npos;
  }
  EXPECT_TRUE(free);
  EXPECT_EQ(link_->End(SIGTERM), 0);
}

TEST_F(WorkerProcessesTest, ANodeTellsOfBadCertificatesAndGoesOn) {
  std::vector<std::string> arguments = Arguments(
      "link",
      {"model.path=" + model_, "store.data_dir=" + dir_.path() + "/serve", "engine.memory_bytes=512MiB"});
  arguments.insert(arguments.begin(),
                   {"--json", "serve", "--http", "127.0.0.1:0", "--admin-grpc", "127.0.0.1:0"});
  testing::ChildProcess node("epic", arguments);
  std::string admin = node.Behind(R"("admin":")");
  admin = admin.substr(0, admin.find('"'));
  ASSERT_FALSE(admin.empty());
  EXPECT_NE(HealthWith(admin, "ok").find(R"("causes":[])"), std::string::npos);
  testing::WriteFile(File("link", "cert"), "");
  EXPECT_NE(HealthWith(admin, "degraded").find("is empty"), std::string::npos);
  EXPECT_EQ(node.End(SIGTERM), 0);
}

TEST(CompileWorkerProcessTest, HasNoFlagForTheNameOfAModelItServesToNobody) {
  EXPECT_EQ(testing::ChildProcess("epic-compile-worker", {"--model-alias", "m"}).End(0), 2);
}

}  // namespace
}  // namespace epic
