// The peer's end: takes lanes, admits those with a ticket, opens leased objects of a KvSource for their
// fetches, says when layers are there, and sends pieces out of the source's own memory.
//
// Belongs to the loop of its fabric, but for AttachTo, which is posted. Whatever a reader says is
// untrusted: what cannot be ends its lane, what is too much is refused. A source's object is let go as soon
// as its fetch is over, its lane is gone, or the lane takes nothing for too long. Knows no UCX.
#ifndef EPIC_COMMON_TRANSPORT_UCX_PIECE_SERVER_H_
#define EPIC_COMMON_TRANSPORT_UCX_PIECE_SERVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/transport/kv_source.h"
#include "common/transport/ucx/lane.h"
#include "common/transport/ucx/loop.h"
#include "common/transport/ucx/ticket.h"
#include "common/transport/ucx/wire.h"

namespace epic::transport {

struct PieceServerOptions {
  uint32_t max_sessions = 256;
  uint32_t max_fetches = 1024;       // open on one lane
  uint32_t max_reads = 64;           // pieces under way on one lane
  uint32_t max_answers = 1u << 17;   // other answers that one lane has not taken yet
  int64_t hello_timeout_ms = 5'000;  // until a new lane has shown its ticket
  int64_t send_timeout_ms = 15'000;  // for a lane to take one piece
  // Without a word of a reader that has fetches open: readers ping while answers are due.
  int64_t silence_timeout_ms = 15'000;
  // Hears on the loop of the bytes of each piece that a lane has taken; must be cheap. May be empty.
  std::function<void(uint64_t bytes)> on_sent;
};

class PieceServer final : public LaneAcceptor {
 public:
  // All outlive the loop.
  PieceServer(KvSource* source, TicketBook* tickets, const Clock* clock, PieceServerOptions options);
  ~PieceServer() override;

  // On the loop, before lanes are taken: until then they are refused.
  void AttachTo(std::shared_ptr<Loop> loop);
  LaneEvents* OnLane(Lane* lane) override;
  // Closes every lane.
  void Close();

  size_t sessions() const { return sessions_.size(); }

 private:
  class Session;
  struct OpenFetch {
    std::shared_ptr<SourceObject> object;
    std::map<uint32_t, bool> layers;  // those asked for -> whether they can be read
  };

  void OnLayerReady(uint64_t session, uint64_t fetch, uint32_t layer, const absl::Status& status);
  void OnPieceSent(uint64_t session, uint64_t send);
  void End(uint64_t session);
  // One look at a time is due while anything has a time limit.
  void LookLater();
  void Look();

  KvSource* const source_;
  TicketBook* const tickets_;
  const Clock* const clock_;
  const PieceServerOptions options_;
  std::shared_ptr<Loop> loop_;
  std::map<uint64_t, std::unique_ptr<Session>> sessions_;
  uint64_t next_session_ = 1;
  bool look_due_ = false;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_PIECE_SERVER_H_
