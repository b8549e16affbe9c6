#include "services/router/rpc/chat_service.h"

#include <deque>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/status/error.h"
#include "services/router/rpc/convert.h"

namespace epic {
namespace {

// Both ends of one stream: the sink that the core fills and the reactor that gRPC drains. gRPC holds it until
// OnDone, the core until OnDone of the sink; the last of the two frees it.
class ChatStream final : public ChatSink,
                         public grpc::ServerWriteReactor<v1::ChatEvent>,
                         public std::enable_shared_from_this<ChatStream> {
 public:
  ChatStream(const RpcParts* parts, grpc::CallbackServerContext* context, size_t max_buffer_bytes)
      : call_(parts, context, "chat"), max_buffer_bytes_(max_buffer_bytes) {}

  // Keeps the stream alive for gRPC. Once, before it is returned to gRPC.
  void HoldForGrpc() {
    MutexLock lock(&mu_);
    grpc_hold_ = shared_from_this();
  }
  const RequestScope& scope() const { return call_.scope(); }

  // --- sink ---
  void OnStart(const ChatStart& start) override { Push(ToProto(start)); }
  bool OnDelta(ChatDelta delta) override { return Push(ToProto(delta)); }
  void OnFinish(uint32_t choice, const std::string& reason) override {
    v1::ChatEvent event;
    event.mutable_finish()->set_choice(choice);
    event.mutable_finish()->set_reason(reason);
    Push(std::move(event));
  }
  void OnDone(const absl::Status& status, const ChatUsage& usage, const ChatTimings& timings) override {
    if (status.ok()) Push(DoneEvent(usage, timings));
    MutexLock lock(&mu_);
    ended_ = true;
    const absl::Status end =
        overflow_ ? Error(ErrorCode::kClientGone, "the client reads too slowly: its stream was cut") : status;
    final_status_ = call_.SetOutcome(end);
    FinishIfDrained();
  }

  // --- reactor ---
  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    writing_ = false;
    buffered_bytes_ -= queue_.front().ByteSizeLong();
    queue_.pop_front();
    if (!ok) {
      call_.Cancel(/*by_client=*/true);
      queue_.clear();
      buffered_bytes_ = 0;
      broken_ = true;
    }
    WriteNext();
    FinishIfDrained();
  }
  void OnCancel() override { call_.Cancel(/*by_client=*/true); }
  void OnDone() override {
    call_.Report();
    std::shared_ptr<ChatStream> last;  // outlives the lock: it may free the stream and its mutex
    MutexLock lock(&mu_);
    broken_ = true;
    last = std::move(grpc_hold_);
  }

 private:
  bool Push(v1::ChatEvent event) {
    MutexLock lock(&mu_);
    if (broken_ || overflow_) return false;
    buffered_bytes_ += event.ByteSizeLong();
    if (buffered_bytes_ > max_buffer_bytes_) {
      overflow_ = true;
      call_.Cancel(/*by_client=*/false);
      return false;
    }
    queue_.push_back(std::move(event));
    WriteNext();
    return true;
  }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || queue_.empty() || broken_) return;
    writing_ = true;
    StartWrite(&queue_.front());
  }

  void FinishIfDrained() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!ended_ || finished_ || writing_ || !queue_.empty()) return;
    finished_ = true;
    Finish(final_status_);
  }

  RpcCall call_;  // synchronises itself
  const size_t max_buffer_bytes_;

  Mutex mu_;
  std::deque<v1::ChatEvent> queue_ ABSL_GUARDED_BY(mu_);  // the front one is being written while writing_
  size_t buffered_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  bool overflow_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status final_status_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<ChatStream> grpc_hold_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

grpc::ServerWriteReactor<v1::ChatEvent>* ChatRpcService::Complete(grpc::CallbackServerContext* context,
                                                                  const v1::ChatRequest* request) {
  auto stream = std::make_shared<ChatStream>(parts_, context, max_buffer_bytes_);
  stream->HoldForGrpc();
  absl::StatusOr<ChatRequest> parsed = FromProto(*request);
  if (!parsed.ok()) {
    static_cast<ChatSink&>(*stream).OnDone(parsed.status(), {}, {});
  } else {
    chat_->Complete(stream->scope(), std::move(parsed).value(), stream);
  }
  return stream.get();
}

}  // namespace epic
