#include "services/link_worker/rpc/compile_client.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/rpc/credentials.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/kv_store/object_convert.h"
#include "common/status/error.h"
#include "epic/v1/compile.grpc.pb.h"

namespace epic {
namespace {

constexpr int kBackoffMs = 1000;
constexpr int64_t kForgetMs = 10'000;
constexpr int64_t kRetryAfterMs = 1000;

struct Worker {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::CompileWorkerService::Stub> stub;
};

void SetDeadline(grpc::ClientContext* context, int64_t ms) {
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(ms));
}

absl::Status Draining() {
  return Error(ErrorCode::kDraining, "the server is stopping: send the request elsewhere");
}

class RealCompileClient final : public CompileClient {
 public:
  RealCompileClient(const CompileClientOptions& options, KvStore* store, Executor* executor)
      : call_ms_(options.call_ms), store_(store), executor_(executor) {
    for (const std::string& address : options.workers) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kBackoffMs);
      Worker worker{.channel = MakeChannel(address, options.credentials.get(), arguments), .stub = nullptr};
      worker.stub = v1::CompileWorkerService::NewStub(worker.channel);
      workers_.push_back(std::move(worker));
    }
  }
  ~RealCompileClient() override { Stop(); }

  absl::StatusOr<CompileTicket> Ensure(CompileJob job, Done done) override;
  void Abandon(CompileTicket ticket) override;
  bool Detach(CompileTicket ticket) override;
  void Forget(std::string_view tenant, const CacheId& id) override;
  void Stop() override;

 private:
  // One Ensure. gRPC's callback holds it.
  struct Call {
    CompileTicket ticket = 0;
    ObjectKey key;
    std::string tenant;
    v1::CompileContextRequest request;
    v1::CompileContextResponse response;
    std::vector<std::unique_ptr<grpc::ClientContext>> tried;  // the last one may run; under mu_
    size_t worker = 0;
  };

  // Sends the call to its worker, unless it is over already.
  void Send(const std::shared_ptr<Call>& call) ABSL_LOCKS_EXCLUDED(mu_);
  void OnAnswer(const std::shared_ptr<Call>& call, const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // Reads from the store what was compiled.
  absl::StatusOr<CompileOutcome> Fetch(const Call& call);
  // The waiter of the ticket, which is told nothing any more by anybody else; an empty Done when it is gone.
  // TakeLast: and the call is over.
  Done TakeLast(CompileTicket ticket) ABSL_LOCKS_EXCLUDED(mu_);
  Done TakeWaiter(CompileTicket ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Begun() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { ++in_grpc_; }
  void Ended() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (--in_grpc_ == 0) idle_.SignalAll();
  }

  const int64_t call_ms_;
  KvStore* const store_;
  Executor* const executor_;
  std::vector<Worker> workers_;  // constant after construction

  Mutex mu_;
  CondVar idle_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t in_grpc_ ABSL_GUARDED_BY(mu_) = 0;  // calls, and steps after them
  CompileTicket next_ticket_ ABSL_GUARDED_BY(mu_) = 1;
  // Until gRPC has the last answer, or nobody wants it: those that somebody detached from are here, too.
  std::map<CompileTicket, std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mu_);
  std::map<CompileTicket, Done> waiters_ ABSL_GUARDED_BY(mu_);
  std::set<grpc::ClientContext*> notes_ ABSL_GUARDED_BY(mu_);  // of Forget; their callbacks hold them
};

absl::StatusOr<CompileTicket> RealCompileClient::Ensure(CompileJob job, Done done) {
  if (workers_.empty()) {
    return Error(ErrorCode::kContextObjectMissing,
                 "the object is not stored, and no compile worker is named (cluster.compile_workers)");
  }
  auto call = std::make_shared<Call>();
  call->key = job.key;
  call->tenant = job.tenant;
  call->worker = std::hash<std::string>()(job.key.id.text()) % workers_.size();
  call->request.set_tenant(job.tenant);
  *call->request.mutable_key() = ToProto(std::span(&job.key, 1), {});
  call->request.mutable_tokens()->Add(job.tokens.begin(), job.tokens.end());
  call->request.mutable_prefix_tokens()->Add(job.prefix_tokens.begin(), job.prefix_tokens.end());
  call->request.set_sets_state(job.sets_state);
  const CompileTicket ticket = [&] {
    MutexLock lock(&mu_);
    call->ticket = stopping_ ? 0 : next_ticket_++;
    if (call->ticket == 0) return call->ticket;
    calls_.emplace(call->ticket, call);
    waiters_.emplace(call->ticket, std::move(done));
    return call->ticket;
  }();
  if (ticket == 0) return Draining();
  Send(call);
  return ticket;
}

void RealCompileClient::Send(const std::shared_ptr<Call>& call) {
  grpc::ClientContext* context = nullptr;
  {
    MutexLock lock(&mu_);
    if (!calls_.contains(call->ticket)) return;
    call->tried.push_back(std::make_unique<grpc::ClientContext>());
    context = call->tried.back().get();
    Begun();
  }
  SetDeadline(context, call_ms_);
  workers_[call->worker].stub->async()->Compile(context, &call->request, &call->response,
                                                [this, call](grpc::Status status) {
                                                  OnAnswer(call, status);
                                                  Ended();
                                                });
}

void RealCompileClient::OnAnswer(const std::shared_ptr<Call>& call, const grpc::Status& status) {
  if (status.ok()) {
    {
      MutexLock lock(&mu_);
      Begun();
    }
    executor_->Submit([this, call] {
      if (const Done done = TakeLast(call->ticket); done) done(Fetch(*call));
      Ended();
    });
    return;
  }
  // What a worker itself says has details.
  const bool unreachable =
      status.error_code() == grpc::StatusCode::UNAVAILABLE && status.error_details().empty();
  if (unreachable && call->tried.size() < workers_.size()) {
    call->worker = (call->worker + 1) % workers_.size();
    return Send(call);
  }
  const Done done = TakeLast(call->ticket);
  if (!done) return;
  done(unreachable ? RetryLater(ErrorCode::kLoading,
                                "no compile worker can be reached: " + status.error_message(), kRetryAfterMs)
                   : FromGrpcStatus(status));
}

absl::StatusOr<CompileOutcome> RealCompileClient::Fetch(const Call& call) {
  const absl::StatusOr<KvLayout> layout = FromProto(call.response.layout());
  if (!layout.ok()) return layout.status();
  const absl::StatusOr<AcquireResult> read = store_->AcquireStreaming(call.tenant, call.key, *layout);
  if (!read.ok()) return read.status();
  if (read->object == nullptr) {
    return RetryLater(ErrorCode::kStorageFull,
                      "the store did not keep the object that was compiled for this request", kRetryAfterMs);
  }
  return CompileOutcome{read->object, call.response.computed_for_caller()};
}

Compiler::Done RealCompileClient::TakeLast(CompileTicket ticket) {
  MutexLock lock(&mu_);
  calls_.erase(ticket);
  return TakeWaiter(ticket);
}

Compiler::Done RealCompileClient::TakeWaiter(CompileTicket ticket) {
  const auto found = waiters_.find(ticket);
  if (found == waiters_.end()) return nullptr;
  Done done = std::move(found->second);
  waiters_.erase(found);
  return done;
}

void RealCompileClient::Abandon(CompileTicket ticket) {
  Done done;
  {
    MutexLock lock(&mu_);
    done = TakeWaiter(ticket);
    if (!done) return;
    const auto call = calls_.find(ticket);
    EPIC_CHECK(call != calls_.end());
    if (!call->second->tried.empty()) call->second->tried.back()->TryCancel();
    calls_.erase(call);
  }
  done(absl::CancelledError("no longer waited for"));
}

bool RealCompileClient::Detach(CompileTicket ticket) {
  Done dropped;  // destroyed outside the lock
  MutexLock lock(&mu_);
  dropped = TakeWaiter(ticket);
  return static_cast<bool>(dropped);
}

void RealCompileClient::Forget(std::string_view tenant, const CacheId& id) {
  struct Note {
    grpc::ClientContext context;
    v1::ForgetContextRequest request;
    v1::ForgetContextResponse response;
  };
  for (const Worker& worker : workers_) {
    auto note = std::make_shared<Note>();
    note->request.set_tenant(std::string(tenant));
    AppendCacheId(id, note->request.mutable_id());
    SetDeadline(&note->context, kForgetMs);
    {
      MutexLock lock(&mu_);
      if (stopping_) return;
      Begun();
      notes_.insert(&note->context);
    }
    // One that cannot be reached compiles for nobody: its commit fails, as the context is gone.
    worker.stub->async()->Forget(&note->context, &note->request, &note->response,
                                 [this, note](const grpc::Status&) {
                                   {
                                     MutexLock lock(&mu_);
                                     notes_.erase(&note->context);
                                   }
                                   Ended();
                                 });
  }
}

void RealCompileClient::Stop() {
  std::map<CompileTicket, Done> waiters;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    waiters.swap(waiters_);
    for (const auto& [ticket, call] : calls_) {
      if (!call->tried.empty()) call->tried.back()->TryCancel();
    }
    calls_.clear();
    for (grpc::ClientContext* note : notes_) note->TryCancel();
  }
  for (const auto& [ticket, done] : waiters) done(Draining());
  MutexLock lock(&mu_);
  while (in_grpc_ > 0) idle_.Wait(&mu_);
}

}  // namespace

std::unique_ptr<CompileClient> CompileClient::Make(const CompileClientOptions& options, KvStore* store,
                                                   Executor* executor) {
  return std::make_unique<RealCompileClient>(options, store, executor);
}

}  // namespace epic
