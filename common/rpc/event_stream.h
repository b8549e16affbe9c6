// One call whose answer is a stream of events: whoever makes events pushes them, gRPC writes them one by one.
//
// gRPC holds the stream until it is done with it, whoever pushes as long as it likes; the last of them frees
// it. Events wait in a queue of bounded bytes: a client that reads too slowly is cut. Thread-safe.
#ifndef EPIC_COMMON_RPC_EVENT_STREAM_H_
#define EPIC_COMMON_RPC_EVENT_STREAM_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/rpc/rpc_call.h"
#include "common/status/error.h"

namespace epic {

// `Event`: a message of protobuf.
template <typename Event>
class EventStream final : public grpc::ServerWriteReactor<Event>,
                          public std::enable_shared_from_this<EventStream<Event>> {
 public:
  // `name` outlives the stream. Return get() of it to gRPC.
  static std::shared_ptr<EventStream> Make(const RpcParts* parts, grpc::CallbackServerContext* context,
                                           std::string_view name, size_t max_buffer_bytes) {
    std::shared_ptr<EventStream> stream(new EventStream(parts, context, name, max_buffer_bytes));
    MutexLock lock(&stream->mu_);
    stream->grpc_hold_ = stream;
    return stream;
  }
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;

  const RequestScope& scope() const { return call_.scope(); }

  // False: nobody will read it, or too much waits already.
  bool Push(Event event) ABSL_LOCKS_EXCLUDED(mu_) {
    std::function<void()> cancel;
    {
      MutexLock lock(&mu_);
      if (broken_ || overflow_) return false;
      buffered_bytes_ += event.ByteSizeLong();
      if (buffered_bytes_ <= max_buffer_bytes_) {
        queue_.push_back(std::move(event));
        WriteNext();
        return true;
      }
      overflow_ = true;
      cancel = on_cancel_;
    }
    call_.Cancel(/*by_client=*/false);
    if (cancel) cancel();
    return false;
  }
  // Once; nothing is pushed afterwards. What was pushed is written first.
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    ended_ = true;
    on_cancel_ = nullptr;
    const absl::Status end =
        overflow_ ? Error(ErrorCode::kClientGone, "the client reads too slowly: its stream was cut") : status;
    final_status_ = call_.SetOutcome(end);
    FinishIfDrained();
  }
  // `cancel` is called, maybe more than once, when the client is gone, its deadline is over or it is cut, at
  // once if that was already; not after End. Any thread.
  void OnCancelDo(std::function<void()> cancel) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      if (ended_) return;
      on_cancel_ = cancel;
      if (!scope().cancel.cancelled()) return;
    }
    cancel();
  }

  // --- reactor ---
  void OnWriteDone(bool ok) override {
    std::function<void()> cancel;
    {
      MutexLock lock(&mu_);
      writing_ = false;
      buffered_bytes_ -= queue_.front().ByteSizeLong();
      queue_.pop_front();
      if (!ok) {
        queue_.clear();
        buffered_bytes_ = 0;
        broken_ = true;
        cancel = on_cancel_;
      }
      WriteNext();
      FinishIfDrained();
    }
    if (ok) return;
    call_.Cancel(/*by_client=*/true);
    if (cancel) cancel();
  }
  void OnCancel() override {
    call_.Cancel(/*by_client=*/true);
    std::function<void()> cancel;
    {
      MutexLock lock(&mu_);
      cancel = on_cancel_;
    }
    if (cancel) cancel();
  }
  void OnDone() override {
    call_.Report();
    std::shared_ptr<EventStream> last;  // outlives the lock: it may free the stream and its mutex
    MutexLock lock(&mu_);
    broken_ = true;
    last = std::move(grpc_hold_);
  }

 private:
  EventStream(const RpcParts* parts, grpc::CallbackServerContext* context, std::string_view name,
              size_t max_buffer_bytes)
      : call_(parts, context, name), max_buffer_bytes_(max_buffer_bytes) {}

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || queue_.empty() || broken_) return;
    writing_ = true;
    this->StartWrite(&queue_.front());
  }
  void FinishIfDrained() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!ended_ || finished_ || writing_ || !queue_.empty()) return;
    finished_ = true;
    this->Finish(final_status_);
  }

  RpcCall call_;  // synchronises itself
  const size_t max_buffer_bytes_;

  Mutex mu_;
  std::function<void()> on_cancel_ ABSL_GUARDED_BY(mu_);
  std::deque<Event> queue_ ABSL_GUARDED_BY(mu_);  // the front one is being written while writing_
  size_t buffered_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  bool overflow_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status final_status_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<EventStream> grpc_hold_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic

#endif  // EPIC_COMMON_RPC_EVENT_STREAM_H_
