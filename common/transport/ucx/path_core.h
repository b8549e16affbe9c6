// The reader's end of one peer: turns fetches into pieces within the windows, takes what comes, checks it,
// and keeps the cancel rule of transport.h. Everything happens on the loop of the fabric; ucx_path.h is the
// thread-safe Path around it. Knows no UCX.
//
// A fetch opens its lease at the peer, hears of each layer when it can be read, asks for pieces of ranges
// whose layer is there (so that no window is spent on waiting), checks the blocks of each piece, and asks at
// its end whether the lease was held. When the link is lost, every fetch on it goes on once over the next
// one. A fetch that is to end while pieces are on their way into its buffers waits for them for a while; then
// the link is closed by force, which ends them.
#ifndef EPIC_COMMON_TRANSPORT_UCX_PATH_CORE_H_
#define EPIC_COMMON_TRANSPORT_UCX_PATH_CORE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/transport/transport.h"
#include "common/transport/ucx/fetch_state.h"
#include "common/transport/ucx/flow_budget.h"
#include "common/transport/ucx/lane.h"
#include "common/transport/ucx/loop.h"
#include "common/transport/ucx/peer_link.h"
#include "common/transport/ucx/staging.h"
#include "common/transport/ucx/ticket.h"

namespace epic::transport {

struct PathCoreOptions {
  uint32_t window = 8;  // pieces under way from this peer
  uint32_t max_fetches = 1024;
  int64_t end_grace_ms = 2'000;  // for pieces that are on their way into buffers of a fetch that is to end
  PeerLinkOptions link;
};

// What the paths of one process share. All but the values outlive the loop.
struct PathShared {
  std::shared_ptr<Loop> loop;
  Fabric* fabric = nullptr;
  const Clock* clock = nullptr;
  FlowBudget* budget = nullptr;
  StagingPool* staging = nullptr;  // nullptr: this process has no device memory
};

class PathCore final : public LinkEvents, public std::enable_shared_from_this<PathCore> {
 public:
  // Called when a fetch or probe has ended, after its listener heard of it.
  using EndedFn = std::function<void(FetchId)>;

  PathCore(PathShared shared, std::shared_ptr<TicketSource> tickets, PathCoreOptions options,
           PeerDownFn peer_down, EndedFn ended, uint64_t seed);
  ~PathCore() override;

  void Fetch(FetchId id, FetchRequest request, std::shared_ptr<FetchListener> listener);
  void Cancel(FetchId id);
  // Ids of probes and fetches are of one sequence.
  void Probe(FetchId id, int64_t deadline_ns, std::function<void(const absl::Status&)> done);
  // Ends everything with `status`, by force where pieces are on their way, and stays so: what comes later
  // ends with PathDown. Buffers may still be written to until their ranges were told.
  void Stop(const absl::Status& status);

  size_t pieces_under_way() const { return pieces_.size(); }

  // LinkEvents.
  void OnUp() override;
  void OnMessage(wire::Kind kind, ByteSpan header, IncomingBody& body) override;
  void OnLinkDown(const absl::Status& why, bool was_up) override;

 private:
  enum class PieceState : uint8_t { kAsked, kArriving, kChecking };
  // One piece that was asked for. Its fetch may be over while it is only asked for: it keeps its place in the
  // windows until the peer has answered.
  struct Piece {
    FetchId fetch = 0;
    PiecePlan plan;
    PieceState state = PieceState::kAsked;
    bool has_bytes = false;  // they are in `to`
    bool has_sums = false;
    std::vector<uint32_t> crcs;
    MutableByteSpan to;    // the buffer's part, or the slot
    MutableByteSpan slot;  // of the staging pool; empty: none
    std::optional<absl::Status> failed;
  };
  struct ProbeState {
    std::function<void(const absl::Status&)> done;
    TimerId deadline = 0;
  };

  FetchState* Find(FetchId id);
  void OpenFetch(FetchState* fetch);
  // Acts on what has become of a fetch: asks, confirms, or ends it. It may be gone afterwards.
  void Advance(FetchState* fetch);
  void EndFetch(FetchState* fetch, const absl::Status& status);
  void Finish(FetchState* fetch, const absl::Status& status);
  absl::Status CheckMemory(const FetchRequest& request) const;
  bool StagesFor(const FetchState& fetch) const;

  void Enqueue(FetchState* fetch);
  FetchState* NextInTurn();
  void Pump();
  bool AskNext(FetchState* fetch);
  void AskFor(FetchState* fetch, uint64_t request, Piece* piece);

  void OnLayer(ByteSpan header);
  void OnPiece(ByteSpan header, IncomingBody& body);
  void OnConfirmed(ByteSpan header);
  void OnPong(ByteSpan header);
  absl::Status TakeSums(const FetchState& fetch, const wire::Piece& message, Piece* piece);
  // The bytes of a piece are where they go, or did not come.
  void OnBytes(uint64_t request, const absl::Status& status);
  void CheckPiece(uint64_t request);
  void CheckOnDevice(uint64_t request, FetchState* fetch, Piece* piece);
  void CopyToDevice(uint64_t request, FetchState* fetch, Piece* piece);
  void OnChecked(uint64_t request, const absl::Status& status);
  // The piece is over: its place in the windows is free.
  void Drop(uint64_t request);
  void WatchLink();
  void EndProbe(FetchId id, const absl::Status& status);

  const PathShared shared_;
  const PathCoreOptions options_;
  const PeerDownFn peer_down_;
  const EndedFn ended_;
  const std::shared_ptr<PeerLink> link_;
  std::map<FetchId, std::unique_ptr<FetchState>> fetches_;
  std::map<FetchId, ProbeState> probes_;
  std::array<std::deque<FetchId>, kTrafficClasses> turns_;
  std::map<uint64_t, Piece> pieces_;  // by request
  uint64_t next_request_ = 1;
  bool waits_for_budget_ = false;
  bool stopped_ = false;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_PATH_CORE_H_
