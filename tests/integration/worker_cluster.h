// A store, a compile worker and a link worker as processes on loopback, with mutual TLS and the default
// model, and the same cores in this process to compare with. Tests only. Skipped where the model's file is
// absent.
#ifndef EPIC_TESTS_INTEGRATION_WORKER_CLUSTER_H_
#define EPIC_TESTS_INTEGRATION_WORKER_CLUSTER_H_

#include <grpcpp/client_context.h>
#include <signal.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/rpc/credentials.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/kv_store/object_convert.h"
#include "common/rpc/kv_store/remote_kv_store.h"
#include "common/rpc/testing/certificates.h"
#include "common/status/error.h"
#include "common/testing/child_process.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "epic/v1/compile.grpc.pb.h"
#include "epic/v1/link.grpc.pb.h"
#include "services/compile_worker/core/compile_service.h"
#include "services/link_worker/core/link_service.h"
#include "services/node/node_parts.h"

namespace epic {

inline constexpr char kTenant[] = "default";
inline constexpr char kName[] = "part.epic.test";  // that every certificate bears
inline constexpr uint32_t kTokens = 24;
inline constexpr int kBoundS = 60;

// What an answer was.
struct Answer {
  absl::Status status;
  std::string text;
  std::vector<std::string> tokens;  // their bytes
  std::vector<float> logprobs;
  uint32_t cached = 0;
  uint32_t recompiled = 0;
};

// A process and where it listens.
class Part {
 public:
  Part(const std::string& binary, const std::vector<std::string>& arguments)
      : child_(binary, arguments), grpc(child_.Behind("gRPC  ")), admin(child_.Behind("admin http://")) {}
  int End(int signal) { return child_.End(signal); }
  void Signal(int signal) const { kill(child_.pid(), signal); }
  std::string Metrics() const { return testing::HttpGet(admin, "/metrics"); }

 private:
  testing::ChildProcess child_;

 public:
  const std::string grpc, admin;
};

// The first answer to /health at `admin` that has `word`, or the last one when the time is up.
inline std::string HealthWith(const std::string& admin, const std::string& word) {
  const int64_t end_ns = SystemClock::Get()->SteadyNs() + int64_t{kBoundS} * 1'000'000'000;
  std::string health;
  do {
    health = testing::HttpGet(admin, "/health");
  } while (health.find(word) == std::string::npos && SystemClock::Get()->SteadyNs() < end_ns);
  return health;
}

// The same cores in this process.
class OneProcess {
 public:
  explicit OneProcess(const Config& config) : executor_(2, 64) {
    auto parts = LoadParts(config, SystemClock::Get(), nullptr);
    EXPECT_OK(parts);
    parts_ = *std::move(parts);
    served_ = {.alias = parts_.alias,
               .created_unix = 0,
               .identity = parts_.identity,
               .architecture = parts_.architecture,
               .parameters = parts_.parameters,
               .tokenizer = parts_.tokenizer.get(),
               .chat_template = parts_.chat_template.get(),
               .engine = parts_.engine.get()};
    compiler_.emplace(CompileLimits(), parts_.engine.get(), parts_.store.get(), &executor_,
                      SystemClock::Get());
    linker_.emplace(HeadLimits(), &served_, parts_.store.get(), &*compiler_, &executor_, SystemClock::Get());
  }
  ~OneProcess() {
    compiler_->Stop();
    parts_.engine->Stop();
    executor_.Stop();
  }
  std::vector<TokenId> Tokens(const std::string& text) const {
    const auto tokens = parts_.tokenizer->Encode(text);
    EXPECT_OK(tokens);
    return *tokens;
  }
  NewContext ContextOf(const std::vector<TokenId>& tokens) const {
    NewContext context;
    context.tenant = kTenant;
    context.model_identity = parts_.identity;
    context.model = parts_.alias;
    context.tokens = tokens;
    return context;
  }
  const NodeParts& parts() const { return parts_; }
  Linker* linker() { return &*linker_; }

 private:
  NodeParts parts_;
  ServedModel served_;
  ThreadExecutor executor_;
  std::optional<CompileService> compiler_;
  std::optional<LinkService> linker_;
};

class Collect final : public LinkEvents {
 public:
  void OnAdmitted(std::optional<uint32_t>) override {}
  bool OnDelta(LinkDelta delta) override {
    answer.text += delta.text;
    for (const LinkLogprob& one : delta.logprobs) {
      answer.tokens.push_back(one.bytes);
      answer.logprobs.push_back(one.logprob);
    }
    return true;
  }
  void OnFinish(uint32_t, FinishReason) override {}
  void OnDone(const absl::Status& status, const LinkUsage& usage, const LinkTimings& timings) override {
    answer.status = status;
    answer.cached = usage.cached_tokens;
    answer.recompiled = timings.recompiled_objects;
    done.set_value();
  }
  Answer answer;
  std::promise<void> done;
};

class WorkerCluster : public ::testing::Test {
 protected:
  // `sets`: settings of every process.
  explicit WorkerCluster(std::vector<std::string> sets = {}) : sets_(std::move(sets)) {}

  void SetUp() override {
    const std::optional<std::string> path = testing::DefaultModelPath();
    if (!path.has_value()) GTEST_SKIP() << "the default model is not in the cache: run deploy/fetch_model.sh";
    model_ = *path;
    for (const char* who : {"store", "compile", "link", "client"}) {
      const testing::Identity identity = authority_.Issue({.dns = {kName, who}, .ip = {}});
      testing::WriteFile(File(who, "cert"), identity.cert_pem);
      testing::WriteFile(File(who, "key"), identity.key_pem);
    }
    testing::WriteFile(dir_.path() + "/ca.pem", authority_.pem());
    auto credentials =
        Credentials::Load({.paths = {File("client", "cert"), File("client", "key"), dir_.path() + "/ca.pem"},
                           .peer_name = kName,
                           .on_change = {}});
    ASSERT_OK(credentials);
    credentials_ = *std::move(credentials);
    StartProcesses();
    StartReference();
  }

  void StartProcesses() {
    StartStore();
    StartCompileWorker();
    StartLinkWorker();
    auto remote = MakeRemoteKvStore({.address = store_->grpc, .credentials = credentials_});
    ASSERT_OK(remote);
    remote_ = *std::move(remote);
  }
  void StartStore(const std::string& grpc = "127.0.0.1:0") {
    store_.emplace("epic-kv-store", Arguments("store", {"store.data_dir=" + dir_.path() + "/node"}, grpc));
    ASSERT_FALSE(store_->grpc.empty());
  }
  void StartLinkWorker() {
    link_.emplace(
        "epic-link-worker",
        Arguments("link", {"model.path=" + model_, "cluster.stores=" + store_->grpc,
                           "cluster.compile_workers=" + compile_->grpc, "engine.memory_bytes=512MiB"}));
    ASSERT_FALSE(link_->grpc.empty());
    linker_ = v1::LinkWorkerService::NewStub(MakeChannel(link_->grpc, credentials_.get(), {}));
  }
  void StartCompileWorker(const std::string& grpc = "127.0.0.1:0") {
    compile_.emplace(
        "epic-compile-worker",
        Arguments("compile",
                  {"model.path=" + model_, "cluster.stores=" + store_->grpc, "engine.memory_bytes=512MiB"},
                  grpc));
    ASSERT_FALSE(compile_->grpc.empty());
    compiler_ = v1::CompileWorkerService::NewStub(MakeChannel(compile_->grpc, credentials_.get(), {}));
  }
  void StartReference() {
    Config config = DefaultConfig();
    config.model.path = model_;
    config.store.data_dir = dir_.path() + "/one";
    config.store.memory_bytes = int64_t{256} << 20;
    one_.emplace(config);
    context_ = one_->Tokens(
        "The lighthouse at Orford was built in 1792 and stood for more than two hundred years before the sea "
        "took "
        "the beach in front of it. Its keeper wrote down the weather every evening, and his notes are kept "
        "in the "
        "town hall, in a box that nobody had opened for a long time.");
    question_ = one_->Tokens("\nQuestion: When was the lighthouse built?\nAnswer:");
  }

  std::string File(const std::string& who, const std::string& what) const {
    return dir_.path() + "/" + who + "." + what + ".pem";
  }
  std::vector<std::string> Arguments(const std::string& who, std::vector<std::string> sets,
                                     const std::string& grpc = "127.0.0.1:0") const {
    std::vector<std::string> arguments = {"--grpc", grpc, "--admin", "127.0.0.1:0"};
    for (const std::string& set :
         {"tls.cert_file=" + File(who, "cert"), "tls.key_file=" + File(who, "key"),
          "tls.ca_file=" + dir_.path() + "/ca.pem", "tls.peer_name=" + std::string(kName),
          std::string("store.memory_bytes=256MiB"), std::string("deadlines.drain_ms=5s")}) {
      sets.push_back(set);
    }
    sets.insert(sets.end(), sets_.begin(), sets_.end());
    for (const std::string& set : sets) arguments.insert(arguments.end(), {"--set", set});
    return arguments;
  }

  static std::unique_ptr<grpc::ClientContext> Call() {
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(kBoundS));
    return context;
  }

  ObjectKey Key(const CacheId& id) const {
    return {id, VariantOf(*one_->parts().engine, CompilePrefixKind::kNone, {})};
  }
  absl::StatusOr<v1::CompileContextResponse> Compile(const ObjectKey& key) {
    v1::CompileContextRequest request;
    v1::CompileContextResponse response;
    request.set_tenant(kTenant);
    *request.mutable_key() = ToProto(std::span(&key, 1), {});
    request.mutable_tokens()->Add(context_.begin(), context_.end());
    request.set_sets_state(true);
    const absl::Status status = FromGrpcStatus(compiler_->Compile(Call().get(), request, &response));
    if (!status.ok()) return status;
    return response;
  }

  v1::LinkPromptRequest Prompt(const ObjectKey& key, const std::string& strategy) const {
    v1::LinkPromptRequest request;
    request.set_tenant(kTenant);
    request.set_strategy(strategy);
    v1::PromptPiece* context = request.add_pieces();
    context->set_kind(v1::PromptPiece::KIND_CONTEXT);
    context->mutable_tokens()->Add(context_.begin(), context_.end());
    *context->mutable_key() = ToProto(std::span(&key, 1), {});
    context->set_place("context_ids[0]");
    v1::PromptPiece* question = request.add_pieces();
    question->set_kind(v1::PromptPiece::KIND_TEXT);
    question->mutable_tokens()->Add(question_.begin(), question_.end());
    request.mutable_sampling()->set_top_p(1);
    request.mutable_sampling()->set_repetition_penalty(1);
    request.mutable_sampling()->set_logprobs(true);
    request.set_choices(1);
    request.set_max_tokens(kTokens);
    request.set_ignore_eos(true);
    return request;
  }
  Answer Link(const v1::LinkPromptRequest& request) {
    Answer answer;
    const auto context = Call();
    const auto stream = linker_->Link(context.get(), request);
    v1::LinkEvent event;
    while (stream->Read(&event)) {
      answer.text += event.delta().text();
      for (const auto& one : event.delta().logprobs()) {
        answer.tokens.push_back(one.token());
        answer.logprobs.push_back(one.logprob());
      }
      if (!event.has_done()) continue;
      answer.cached = event.done().usage().cached_tokens();
      answer.recompiled = event.done().recompiled_objects();
    }
    answer.status = FromGrpcStatus(stream->Finish());
    return answer;
  }
  Answer LinkInOneProcess(const ObjectKey& key, const std::string& strategy) {
    LinkJob job;
    job.tenant = kTenant;
    LinkPiece context;
    context.kind = LinkPiece::Kind::kContext;
    context.tokens = context_;
    context.context = key.id;
    context.variant = key.variant;
    LinkPiece question;
    question.tokens = question_;
    job.pieces = {context, question};
    job.strategy = *ParseStrategy(strategy);
    job.sampling.temperature = 0;
    job.sampling.logprobs = true;
    job.max_tokens = kTokens;
    job.ignore_eos = true;
    const auto events = std::make_shared<Collect>();
    one_->linker()->Link(std::move(job), events);
    events->done.get_future().wait();
    return events->answer;
  }
  void ExpectSame(const Answer& got, const Answer& want) {
    EXPECT_OK(got.status);
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.text, want.text);
    EXPECT_EQ(got.logprobs, want.logprobs) << "bit for bit: the same machine, the same sums";
    EXPECT_EQ(got.cached, want.cached);
  }

  const std::vector<std::string> sets_;
  const testing::Authority authority_{"authority"};
  testing::TempDir dir_;
  std::string model_;
  std::shared_ptr<Credentials> credentials_;
  std::optional<Part> store_, compile_, link_;
  std::unique_ptr<KvStore> remote_;
  std::unique_ptr<v1::CompileWorkerService::Stub> compiler_;
  std::unique_ptr<v1::LinkWorkerService::Stub> linker_;
  std::optional<OneProcess> one_;
  std::vector<TokenId> context_, question_;
};

}  // namespace epic

#endif  // EPIC_TESTS_INTEGRATION_WORKER_CLUSTER_H_
