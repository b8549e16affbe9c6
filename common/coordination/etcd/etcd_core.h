// What the parts of an EtcdCoordinator share: the endpoints and which of them is in use, what is known of the
// store's history, calls that run, and the one thread that calls back. Made by EtcdCoordinator, alone for it.
//
// All use one endpoint at a time. Whoever finds that it does not answer says so (Failed): the next is in use
// then, and what still runs on the old one is cancelled and begins anew. Probes find it when nobody else
// does.
//
// A store that was restored from a backup shows in answers that must be newer than what was seen before they
// were asked for, and are older: another cluster id, a lower revision or a lower raft term. Thread-safe.
#ifndef EPIC_COMMON_COORDINATION_ETCD_ETCD_CORE_H_
#define EPIC_COMMON_COORDINATION_ETCD_ETCD_CORE_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/mutex.h"
#include "common/base/timers.h"
#include "common/coordination/coordinator.h"
#include "common/coordination/etcd/etcd_options.h"
#include "etcd/v3/etcd.grpc.pb.h"

namespace epic {

namespace etcdpb = ::etcdserverpb;

// One member of the store.
struct EtcdEndpoint {
  std::string address;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<etcdpb::KV::Stub> kv;
  std::unique_ptr<etcdpb::Watch::Stub> watch;
  std::unique_ptr<etcdpb::Lease::Stub> lease;
};

// Whether a call that ended so was not answered, so that another endpoint may do better.
bool IsUnanswered(const grpc::Status& status);

// Whose history was known when something was asked.
struct HistoryMark {
  uint64_t history = 0;  // grows when it changes
  uint64_t cluster = 0;
  uint64_t raft_term = 0;
  Revision revision = 0;
};

class EtcdCore : public std::enable_shared_from_this<EtcdCore> {
 public:
  explicit EtcdCore(const EtcdOptions& options);

  const EtcdOptions& options() const { return options_; }
  size_t endpoints() const { return endpoints_.size(); }
  EtcdEndpoint& endpoint(size_t at) { return endpoints_[at]; }
  size_t current() const ABSL_LOCKS_EXCLUDED(mu_);
  HistoryMark mark() const ABSL_LOCKS_EXCLUDED(mu_);
  CoordinationHealth health() const ABSL_LOCKS_EXCLUDED(mu_);

  // Called on the thread that calls back, each time the history changes. REQUIRES: set before any call.
  void OnHistoryLost(std::function<void()> callback) { history_lost_ = std::move(callback); }

  // An answer that what a majority holds is in, to what was asked when `mark` was known.
  void Answered(size_t endpoint, const HistoryMark& mark, const etcdpb::ResponseHeader& header)
      ABSL_LOCKS_EXCLUDED(mu_);
  // A watch told of it, in that history: later answers are not older. Passed over when it is another one now.
  void Saw(uint64_t history, Revision revision) ABSL_LOCKS_EXCLUDED(mu_);
  // Passed over for endings that say nothing against the endpoint: OK, answers, cancelled by us.
  void Failed(size_t endpoint, const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void KeepaliveFailed() ABSL_LOCKS_EXCLUDED(mu_);

  // Enters a call that begins on `endpoint`; `deadline_ms` of 0: none. 0 when it must not begin, because of
  // Stop; else a number for Cancel.
  uint64_t Begin(grpc::ClientContext* context, size_t endpoint, int64_t deadline_ms) ABSL_LOCKS_EXCLUDED(mu_);
  // It is on its way: cancels it if that was asked for before, when gRPC knew nothing to cancel.
  void Started(uint64_t call) ABSL_LOCKS_EXCLUDED(mu_);
  // It has ended; `context` may go.
  void End(uint64_t call) ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel(uint64_t call) ABSL_LOCKS_EXCLUDED(mu_);

  // Runs on the thread that calls back, in the order of the calls; not at all after Stop.
  void Dispatch(std::function<void()> task);
  // The same, whatever happens. For what the end of a running call depends on.
  void DispatchAlways(std::function<void()> task) { dispatcher_.Submit(std::move(task)); }
  // The same, later.
  void After(int64_t ms, std::function<void()> task);

  template <typename Response>
  struct Result {
    size_t endpoint = 0;
    HistoryMark mark;
    int64_t sent_ns = 0;
    grpc::Status status;
    Response response;
  };
  // One call on the endpoint in use. `start(endpoint, context, request, response, ended)` begins it; `done`
  // gets what came of it, on the thread that calls back, but nothing after Stop. Says Failed by itself.
  template <typename Response, typename Request, typename Start>
  void Unary(Request request, int64_t deadline_ms, Start start,
             std::function<void(const Result<Response>&)> done);

  // Cancels what runs, waits until it has ended, runs what was dispatched. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  bool stopping() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct RunningCall {
    grpc::ClientContext* context = nullptr;
    size_t endpoint = 0;
    bool cancelled = false;
  };

  static void CancelCall(RunningCall* call) {
    call->cancelled = true;
    call->context->TryCancel();
  }
  bool IsOlder(const HistoryMark& mark, const etcdpb::ResponseHeader& header) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  size_t NextEndpoint() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Constant after construction; synchronise themselves.
  const EtcdOptions options_;
  std::vector<EtcdEndpoint> endpoints_;
  std::function<void()> history_lost_;
  ThreadExecutor dispatcher_;

  mutable Mutex mu_;
  CondVar ended_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  size_t current_ ABSL_GUARDED_BY(mu_) = 0;
  size_t failures_in_row_ ABSL_GUARDED_BY(mu_) = 0;
  HistoryMark seen_ ABSL_GUARDED_BY(mu_);
  CoordinationHealth health_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, RunningCall> running_ ABSL_GUARDED_BY(mu_);
  uint64_t next_call_ ABSL_GUARDED_BY(mu_) = 1;
};

template <typename Response, typename Request, typename Start>
void EtcdCore::Unary(Request request, int64_t deadline_ms, Start start,
                     std::function<void(const Result<Response>&)> done) {
  struct Call {
    grpc::ClientContext context;
    Request request;
    Result<Response> result;
    uint64_t id = 0;
  };
  auto call = std::make_shared<Call>();
  call->request = std::move(request);
  call->result.endpoint = current();
  call->result.mark = mark();
  call->result.sent_ns = options_.clock->SteadyNs();
  call->id = Begin(&call->context, call->result.endpoint, deadline_ms);
  if (call->id == 0) return;
  start(endpoint(call->result.endpoint), &call->context, &call->request, &call->result.response,
        [self = shared_from_this(), call, done = std::move(done)](grpc::Status status) {
          self->Failed(call->result.endpoint, status);
          call->result.status = std::move(status);
          self->Dispatch([call, done] { done(call->result); });
          self->End(call->id);
        });
  Started(call->id);
}

}  // namespace epic

#endif  // EPIC_COMMON_COORDINATION_ETCD_ETCD_CORE_H_
