// What a reader is given, by calls that have authenticated both ends, so that it may open a lane: where to
// connect, a secret that opens the lane once, and the keys of exported memory where lanes have RMA. UCX
// itself authenticates nobody.
//
// Ticket is the blob in those calls (out of TicketBook::Issue, into the reader's TicketSource). TicketBook is
// the peer's, thread-safe: doors issue on their threads, the loop redeems.
#ifndef EPIC_COMMON_TRANSPORT_UCX_TICKET_H_
#define EPIC_COMMON_TRANSPORT_UCX_TICKET_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/transport/ucx/wire.h"

namespace epic::transport {

// Exported memory of the peer.
struct TicketRegion {
  uint64_t address = 0;
  uint64_t size = 0;
  std::string key;
};

struct Ticket {
  static constexpr uint32_t kMaxBlobBytes = 64 << 10;
  static constexpr uint32_t kMaxRegions = 64;

  uint64_t incarnation = 0;
  std::string address;
  bool rma = false;  // both ends must have it, or neither
  wire::Secret secret{};
  std::vector<TicketRegion> regions;
};

// Bytes that only the reader's side of an authenticated call may see.
std::string EncodeTicket(const Ticket& ticket);
// Errors: InvalidArgument for anything that EncodeTicket does not make.
absl::StatusOr<Ticket> DecodeTicket(std::string_view blob);

// Asks a peer for a ticket. Implemented over the authenticated channel between the two.
class TicketSource {
 public:
  virtual ~TicketSource() = default;
  // Calls `done` once, on any thread, also within the call. It may come after whoever asked is gone.
  virtual void Ask(std::function<void(absl::StatusOr<std::string> blob)> done) = 0;
};

class TicketBook {
 public:
  // REQUIRES: max_open > 0.
  TicketBook(const Clock* clock, int64_t lifetime_ms, size_t max_open);
  // A secret that was never given. When too many are open the oldest is forgotten.
  wire::Secret Issue() ABSL_LOCKS_EXCLUDED(mu_);
  // True once for each secret, within its life.
  bool Redeem(const wire::Secret& secret) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Open {
    wire::Secret secret{};
    int64_t until_ns = 0;
  };
  const Clock* const clock_;
  const int64_t lifetime_ns_;
  const size_t max_open_;
  Mutex mu_;
  std::deque<Open> open_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_TICKET_H_
