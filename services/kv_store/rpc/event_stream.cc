#include "services/kv_store/rpc/event_stream.h"

#include <utility>

#include "common/status/error.h"
#include "services/kv_store/rpc/event_convert.h"
#include "services/kv_store/rpc/stall_guard.h"

namespace epic::kv_store {
namespace {

constexpr size_t kPage = 256;
constexpr int64_t kLookNs = 20'000'000;

class EventSender final : public grpc::ServerWriteReactor<v1::EventPage> {
 public:
  EventSender(const StreamParts* parts, grpc::CallbackServerContext* context,
              const v1::SubscribeRequest& request)
      : parts_(parts),
        call_(parts->rpc, context, "subscribe"),
        place_(parts),
        guard_(parts->timers, parts->rpc->clock, parts->stall_ms, context),
        cursor_(CursorOf(request.from())) {
    // Last: the stream may be over when it returns.
    if (!place_.granted() || !parts_->rpc->executor->TrySubmit([this] { Look(); })) End(DoorIsFull());
  }

  void OnWriteDone(bool ok) override {
    parts_->rpc->executor->Submit([this, ok] {
      guard_.Rest();
      if (!ok) return End(Error(ErrorCode::kClientGone, "the client went away"));
      page_.gap() ? End(absl::OkStatus()) : Look();
    });
  }
  void OnCancel() override { call_.Cancel(/*by_client=*/true); }
  void OnDone() override {
    guard_.Disarm();
    call_.Report();
    delete this;
  }

 private:
  // On the executor. Sends what there is, or comes back.
  void Look() {
    if (call_.scope().cancel.cancelled()) return End(Error(ErrorCode::kClientGone, "the client went away"));
    if (parts_->draining->load()) {
      return End(RetryLater(ErrorCode::kDraining, "the node stops: ask again when it is back", 1000));
    }
    const EventPage page = parts_->node->Events(cursor_, kPage);
    if (!page.gap && page.events.empty() && !first_) return LookLater();
    first_ = false;
    cursor_ = page.next;
    page_ = ToProto(page);
    guard_.Wait();
    StartWrite(&page_);
  }
  void LookLater() {
    parts_->timers->At(parts_->rpc->clock->SteadyNs() + kLookNs,
                       [this] { parts_->rpc->executor->Submit([this] { Look(); }); });
  }
  void End(const absl::Status& status) { Finish(call_.SetOutcome(status)); }

  const StreamParts* const parts_;
  RpcCall call_;  // synchronises itself
  const StreamPlace place_;

  // Of the step that runs: one at a time.
  StallGuard guard_;
  EventCursor cursor_;
  bool first_ = true;  // the first page comes at once, so that the client knows that it is heard
  v1::EventPage page_;
};

}  // namespace

grpc::ServerWriteReactor<v1::EventPage>* SendEvents(const StreamParts* parts,
                                                    grpc::CallbackServerContext* context,
                                                    const v1::SubscribeRequest& request) {
  return new EventSender(parts, context, request);  // frees itself
}

}  // namespace epic::kv_store
