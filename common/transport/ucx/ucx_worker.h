// The UCX objects of one fabric: context, worker, and what its devices can do. Knows no lane and no protocol.
//
// Made on any thread, then used by one thread at a time. Which transports are used is decided here, once: the
// hardware ones alone, with RMA, when every named device has a transport with RMA reads in hardware and peer
// error handling; otherwise TCP with active messages only, and no RMA at all, because a peer could read the
// memory of this process by it.
#ifndef EPIC_COMMON_TRANSPORT_UCX_UCX_WORKER_H_
#define EPIC_COMMON_TRANSPORT_UCX_UCX_WORKER_H_

#include <memory>
#include <string>
#include <vector>

#include <ucp/api/ucp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/transport/ucx/progress_loop.h"
#include "common/transport/ucx/registration_cache.h"
#include "common/transport/ucx/ucx_settings.h"

namespace epic::transport {

// One transport on one device, as far as the choice needs it.
struct UcxDeviceTransport {
  std::string device;
  std::string transport;
  bool rma_read = false;             // in hardware
  bool peer_error_handling = false;  // a dead peer is an error, not a hang
};

// Every transport of this host. Errors: Unavailable when UCX cannot list them.
absl::StatusOr<std::vector<UcxDeviceTransport>> ListUcxTransports();
// Whether lanes over `net_devices` shall use hardware RMA: true when each has a transport that can.
bool ChooseRma(const std::vector<UcxDeviceTransport>& transports,
               const std::vector<std::string>& net_devices);

class UcxWorker final : public EventSource, public Registrar {
 public:
  // REQUIRES: CheckUcxSettings(settings).ok(). Errors: Unavailable and the like: what UCX says.
  static absl::StatusOr<std::unique_ptr<UcxWorker>> Make(const UcxSettings& settings);
  ~UcxWorker() override;
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  ucp_worker_h handle() const { return worker_; }
  // Ends every lane at once; only registrations may be given back after it.
  void DestroyWorker();
  bool has_rma() const { return has_rma_; }
  // This build of UCX reads and writes CUDA memory.
  bool reaches_device_memory() const { return reaches_device_memory_; }

  int event_fd() const override { return event_fd_; }
  bool Progress() override { return ucp_worker_progress(worker_) != 0; }
  bool Arm() override;

  absl::StatusOr<void*> Register(ByteSpan memory, MemoryKind kind) override;
  void Unregister(void* handle) override;
  // The key by which a peer reads what `registration` covers.
  absl::StatusOr<std::string> PackKey(void* registration);

 private:
  UcxWorker() = default;
  absl::Status Init(const UcxSettings& settings);

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
  bool has_rma_ = false;
  bool reaches_device_memory_ = false;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_UCX_WORKER_H_
