#include "common/transport/ucx/ucx_node.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/system_random.h"
#include "common/status/ending.h"
#include "common/status/status_macros.h"
#include "common/transport/ucx/ucx_fabric.h"
#include "common/transport/ucx/ucx_path.h"

namespace epic::transport {

UcxNode::UcxNode(UcxNodeOptions options)
    : options_(std::move(options)),
      tickets_(options_.clock, options_.ticket_lifetime_ms, options_.max_tickets) {}

UcxNode::~UcxNode() { Stop(); }

absl::StatusOr<std::unique_ptr<UcxNode>> UcxNode::Start(UcxNodeOptions options) {
  std::unique_ptr<UcxNode> node(new UcxNode(std::move(options)));
  EPIC_RETURN_IF_ERROR(node->Init());
  return node;
}

absl::Status UcxNode::Init() {
  UcxSettings settings = options_.settings;
  if (options_.source == nullptr) {
    settings.listen_ip.clear();
  } else if (settings.listen_ip.empty()) {
    return absl::InvalidArgumentError("name the address on which readers find what is served");
  } else {
    server_ = std::make_unique<PieceServer>(options_.source, &tickets_, options_.clock, options_.server);
  }
  EPIC_ASSIGN_OR_RETURN(fabric_, UcxFabric::Start(settings, options_.clock, server_.get()));
  budget_ = std::make_unique<FlowBudget>(fabric_->loop().get(), options_.max_pieces);
  if (options_.device != nullptr) {
    staging_ = std::make_unique<StagingPool>(options_.device, wire::kMaxPieceBytes, options_.max_pieces);
  }
  Ending attached;
  const bool posted = fabric_->loop()->TryPost([&] {
    if (server_ != nullptr) server_->AttachTo(fabric_->loop());
    attached.Set(fabric_->has_rma() ? ExportArenas() : absl::OkStatus());
  });
  EPIC_CHECK(posted);
  return attached.Wait();
}

absl::Status UcxNode::ExportArenas() {
  if (options_.arenas.size() > Ticket::kMaxRegions) {
    return absl::InvalidArgumentError("too many arenas for one ticket");
  }
  for (const ByteSpan arena : options_.arenas) {
    EPIC_ASSIGN_OR_RETURN(std::string key, fabric_->Export(arena));
    regions_.push_back(
        {.address = reinterpret_cast<uintptr_t>(arena.data()), .size = arena.size(), .key = std::move(key)});
  }
  return absl::OkStatus();
}

void UcxNode::Stop() {
  std::vector<std::weak_ptr<UcxPathState>> paths;
  {
    MutexLock lock(&mu_);
    paths.swap(paths_);
    stopped_ = true;
  }
  for (const auto& weak : paths) {
    if (const auto path = weak.lock()) path->Stop();
  }
  if (fabric_ == nullptr) return;
  fabric_->Stop([this] {
    if (server_ != nullptr) server_->Close();
  });
}

absl::StatusOr<std::string> UcxNode::IssueTicket() {
  if (server_ == nullptr) return absl::FailedPreconditionError("this process serves nothing over UCX");
  return EncodeTicket({.incarnation = options_.source->incarnation(),
                       .address = fabric_->address(),
                       .rma = fabric_->has_rma(),
                       .secret = tickets_.Issue(),
                       .regions = regions_});
}

std::unique_ptr<Path> UcxNode::MakePath(std::shared_ptr<TicketSource> tickets, PeerDownFn peer_down) {
  const auto state = std::make_shared<UcxPathState>(fabric_->loop());
  state->Init({.loop = fabric_->loop(),
               .fabric = fabric_.get(),
               .clock = options_.clock,
               .budget = budget_.get(),
               .staging = staging_.get()},
              std::move(tickets), options_.path, std::move(peer_down), SystemRandom());
  bool stopped = false;
  {
    MutexLock lock(&mu_);
    stopped = stopped_;
    std::erase_if(paths_, [](const std::weak_ptr<UcxPathState>& path) { return path.expired(); });
    paths_.push_back(state);
  }
  if (stopped) state->Stop();
  return std::make_unique<UcxPath>(state, Capabilities{.kind = PathKind::kUcx,
                                                       .rma = fabric_->has_rma(),
                                                       .cuda = staging_ != nullptr,
                                                       .max_piece_bytes = wire::kMaxPieceBytes});
}

bool UcxNode::Inspect(std::function<void(const UcxNodeGauges&)> tell) {
  return fabric_->loop()->TryPost([this, tell = std::move(tell)] {
    tell({.lanes = fabric_->lanes(),
          .sessions = server_ == nullptr ? 0 : server_->sessions(),
          .pieces = options_.max_pieces - budget_->free()});
  });
}

}  // namespace epic::transport
