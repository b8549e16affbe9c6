// Tickets for UCX lanes (common/transport/ucx) from a store node, over its gRPC door, which knows who asks.
// Thread-safe.
#ifndef EPIC_COMMON_RPC_PULL_LANE_TICKETS_H_
#define EPIC_COMMON_RPC_PULL_LANE_TICKETS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/rpc/kv_store/store_channel.h"
#include "common/transport/ucx/ticket.h"

namespace epic {

class LaneTickets final : public transport::TicketSource {
 public:
  // `call_ms`: for an answer.
  LaneTickets(std::shared_ptr<StoreChannel> channel, int64_t call_ms)
      : channel_(std::move(channel)), call_ms_(call_ms) {}
  // Errors of `done`: PathDown (transport.h), whatever it is. Called on a thread of gRPC.
  void Ask(std::function<void(absl::StatusOr<std::string> blob)> done) override;

 private:
  const std::shared_ptr<StoreChannel> channel_;
  const int64_t call_ms_;
};

}  // namespace epic

#endif  // EPIC_COMMON_RPC_PULL_LANE_TICKETS_H_
