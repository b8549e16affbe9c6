// Fabric over UCX: one worker, one progress thread that owns it, a listener, and the lanes of both
// directions.
//
// Start and Stop are for the owner's thread; everything of Fabric is for the loop. Lanes connect by address
// and port, not by worker address: such an endpoint has sockets of its own, and closing it closes them, so
// nothing of a closed lane can arrive any more. UCX authenticates nobody: what a lane may ask is the
// protocol's affair (piece_server.h).
#ifndef EPIC_COMMON_TRANSPORT_UCX_UCX_FABRIC_H_
#define EPIC_COMMON_TRANSPORT_UCX_UCX_FABRIC_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ucp/api/ucp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/transport/ucx/lane.h"
#include "common/transport/ucx/progress_loop.h"
#include "common/transport/ucx/registration_cache.h"
#include "common/transport/ucx/ucx_lane.h"
#include "common/transport/ucx/ucx_settings.h"
#include "common/transport/ucx/ucx_worker.h"

namespace epic::transport {

class UcxFabric final : public Fabric, private EventSource {
 public:
  // Message kinds are 1 to this.
  static constexpr uint8_t kMaxKind = 15;

  // Opens the devices, listens where the settings say so and starts the thread. `acceptor` may be nullptr
  // when nothing listens; it and `clock` outlive Stop. Errors: InvalidArgument for the settings; Unavailable.
  static absl::StatusOr<std::unique_ptr<UcxFabric>> Start(const UcxSettings& settings, const Clock* clock,
                                                          LaneAcceptor* acceptor);
  ~UcxFabric() override { Stop(); }
  // Runs `last` on the loop: users close their lanes there. Then closes all lanes by force, ends what is
  // under way, and waits for the thread. Idempotent. Not from the loop.
  void Stop(std::function<void()> last = nullptr);

  const std::shared_ptr<ProgressLoop>& loop() const { return loop_; }

  absl::StatusOr<Lane*> Connect(std::string_view address, LaneEvents* events) override;
  std::string address() const override { return address_; }  // any thread
  bool has_rma() const override { return worker_->has_rma(); }
  bool reaches_device_memory() const override { return worker_->reaches_device_memory(); }
  absl::StatusOr<std::string> Export(ByteSpan region) override;
  // Before memory that fetches have used is given back to the system.
  void ForgetMemory(ByteSpan memory);
  // Lanes that are open or still closing, for gauges and tests.
  size_t lanes() const { return lanes_.size(); }

 private:
  struct Handler {
    UcxFabric* fabric = nullptr;
    uint8_t kind = 0;
  };

  UcxFabric(const Clock* clock, LaneAcceptor* acceptor);
  absl::Status Init(const UcxSettings& settings);
  absl::Status SetHandlers();
  absl::Status Listen(const UcxSettings& settings);
  absl::StatusOr<UcxLane*> MakeLane(ucp_ep_params_t params, LaneEvents* events);
  void Shutdown();

  // EventSource.
  int event_fd() const override { return worker_->event_fd(); }
  bool Progress() override;
  bool Arm() override;
  // Each does what UCX's callbacks have noted; true when there was something.
  bool TakeConnections();
  bool TellEnded();
  bool TellDown();
  bool CloseLanes();

  static ucs_status_t OnMessage(void* arg, const void* header, size_t header_size, void* data, size_t size,
                                const ucp_am_recv_param_t* param);
  static void OnConnection(ucp_conn_request_h request, void* arg);
  static void OnError(void* arg, ucp_ep_h endpoint, ucs_status_t status);

  const Clock* const clock_;
  LaneAcceptor* const acceptor_;
  size_t max_lanes_ = 0;
  std::string address_;
  std::unique_ptr<UcxWorker> worker_;
  std::shared_ptr<ProgressLoop> loop_;

  // Of the loop.
  ucp_listener_h listener_ = nullptr;
  std::vector<Handler> handlers_;
  std::unique_ptr<RegistrationCache> registrations_;
  LaneShared shared_;
  std::map<UcxLane*, std::unique_ptr<UcxLane>> lanes_;
  std::map<ucp_ep_h, UcxLane*> by_endpoint_;  // without those that are closed
  std::vector<ucp_conn_request_h> connections_;
  std::vector<ucp_ep_h> down_;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_UCX_FABRIC_H_
