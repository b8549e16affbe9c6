#include "services/kv_store/rpc/attachments.h"

#include <utility>
#include <vector>

#include "common/status/error.h"

namespace epic::kv_store {
namespace {

constexpr size_t kMaxAttached = 4096;

}  // namespace

// gRPC holds it until OnDone, the table as long as it is its peer's last one.
class Attachments::Stream final : public grpc::ServerWriteReactor<v1::AttachResponse>,
                                  public std::enable_shared_from_this<Stream> {
 public:
  Stream(Attachments* owner, grpc::CallbackServerContext* context, PeerId peer)
      : owner_(owner), peer_(peer), answer_(owner->welcome_), call_(owner->parts_, context, "attach") {}

  // Once, before it is returned to gRPC.
  void Begin() {
    {
      MutexLock lock(&mu_);
      grpc_hold_ = shared_from_this();
    }
    if (!owner_->Add(peer_, shared_from_this())) {
      return End(RetryLater(ErrorCode::kDraining, "the node takes no more callers: use another one", 1000));
    }
    StartWrite(&answer_);
  }
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      if (std::exchange(ended_, true)) return;
    }
    Finish(call_.SetOutcome(status));
  }

  void OnWriteDone(bool ok) override {
    if (!ok) End(Error(ErrorCode::kClientGone, "the client went away"));
  }
  void OnCancel() override {
    call_.Cancel(/*by_client=*/true);
    End(Error(ErrorCode::kClientGone, "the client went away"));
  }
  void OnDone() override {
    call_.Report();
    owner_->Remove(peer_, this);
    std::shared_ptr<Stream> last;  // outlives the lock: it may free the stream and its mutex
    MutexLock lock(&mu_);
    last = std::move(grpc_hold_);
  }

 private:
  Attachments* const owner_;
  const PeerId peer_;
  v1::AttachResponse answer_;
  RpcCall call_;  // synchronises itself

  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<Stream> grpc_hold_ ABSL_GUARDED_BY(mu_);
};

grpc::ServerWriteReactor<v1::AttachResponse>* Attachments::Attach(grpc::CallbackServerContext* context,
                                                                  const v1::AttachRequest& request) {
  auto stream = std::make_shared<Stream>(this, context, request.peer());
  stream->Begin();
  return stream.get();
}

void Attachments::Drain() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    MutexLock lock(&mu_);
    draining_ = true;
    for (const auto& [peer, stream] : attached_) streams.push_back(stream);
  }
  for (const auto& stream : streams) {
    stream->End(RetryLater(ErrorCode::kDraining, "the node stops: use another one", 1000));
  }
}

bool Attachments::Add(PeerId peer, std::shared_ptr<Stream> stream) {
  std::shared_ptr<Stream> before;  // outlives the lock
  MutexLock lock(&mu_);
  if (draining_ || (attached_.size() >= kMaxAttached && !attached_.contains(peer))) return false;
  before = std::exchange(attached_[peer], std::move(stream));
  return true;
}

void Attachments::Remove(PeerId peer, const Stream* stream) {
  std::shared_ptr<Stream> last;  // outlives the lock
  {
    MutexLock lock(&mu_);
    const auto found = attached_.find(peer);
    if (found == attached_.end() || found->second.get() != stream) return;
    last = std::move(found->second);
    attached_.erase(found);
  }
  // Frees memory: not on a thread of gRPC.
  parts_->executor->Submit([node = node_, peer] { node->Goodbye(peer); });
}

}  // namespace epic::kv_store
