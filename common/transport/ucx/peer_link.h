// The reader's connection to one peer: asks for a ticket, opens a lane, shows the ticket, and notices when
// the peer does not answer any more. One attempt at a time for everybody who wants the link; after a failed
// one the next waits, longer each time.
//
// Belongs to the loop of its fabric. Hold it by shared_ptr: a ticket may come after its owner is gone. Knows
// nothing of fetches, and no UCX.
#ifndef EPIC_COMMON_TRANSPORT_UCX_PEER_LINK_H_
#define EPIC_COMMON_TRANSPORT_UCX_PEER_LINK_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/transport/ucx/lane.h"
#include "common/transport/ucx/loop.h"
#include "common/transport/ucx/ticket.h"
#include "common/transport/ucx/wire.h"

namespace epic::transport {

struct PeerLinkOptions {
  int64_t connect_timeout_ms = 3'000;  // ticket, lane and welcome together
  int64_t backoff_min_ms = 20;
  int64_t backoff_max_ms = 2'000;
  // While answers are due: a ping after so long without a word of the peer, and the end when nothing comes
  // for so long after it.
  int64_t ping_after_ms = 1'000;
  int64_t dead_after_ms = 5'000;
};

// What a link tells its owner; never within Want, Watch or Fail.
class LinkEvents {
 public:
  virtual ~LinkEvents() = default;
  virtual void OnUp() = 0;
  // Anything but a Welcome.
  virtual void OnMessage(wire::Kind kind, ByteSpan header, IncomingBody& body) = 0;
  // An attempt failed (was_up is false), or the link is gone. The lane is closed.
  virtual void OnLinkDown(const absl::Status& why, bool was_up) = 0;
};

class PeerLink final : public LaneEvents, public std::enable_shared_from_this<PeerLink> {
 public:
  // `events` hears until Close. All others outlive the link.
  PeerLink(std::shared_ptr<Loop> loop, Fabric* fabric, const Clock* clock,
           std::shared_ptr<TicketSource> tickets, PeerLinkOptions options, LinkEvents* events, uint64_t seed);

  // Connects, if it is not up or about to be.
  void Want();
  bool up() const { return state_ == State::kUp; }
  // REQUIRES, both: up().
  Lane* lane() const { return lane_; }
  uint64_t incarnation() const { return incarnation_; }
  // Whether answers are due: then silence of the peer ends the link.
  void Watch(bool due);
  // Ends the link or the attempt by force; OnLinkDown follows.
  void Fail(absl::Status why);
  // The last call: nothing is heard any more.
  void Close();

  // LaneEvents.
  void OnMessage(uint8_t kind, ByteSpan header, IncomingBody& body) override;
  void OnDown(const absl::Status& why) override;

 private:
  enum class State : uint8_t { kDown, kResting, kAsking, kOpening, kUp };

  void Attempt();
  void OnTicket(uint64_t attempt, absl::StatusOr<std::string> blob);
  absl::Status OpenLane(const Ticket& ticket);
  void OnWelcome(ByteSpan header, const IncomingBody& body);
  void Down(const absl::Status& why);
  void SetTimer(int64_t at_ns, void (PeerLink::*what)());
  void StopTimer();
  void OnTimeout();
  void LookForLife();

  const std::shared_ptr<Loop> loop_;
  Fabric* const fabric_;
  const Clock* const clock_;
  const std::shared_ptr<TicketSource> tickets_;
  const PeerLinkOptions options_;
  LinkEvents* events_;
  Rng rng_;
  State state_ = State::kDown;
  Lane* lane_ = nullptr;
  uint64_t attempt_ = 0;   // late answers to earlier ones are nobody's
  uint32_t failures_ = 0;  // attempts in a row
  uint64_t promised_incarnation_ = 0;
  uint64_t incarnation_ = 0;
  TimerId timer_ = 0;  // 0: none
  bool due_ = false;
  int64_t heard_ns_ = 0;
  int64_t pinged_ns_ = 0;  // the ping that has no answer; 0: none
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_PEER_LINK_H_
