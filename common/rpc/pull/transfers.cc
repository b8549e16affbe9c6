#include "common/rpc/pull/transfers.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/system_random.h"
#include "common/rpc/pull/lane_tickets.h"
#include "common/rpc/pull/pulled_objects.h"
#include "common/status/status_macros.h"
#include "common/storage/shm/boot_id.h"
#include "common/transport/grpc/grpc_path.h"
#include "common/transport/path_chooser.h"
#include "common/transport/shm/shm_path.h"

namespace epic {
namespace {

using transport::PathKind;

constexpr int64_t kTicketMs = 2000;  // within PeerLinkOptions::connect_timeout_ms

// Bytes of layers do not wait behind calls, nor these behind them.
std::shared_ptr<StoreChannel> ChannelForBytes(const ObjectReaderParts& parts) {
  return std::make_shared<StoreChannel>(parts.channel->options());
}

// The hand-over socket, where the node says that it is one of this host.
transport::ShmPlace PlaceOf(const Attachment& attachment) {
  const Attachment::Node node = attachment.node();
  if (node.boot_id.empty() || node.boot_id != shm::BootId()) return {};
  return {.socket = node.hand_over_socket, .incarnation = node.incarnation};
}

}  // namespace

Transfers::Transfers(const TransferOptions& options, Metrics* metrics)
    : options_(options), metrics_(metrics), timers_(clock_), budget_(options.limits, clock_, &timers_) {}

absl::StatusOr<std::unique_ptr<Transfers>> Transfers::Start(const TransferOptions& options,
                                                            Metrics* metrics) {
  EPIC_CHECK(!options.paths.empty());
  std::unique_ptr<Transfers> transfers(new Transfers(options, metrics));
  if (std::find(options.paths.begin(), options.paths.end(), PathKind::kUcx) != options.paths.end()) {
    transport::UcxNodeOptions ucx;
    ucx.settings = options.ucx;
    ucx.max_pieces = options.ucx_pieces;
    EPIC_ASSIGN_OR_RETURN(transfers->ucx_, transport::UcxNode::Start(std::move(ucx)));
  }
  return transfers;
}

MakeObjectReader Transfers::ReaderFor() {
  return [this](const ObjectReaderParts& parts) -> std::unique_ptr<ObjectReader> {
    return std::make_unique<PulledObjects>(parts, PathTo(parts), &fetcher_, options_.lease_ms, clock_);
  };
}

std::unique_ptr<transport::Path> Transfers::PathTo(const ObjectReaderParts& parts) {
  std::vector<transport::PathMaker> makers;
  for (const PathKind kind : options_.paths) {
    makers.push_back([this, kind, parts](transport::PeerDownFn peer_down) {
      if (kind == PathKind::kShm) {
        return transport::MakeShmPath(
            {.store = {},
             .find = [attachment = parts.attachment] { return PlaceOf(*attachment); },
             .waits_for_whole = options_.paths.size() == 1,
             .timers = &timers_,
             .peer_down = std::move(peer_down)});
      }
      if (kind == PathKind::kUcx) {
        return ucx_->MakePath(std::make_shared<LaneTickets>(parts.channel, kTicketMs), std::move(peer_down));
      }
      EPIC_CHECK(kind == PathKind::kGrpc);
      return transport::MakeGrpcPath({.channel = ChannelForBytes(parts),
                                      .clock = clock_,
                                      .reconnect_ms = parts.channel->options().reconnect_ms,
                                      .peer_down = std::move(peer_down)});
    });
  }
  transport::ChooserOptions chooser;
  chooser.clock = clock_;
  chooser.timers = &timers_;
  chooser.thread = &thread_;
  chooser.budget = &budget_;
  chooser.metrics = &metrics_;
  chooser.seed = SystemRandom();
  chooser.prefetch_bytes = options_.prefetch_bytes;
  chooser.batch_bytes = std::min(chooser.batch_bytes, options_.prefetch_bytes);
  return MakePathChooser(makers, chooser);
}

void Transfers::Stop() {
  timers_.Stop();
  thread_.Stop();
  if (ucx_ != nullptr) ucx_->Stop();
}

}  // namespace epic
