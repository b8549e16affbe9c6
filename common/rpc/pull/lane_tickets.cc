#include "common/rpc/pull/lane_tickets.h"

#include <grpcpp/client_context.h>

#include <chrono>

#include "common/transport/transport.h"

namespace epic {
namespace {

// Of one call. Its callback holds it, and the channel, until it is over.
struct Asked {
  std::shared_ptr<StoreChannel> channel;
  grpc::ClientContext context;
  v1::LaneTicketRequest request;
  v1::LaneTicketResponse response;
};

}  // namespace

void LaneTickets::Ask(std::function<void(absl::StatusOr<std::string> blob)> done) {
  auto asked = std::make_shared<Asked>();
  asked->channel = channel_;
  asked->context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(call_ms_));
  channel_->stub()->async()->IssueLaneTicket(
      &asked->context, &asked->request, &asked->response,
      [asked, done = std::move(done)](const grpc::Status& status) {
        if (!status.ok())
          return done(transport::PathDownStatus("no ticket for UCX: " + status.error_message()));
        done(std::move(*asked->response.mutable_ticket()));
      });
}

}  // namespace epic
