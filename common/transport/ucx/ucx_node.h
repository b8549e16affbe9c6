// The UCX end of one process: one progress thread, the lanes of both directions, the serving of a KvSource,
// and the paths to peers. The one class of this folder that others make.
//
// Thread-safe but for Start and Stop, which are the owner's. UCX authenticates nobody: peers get their
// tickets (IssueTicket) and hand them over (TicketSource) in calls that are authenticated otherwise.
#ifndef EPIC_COMMON_TRANSPORT_UCX_UCX_NODE_H_
#define EPIC_COMMON_TRANSPORT_UCX_UCX_NODE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/transport/kv_source.h"
#include "common/transport/transport.h"
#include "common/transport/ucx/path_core.h"
#include "common/transport/ucx/piece_server.h"
#include "common/transport/ucx/staging.h"
#include "common/transport/ucx/ticket.h"
#include "common/transport/ucx/ucx_settings.h"

namespace epic::transport {

class UcxFabric;
class UcxPathState;

struct UcxNodeOptions {
  UcxSettings settings;
  const Clock* clock = SystemClock::Get();
  // What peers may fetch; nullptr: nothing, and nothing listens. Outlives the node.
  KvSource* source = nullptr;
  // Memory of the source from which peers with RMA may read, registered once; without RMA it is not needed.
  std::vector<ByteSpan> arenas;
  // For buffers in device memory; nullptr: fetches into it are refused. Outlives the node.
  DeviceMemory* device = nullptr;
  uint32_t max_pieces = 32;  // under way to this process, over all peers
  int64_t ticket_lifetime_ms = 30'000;
  uint32_t max_tickets = 1024;  // issued and not used yet
  PieceServerOptions server;
  PathCoreOptions path;
};

struct UcxNodeGauges {
  size_t lanes = 0;     // open or closing, of both directions
  size_t sessions = 0;  // readers
  uint32_t pieces = 0;  // under way to this process
};

class UcxNode {
 public:
  // Errors: InvalidArgument for the settings; Unavailable when the devices or the address cannot be had.
  static absl::StatusOr<std::unique_ptr<UcxNode>> Start(UcxNodeOptions options);
  ~UcxNode();
  // Stops all paths, closes all lanes, lets go of what the source had opened. Idempotent.
  void Stop();

  // A blob that lets one reader open one lane, once, soon. For those only who may read what the source has.
  // Errors: FailedPrecondition when nothing is served.
  absl::StatusOr<std::string> IssueTicket();
  // The path to the peer that answers `tickets`. It may outlive the node; it is stopped then. Empty
  // `peer_down` is allowed.
  std::unique_ptr<Path> MakePath(std::shared_ptr<TicketSource> tickets, PeerDownFn peer_down)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Calls `tell` on the loop, soon. False when the node has stopped.
  bool Inspect(std::function<void(const UcxNodeGauges&)> tell);

 private:
  explicit UcxNode(UcxNodeOptions options);
  absl::Status Init();
  absl::Status ExportArenas();

  const UcxNodeOptions options_;
  TicketBook tickets_;
  std::unique_ptr<PieceServer> server_;   // nullptr without a source
  std::unique_ptr<StagingPool> staging_;  // nullptr without a device
  std::unique_ptr<UcxFabric> fabric_;
  std::unique_ptr<FlowBudget> budget_;
  std::vector<TicketRegion> regions_;  // constant after Start
  Mutex mu_;
  std::vector<std::weak_ptr<UcxPathState>> paths_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_UCX_NODE_H_
