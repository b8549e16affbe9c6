// The Path to one peer over UCX: the thread-safe shell around PathCore. Made by UcxNode::MakePath.
#ifndef EPIC_COMMON_TRANSPORT_UCX_UCX_PATH_H_
#define EPIC_COMMON_TRANSPORT_UCX_UCX_PATH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/transport/transport.h"
#include "common/transport/ucx/path_core.h"

namespace epic::transport {

// What a path and its node share: the node stops paths that outlive it. Thread-safe.
class UcxPathState : public std::enable_shared_from_this<UcxPathState> {
 public:
  explicit UcxPathState(std::shared_ptr<Loop> loop) : loop_(std::move(loop)) {}

  // Once, before anything else.
  void Init(PathShared shared, std::shared_ptr<TicketSource> tickets, PathCoreOptions options,
            PeerDownFn peer_down, uint64_t seed);
  FetchId Fetch(FetchRequest request, std::shared_ptr<FetchListener> listener) ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel(FetchId id) ABSL_LOCKS_EXCLUDED(mu_);
  void Probe(int64_t deadline_ns, std::function<void(const absl::Status&)> done) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns when every listener has heard all. Idempotent; not from the loop.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // A number for something that begins; 0 when the path is stopped.
  FetchId Begin() ABSL_LOCKS_EXCLUDED(mu_);
  void End(FetchId id) ABSL_LOCKS_EXCLUDED(mu_);

  const std::shared_ptr<Loop> loop_;
  std::shared_ptr<PathCore> core_;  // Init; used on the loop
  Mutex mu_;
  CondVar changed_;
  FetchId next_ ABSL_GUARDED_BY(mu_) = 1;
  std::set<FetchId> live_ ABSL_GUARDED_BY(mu_);
  std::set<FetchId> cancelled_ ABSL_GUARDED_BY(mu_);  // of those that live: once is enough
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

class UcxPath final : public Path {
 public:
  UcxPath(std::shared_ptr<UcxPathState> state, Capabilities capabilities)
      : state_(std::move(state)), capabilities_(capabilities) {}
  ~UcxPath() override { state_->Stop(); }

  Capabilities capabilities() const override { return capabilities_; }
  FetchId Fetch(FetchRequest request, std::shared_ptr<FetchListener> listener) override {
    return state_->Fetch(std::move(request), std::move(listener));
  }
  void Cancel(FetchId id) override { state_->Cancel(id); }
  void Probe(int64_t deadline_steady_ns, std::function<void(const absl::Status&)> done) override {
    state_->Probe(deadline_steady_ns, std::move(done));
  }
  void Stop() override { state_->Stop(); }

 private:
  const std::shared_ptr<UcxPathState> state_;
  const Capabilities capabilities_;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_UCX_PATH_H_
