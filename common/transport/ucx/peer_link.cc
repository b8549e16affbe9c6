#include "common/transport/ucx/peer_link.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/status/status_macros.h"
#include "common/transport/transport.h"

namespace epic::transport {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
// Pings of the link itself; those of probes count from 1.
constexpr uint64_t kOwnPing = 0;

// What others say of their failures, as a failure of this path.
absl::Status AsPathDown(const absl::Status& why) {
  if (EndOf(why) == FetchEnd::kPathDown) return why;
  return PathDownStatus(std::string("no UCX lane to the peer: ") +
                        std::string(why.message().data(), why.message().size()));
}

}  // namespace

PeerLink::PeerLink(std::shared_ptr<Loop> loop, Fabric* fabric, const Clock* clock,
                   std::shared_ptr<TicketSource> tickets, PeerLinkOptions options, LinkEvents* events,
                   uint64_t seed)
    : loop_(std::move(loop)),
      fabric_(fabric),
      clock_(clock),
      tickets_(std::move(tickets)),
      options_(options),
      events_(events),
      rng_(seed) {}

void PeerLink::Want() {
  if (state_ != State::kDown || events_ == nullptr) return;
  if (failures_ == 0) return Attempt();
  state_ = State::kResting;
  const int64_t longest_ms =
      std::min(options_.backoff_max_ms, options_.backoff_min_ms << std::min<uint32_t>(failures_ - 1, 20));
  // Between half of it and all of it, so that readers of one peer do not come back in step.
  const double part = 0.5 + 0.5 * rng_.Uniform();
  SetTimer(clock_->SteadyNs() + static_cast<int64_t>(static_cast<double>(longest_ms * kNsPerMs) * part),
           &PeerLink::Attempt);
}

void PeerLink::Attempt() {
  state_ = State::kAsking;
  const uint64_t attempt = ++attempt_;
  SetTimer(clock_->SteadyNs() + options_.connect_timeout_ms * kNsPerMs, &PeerLink::OnTimeout);
  tickets_->Ask([loop = loop_, weak = weak_from_this(), attempt](absl::StatusOr<std::string> blob) {
    loop->Post([weak, attempt, blob = std::move(blob)]() mutable {
      if (const auto link = weak.lock()) link->OnTicket(attempt, std::move(blob));
    });
  });
}

void PeerLink::OnTicket(uint64_t attempt, absl::StatusOr<std::string> blob) {
  if (state_ != State::kAsking || attempt != attempt_) return;
  if (!blob.ok()) return Down(blob.status());
  const absl::StatusOr<Ticket> ticket = DecodeTicket(*blob);
  const absl::Status status = ticket.ok() ? OpenLane(*ticket) : ticket.status();
  if (!status.ok()) Down(status);
}

absl::Status PeerLink::OpenLane(const Ticket& ticket) {
  if (ticket.address.empty() || ticket.rma != fabric_->has_rma()) {
    return PathDownStatus("the peer has no UCX lanes of the kind that this process has");
  }
  EPIC_ASSIGN_OR_RETURN(lane_, fabric_->Connect(ticket.address, this));
  state_ = State::kOpening;
  promised_incarnation_ = ticket.incarnation;
  for (const TicketRegion& region : ticket.regions) {
    EPIC_RETURN_IF_ERROR(lane_->AddRemoteRegion(region.address, region.size, region.key));
  }
  lane_->Send(static_cast<uint8_t>(wire::Kind::kHello), wire::Encode(wire::Hello{.secret = ticket.secret}),
              {}, MemoryKind::kHost, [](const absl::Status&) {});
  return absl::OkStatus();
}

void PeerLink::OnMessage(uint8_t kind, ByteSpan header, IncomingBody& body) {
  heard_ns_ = clock_->SteadyNs();
  if (kind == static_cast<uint8_t>(wire::Kind::kWelcome)) {
    OnWelcome(header, body);
  } else if (state_ == State::kUp) {
    const auto pong =
        kind == static_cast<uint8_t>(wire::Kind::kPong) ? wire::DecodePong(header) : std::nullopt;
    if (pong.has_value() && pong->number == kOwnPing) return;
    events_->OnMessage(static_cast<wire::Kind>(kind), header, body);
  } else {
    Fail(PathDownStatus("the peer spoke before its turn"));
  }
}

void PeerLink::OnWelcome(ByteSpan header, const IncomingBody& body) {
  const auto welcome = wire::DecodeWelcome(header);
  if (state_ != State::kOpening || !welcome.has_value() || body.size() != 0 ||
      welcome->incarnation != promised_incarnation_) {
    return Fail(PathDownStatus("the peer's welcome makes no sense"));
  }
  StopTimer();
  state_ = State::kUp;
  failures_ = 0;
  incarnation_ = welcome->incarnation;
  pinged_ns_ = 0;
  if (due_) LookForLife();
  events_->OnUp();
}

void PeerLink::OnDown(const absl::Status& why) { Down(why); }

void PeerLink::Fail(absl::Status why) {
  // The owner may be in the middle of something: it hears afterwards.
  loop_->Post([weak = weak_from_this(), attempt = attempt_, why = std::move(why)] {
    const auto link = weak.lock();
    if (link != nullptr && link->attempt_ == attempt) link->Down(why);
  });
}

void PeerLink::Down(const absl::Status& why) {
  if (state_ == State::kDown || state_ == State::kResting) return;
  StopTimer();
  const bool was_up = state_ == State::kUp;
  state_ = State::kDown;
  ++attempt_;
  if (!was_up) failures_ += 1;
  if (lane_ != nullptr) std::exchange(lane_, nullptr)->Close();
  if (events_ != nullptr) events_->OnLinkDown(AsPathDown(why), was_up);
}

void PeerLink::Close() {
  StopTimer();
  events_ = nullptr;
  state_ = State::kDown;
  ++attempt_;
  if (lane_ != nullptr) std::exchange(lane_, nullptr)->Close();
}

void PeerLink::SetTimer(int64_t at_ns, void (PeerLink::*what)()) {
  StopTimer();
  timer_ = loop_->At(at_ns, [weak = weak_from_this(), what] {
    const auto link = weak.lock();
    if (link == nullptr) return;
    link->timer_ = 0;
    (link.get()->*what)();
  });
}

void PeerLink::StopTimer() {
  if (timer_ != 0) loop_->Cancel(std::exchange(timer_, 0));
}

void PeerLink::OnTimeout() { Down(PathDownStatus("the peer did not open a UCX lane in time")); }

void PeerLink::Watch(bool due) {
  if (due == due_) return;
  due_ = due;
  if (state_ != State::kUp) return;
  if (due) {
    heard_ns_ = std::max(heard_ns_, clock_->SteadyNs());
    pinged_ns_ = 0;
    LookForLife();
  } else {
    StopTimer();
  }
}

void PeerLink::LookForLife() {
  const int64_t now_ns = clock_->SteadyNs();
  if (heard_ns_ >= pinged_ns_) pinged_ns_ = 0;
  // Counted from a ping, not from the last word: it may be this process that was stopped meanwhile.
  if (pinged_ns_ != 0 && now_ns - pinged_ns_ >= options_.dead_after_ms * kNsPerMs) {
    return Down(PathDownStatus("the peer does not answer any more"));
  }
  if (pinged_ns_ == 0 && now_ns - heard_ns_ >= options_.ping_after_ms * kNsPerMs) {
    pinged_ns_ = now_ns;
    lane_->Send(static_cast<uint8_t>(wire::Kind::kPing), wire::Encode(wire::Ping{.number = kOwnPing}), {},
                MemoryKind::kHost, [](const absl::Status&) {});
  }
  SetTimer(now_ns + options_.ping_after_ms * kNsPerMs, &PeerLink::LookForLife);
}

}  // namespace epic::transport
