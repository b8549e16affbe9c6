#include "services/kv_store/rpc/store_door.h"

#include <atomic>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/mutex.h"
#include "common/base/request_ids.h"
#include "common/base/timers.h"
#include "common/rpc/grpc_listener.h"
#include "common/rpc/kv_store/item_status.h"
#include "common/rpc/rpc_call.h"
#include "common/status/status_macros.h"
#include "services/kv_store/rpc/kv_store_service.h"

namespace epic::kv_store {
namespace {

v1::AttachResponse WelcomeOf(uint64_t incarnation, const OtherWays& ways) {
  v1::AttachResponse welcome;
  welcome.set_incarnation(incarnation);
  if (ways.hand_over_socket.empty()) return welcome;
  welcome.mutable_hand_over()->set_boot_id(ways.boot_id);
  welcome.mutable_hand_over()->set_socket(ways.hand_over_socket);
  return welcome;
}

class RealStoreDoor final : public StoreDoor {
 public:
  RealStoreDoor(const StoreDoorOptions& options, StoreNode* node, StoreDoorObservers observers)
      : options_(options),
        node_(node),
        timers_(clock_),
        executor_(options.worker_threads, options.worker_queue),
        disk_executor_(options.worker_threads, options.worker_queue),
        request_ids_(options.id_seed),
        parts_{clock_, &executor_, &request_ids_, std::move(observers.on_call), &ToStoreGrpcStatus},
        disk_parts_{clock_, &disk_executor_, &request_ids_, parts_.observer, &ToStoreGrpcStatus},
        streams_{node,
                 &parts_,
                 &timers_,
                 options.stall_ms,
                 options.streams_max,
                 &open_streams_,
                 &draining_,
                 std::move(observers.on_layer_bytes)},
        attachments_(node, &parts_, WelcomeOf(node->incarnation(), options.other_ways)),
        service_(&streams_, &disk_parts_, &attachments_, options.other_ways.issue_lane_ticket,
                 std::move(observers.on_lookup)) {}
  ~RealStoreDoor() override { Stop(); }

  absl::Status Listen() {
    ListenOptions listen;
    listen.credentials = options_.credentials;
    listen.max_message_bytes = options_.max_message_bytes;
    listen.keepalive_ms = options_.keepalive_ms;
    listen.buffer_bytes_max = options_.buffer_bytes_max;
    EPIC_RETURN_IF_ERROR(listener_.Listen(options_.address, listen, {&service_}));
    SweepLater();
    return absl::OkStatus();
  }
  uint16_t port() const override { return listener_.port(); }
  uint32_t streams() const override { return open_streams_.load(); }
  size_t attached() const override { return attachments_.count(); }
  void Drain() override {
    listener_.RefuseHealth();
    draining_ = true;
    attachments_.Drain();
  }
  void Stop() override {
    draining_ = true;
    attachments_.Drain();
    listener_.Stop(options_.drain_ms);
    timers_.Stop();
    executor_.Stop();
    disk_executor_.Stop();
  }

 private:
  // Sweeping frees memory: on the executor. One that is refused is made up for by the next.
  void SweepLater() {
    timers_.At(clock_->SteadyNs() + options_.sweep_ms * 1'000'000, [this] {
      const bool taken = executor_.TrySubmit([this] { node_->Sweep(); });
      static_cast<void>(taken);
      SweepLater();
    });
  }

  const StoreDoorOptions options_;
  StoreNode* const node_;
  const Clock* const clock_ = SystemClock::Get();
  std::atomic<uint32_t> open_streams_{0};
  std::atomic<bool> draining_{false};
  TimerThread timers_;
  ThreadExecutor executor_;
  ThreadExecutor disk_executor_;  // a disk that is slow holds these threads, and no others
  RequestIds request_ids_;
  const RpcParts parts_;
  const RpcParts disk_parts_;
  const StreamParts streams_;
  Attachments attachments_;
  KvStoreRpcService service_;
  GrpcListener listener_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StoreDoor>> StoreDoor::Start(const StoreDoorOptions& options, StoreNode* node,
                                                            StoreDoorObservers observers) {
  auto door = std::make_unique<RealStoreDoor>(options, node, std::move(observers));
  EPIC_RETURN_IF_ERROR(door->Listen());
  return door;
}

}  // namespace epic::kv_store
