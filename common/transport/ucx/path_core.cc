#include "common/transport/ucx/path_core.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/storage/object_codec.h"
#include "common/transport/range_check.h"
#include "common/transport/ucx/piece_plan.h"

namespace epic::transport {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

}  // namespace

PathCore::PathCore(PathShared shared, std::shared_ptr<TicketSource> tickets, PathCoreOptions options,
                   PeerDownFn peer_down, EndedFn ended, uint64_t seed)
    : shared_(shared),
      options_(options),
      peer_down_(std::move(peer_down)),
      ended_(std::move(ended)),
      link_(std::make_shared<PeerLink>(shared.loop, shared.fabric, shared.clock, std::move(tickets),
                                       options.link, this, seed)) {}

PathCore::~PathCore() { EPIC_CHECK(pieces_.empty() && fetches_.empty()); }

FetchState* PathCore::Find(FetchId id) {
  const auto found = fetches_.find(id);
  return found == fetches_.end() ? nullptr : found->second.get();
}

absl::Status PathCore::CheckMemory(const FetchRequest& request) const {
  if (request.memory == MemoryKind::kHost || shared_.staging != nullptr) return absl::OkStatus();
  return NotOnThisPathStatus("this process has no device memory on the UCX path; fetch into host memory");
}

bool PathCore::StagesFor(const FetchState& fetch) const {
  return fetch.request().memory != MemoryKind::kHost &&
         !(shared_.fabric->reaches_device_memory() && shared_.staging->device()->can_sum());
}

void PathCore::Fetch(FetchId id, FetchRequest request, std::shared_ptr<FetchListener> listener) {
  absl::Status status = ValidateRequest(request);
  if (status.ok()) status = CheckMemory(request);
  if (status.ok() && MovesBytes(request) && request.deadline_steady_ns <= shared_.clock->SteadyNs()) {
    status = DeadlineStatus();
  }
  if (status.ok() && fetches_.size() >= options_.max_fetches) status = PathDownStatus("too many fetches");
  if (stopped_) status = PathDownStatus("the path is closed");
  if (!status.ok()) {
    for (size_t range = 0; range < request.ranges.size(); ++range) listener->OnRange(range, status, {});
    listener->OnDone(status);
    return ended_(id);
  }
  auto made = std::make_unique<FetchState>(id, std::move(request), std::move(listener));
  FetchState* const fetch = made.get();
  fetches_.emplace(id, std::move(made));
  for (size_t range = 0; range < fetch->request().ranges.size(); ++range) {
    if (fetch->request().ranges[range].to.empty()) fetch->EndRange(range, absl::OkStatus());
  }
  if (fetch->told_all()) return Finish(fetch, absl::OkStatus());
  fetch->deadline = shared_.loop->At(fetch->request().deadline_steady_ns, [weak = weak_from_this(), id] {
    const auto core = weak.lock();
    FetchState* const late = core == nullptr ? nullptr : core->Find(id);
    if (late == nullptr) return;
    late->deadline = 0;
    core->EndFetch(late, DeadlineStatus());
  });
  WatchLink();
  if (link_->up()) {
    OpenFetch(fetch);
  } else {
    link_->Want();
  }
}

void PathCore::Cancel(FetchId id) {
  if (FetchState* const fetch = Find(id); fetch != nullptr) EndFetch(fetch, CancelledStatus());
}

void PathCore::OpenFetch(FetchState* fetch) {
  const LeaseName& lease = fetch->region().lease;
  if (lease.incarnation != link_->incarnation()) {
    return EndFetch(fetch, LeaseEndedStatus("the peer has started anew; acquire the object again"));
  }
  const std::vector<uint32_t> layers = fetch->WantedLayers();
  auto next = layers.begin();
  const auto take = [&] {
    const auto end = next + std::min<ptrdiff_t>(wire::kMaxLayers, layers.end() - next);
    return std::vector<uint32_t>(std::exchange(next, end), end);
  };
  const auto ignored = [](const absl::Status&) {};  // the link says when it is down
  link_->lane()->Send(static_cast<uint8_t>(wire::Kind::kOpen),
                      wire::Encode(wire::Open{.fetch = fetch->id(), .lease = lease, .layers = take()}), {},
                      MemoryKind::kHost, ignored);
  while (next != layers.end()) {
    link_->lane()->Send(static_cast<uint8_t>(wire::Kind::kWait),
                        wire::Encode(wire::Wait{.fetch = fetch->id(), .layers = take()}), {},
                        MemoryKind::kHost, ignored);
  }
  fetch->open = true;
  Advance(fetch);
}

void PathCore::Advance(FetchState* fetch) {
  if (fetch->has_next()) {
    Enqueue(fetch);
    return Pump();
  }
  if (!fetch->told_all()) return;
  if (!fetch->first_error().ok()) return Finish(fetch, fetch->first_error());
  if (!fetch->open || fetch->confirming) return;
  fetch->confirming = true;
  link_->lane()->Send(static_cast<uint8_t>(wire::Kind::kConfirm),
                      wire::Encode(wire::Confirm{.fetch = fetch->id()}), {}, MemoryKind::kHost,
                      [](const absl::Status&) {});
}

void PathCore::EndFetch(FetchState* fetch, const absl::Status& status) {
  fetch->NoteError(status);
  fetch->EndAll(status);
  if (fetch->told_all()) return Finish(fetch, fetch->first_error());
  if (fetch->grace != 0) return;
  fetch->grace = shared_.loop->At(
      shared_.clock->SteadyNs() + options_.end_grace_ms * kNsPerMs,
      [weak = weak_from_this(), id = fetch->id()] {
        const auto core = weak.lock();
        FetchState* const late = core == nullptr ? nullptr : core->Find(id);
        if (late == nullptr) return;
        late->grace = 0;
        core->link_->Fail(PathDownStatus("pieces of a fetch that is over did not end; the lane was closed"));
      });
}

void PathCore::Finish(FetchState* fetch, const absl::Status& status) {
  const FetchId id = fetch->id();
  if (fetch->deadline != 0) shared_.loop->Cancel(fetch->deadline);
  if (fetch->grace != 0) shared_.loop->Cancel(fetch->grace);
  if (fetch->open && link_->up()) {
    link_->lane()->Send(static_cast<uint8_t>(wire::Kind::kEnd), wire::Encode(wire::End{.fetch = id}), {},
                        MemoryKind::kHost, [](const absl::Status&) {});
  }
  const auto node = fetches_.extract(id);
  node.mapped()->Done(status);
  ended_(id);
  WatchLink();
}

void PathCore::Stop(const absl::Status& status) {
  stopped_ = true;
  std::vector<FetchId> ids;
  for (const auto& [id, fetch] : fetches_) ids.push_back(id);
  for (const FetchId id : ids) EndFetch(Find(id), status);
  while (!probes_.empty()) EndProbe(probes_.begin()->first, status);
  link_->Close();
  std::vector<uint64_t> asked;
  for (const auto& [request, piece] : pieces_) {
    if (piece.state == PieceState::kAsked) asked.push_back(request);
  }
  for (const uint64_t request : asked) Drop(request);
}

void PathCore::Enqueue(FetchState* fetch) {
  if (fetch->queued) return;
  fetch->queued = true;
  turns_[static_cast<size_t>(fetch->request().traffic)].push_back(fetch->id());
}

FetchState* PathCore::NextInTurn() {
  for (auto& turns : turns_) {
    while (!turns.empty()) {
      FetchState* const fetch = Find(turns.front());
      if (fetch != nullptr && fetch->has_next()) return fetch;
      if (fetch != nullptr) fetch->queued = false;
      turns.pop_front();
    }
  }
  return nullptr;
}

void PathCore::Pump() {
  while (link_->up() && pieces_.size() < options_.window) {
    FetchState* const fetch = NextInTurn();
    if (fetch == nullptr) return;
    if (!shared_.budget->Take()) {
      if (std::exchange(waits_for_budget_, true)) return;
      shared_.budget->WhenFree([weak = weak_from_this()] {
        const auto core = weak.lock();
        if (core == nullptr) return;
        core->waits_for_budget_ = false;
        core->Pump();
      });
      return;
    }
    turns_[static_cast<size_t>(fetch->request().traffic)].pop_front();
    fetch->queued = false;
    const FetchId id = fetch->id();
    if (!AskNext(fetch)) {
      shared_.budget->Give();
      EndFetch(Find(id),
               absl::ResourceExhaustedError("no pinned memory for pieces on their way to a device"));
    } else if (fetch->has_next()) {
      Enqueue(fetch);
    }
  }
}

bool PathCore::AskNext(FetchState* fetch) {
  Piece piece{.fetch = fetch->id(), .plan = fetch->TakeNext()};
  if (StagesFor(*fetch)) {
    piece.slot = shared_.staging->Take();
    if (piece.slot.empty()) {
      fetch->Return(piece.plan);
      return false;
    }
    piece.to = piece.slot.first(piece.plan.length);
  } else {
    piece.to = fetch->BufferOf(piece.plan);
  }
  const uint64_t request = next_request_++;
  Piece& kept = pieces_.emplace(request, std::move(piece)).first->second;
  AskFor(fetch, request, &kept);
  WatchLink();
  return true;
}

void PathCore::AskFor(FetchState* fetch, uint64_t request, Piece* piece) {
  const uint32_t layer = fetch->request().ranges[piece->plan.range].layer;
  const bool rma = link_->lane()->has_rma();
  if (rma) {
    piece->state = PieceState::kArriving;
    fetch->BeginWrite(piece->plan.range);
    const MemoryKind kind = piece->slot.empty() ? fetch->request().memory : MemoryKind::kHost;
    link_->lane()->Get(
        fetch->AddressOf(layer) + piece->plan.offset, piece->to, kind,
        [self = shared_from_this(), request](const absl::Status& status) { self->OnBytes(request, status); });
    const Region& region = fetch->region();
    const auto blocks = BlocksOf(region.layout, piece->plan.offset, piece->plan.length);
    if (const auto known = KnownCrcs(region, layer, blocks->first, blocks->count); !known.empty()) {
      piece->crcs.assign(known.begin(), known.end());
      piece->has_sums = true;
      return;
    }
  }
  link_->lane()->Send(static_cast<uint8_t>(wire::Kind::kRead),
                      wire::Encode(wire::Read{.fetch = fetch->id(),
                                              .request = request,
                                              .layer = layer,
                                              .offset = piece->plan.offset,
                                              .length = piece->plan.length,
                                              .sums_only = rma}),
                      {}, MemoryKind::kHost, [](const absl::Status&) {});
}

void PathCore::Drop(uint64_t request) {
  const auto node = pieces_.extract(request);
  if (!node.mapped().slot.empty()) shared_.staging->Give(node.mapped().slot);
  shared_.budget->Give();
  WatchLink();
}

void PathCore::WatchLink() { link_->Watch(!fetches_.empty() || !probes_.empty() || !pieces_.empty()); }

void PathCore::Probe(FetchId id, int64_t deadline_ns, std::function<void(const absl::Status&)> done) {
  ProbeState& probe = probes_[id];
  probe.done = std::move(done);
  if (stopped_) return EndProbe(id, PathDownStatus("the path is closed"));
  if (probes_.size() > options_.max_fetches) return EndProbe(id, PathDownStatus("too many probes"));
  probe.deadline = shared_.loop->At(deadline_ns, [weak = weak_from_this(), id] {
    if (const auto core = weak.lock()) core->EndProbe(id, DeadlineStatus());
  });
  WatchLink();
  if (!link_->up()) return link_->Want();
  link_->lane()->Send(static_cast<uint8_t>(wire::Kind::kPing), wire::Encode(wire::Ping{.number = id}), {},
                      MemoryKind::kHost, [](const absl::Status&) {});
}

void PathCore::EndProbe(FetchId id, const absl::Status& status) {
  auto node = probes_.extract(id);
  if (node.empty()) return;
  if (node.mapped().deadline != 0) shared_.loop->Cancel(node.mapped().deadline);
  node.mapped().done(status);
  ended_(id);
  WatchLink();
}

void PathCore::OnUp() {
  std::vector<FetchId> ids;
  for (const auto& [id, fetch] : fetches_) {
    // One that has an error and wants nothing more only waits for its buffers.
    if (!fetch->open && (fetch->first_error().ok() || !fetch->WantedLayers().empty())) ids.push_back(id);
  }
  for (const FetchId id : ids) {
    if (FetchState* const fetch = Find(id); fetch != nullptr) OpenFetch(fetch);
  }
  for (const auto& [id, probe] : probes_) {
    link_->lane()->Send(static_cast<uint8_t>(wire::Kind::kPing), wire::Encode(wire::Ping{.number = id}), {},
                        MemoryKind::kHost, [](const absl::Status&) {});
  }
}

void PathCore::OnLinkDown(const absl::Status& why, bool was_up) {
  std::vector<uint64_t> lost;
  for (auto& [request, piece] : pieces_) {
    if (piece.state == PieceState::kArriving && !piece.has_sums) piece.failed = why;
    if (piece.state == PieceState::kAsked || (piece.failed.has_value() && piece.has_bytes)) {
      lost.push_back(request);
    }
  }
  for (const uint64_t request : lost) {
    Piece& piece = pieces_.at(request);
    FetchState* const fetch = Find(piece.fetch);
    if (fetch != nullptr) {
      if (piece.state == PieceState::kArriving) fetch->EndWrite(piece.plan.range);
      fetch->Return(piece.plan);
    }
    Drop(request);
  }
  std::vector<FetchId> ids;
  for (const auto& [id, fetch] : fetches_) ids.push_back(id);
  for (const FetchId id : ids) {
    FetchState* const fetch = Find(id);
    fetch->open = false;
    fetch->confirming = false;
    fetch->ForgetLayers();
    if (!was_up || std::exchange(fetch->retried, true)) EndFetch(fetch, why);
  }
  while (!probes_.empty()) EndProbe(probes_.begin()->first, why);
  if (was_up && peer_down_ != nullptr) peer_down_(why);
  if (!fetches_.empty()) link_->Want();
}

}  // namespace epic::transport
