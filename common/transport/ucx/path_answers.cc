// What a peer answers, and what becomes of its pieces: the receiving half of PathCore.
#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/storage/object_codec.h"
#include "common/transport/range_check.h"
#include "common/transport/ucx/path_core.h"
#include "common/transport/ucx/piece_plan.h"

namespace epic::transport {
namespace {

absl::Status NoSense() { return PathDownStatus("the peer's answer makes no sense"); }

// Only this end cancels its fetches: a peer that gives up is a peer that is gone.
absl::Status OfPeer(const absl::Status& status) {
  return status.code() == absl::StatusCode::kCancelled ? PathDownStatus("the peer gave up") : status;
}

}  // namespace

void PathCore::OnMessage(wire::Kind kind, ByteSpan header, IncomingBody& body) {
  if (kind == wire::Kind::kPiece) return OnPiece(header, body);
  if (body.size() != 0) return link_->Fail(NoSense());
  switch (kind) {
    case wire::Kind::kLayer:
      return OnLayer(header);
    case wire::Kind::kConfirmed:
      return OnConfirmed(header);
    case wire::Kind::kPong:
      return OnPong(header);
    default:
      return link_->Fail(NoSense());
  }
}

void PathCore::OnLayer(ByteSpan header) {
  const auto message = wire::DecodeLayer(header);
  if (!message.has_value()) return link_->Fail(NoSense());
  FetchState* const fetch = Find(message->fetch);
  if (fetch == nullptr || !fetch->open) return;
  if (message->layer == wire::Layer::kAllLayers) {
    fetch->open = false;
    return EndFetch(fetch, OfPeer(message->status));
  }
  if (message->status.ok()) {
    fetch->OnLayer(message->layer, message->size, message->address);
  } else {
    fetch->OnLayerFailed(message->layer, OfPeer(message->status));
  }
  Advance(fetch);
}

void PathCore::OnConfirmed(ByteSpan header) {
  const auto message = wire::DecodeConfirmed(header);
  if (!message.has_value()) return link_->Fail(NoSense());
  FetchState* const fetch = Find(message->fetch);
  if (fetch == nullptr || !fetch->confirming) return;
  fetch->open = false;  // the peer has let go of it
  Finish(fetch, message->held ? absl::OkStatus() : LeaseEndedStatus());
}

void PathCore::OnPong(ByteSpan header) {
  const auto message = wire::DecodePong(header);
  if (!message.has_value()) return link_->Fail(NoSense());
  EndProbe(message->number, absl::OkStatus());
}

absl::Status PathCore::TakeSums(const FetchState& fetch, const wire::Piece& message, Piece* piece) {
  const uint32_t layer = fetch.request().ranges[piece->plan.range].layer;
  const auto blocks = BlocksOf(fetch.region().layout, piece->plan.offset, piece->plan.length);
  EPIC_CHECK(blocks.has_value());
  if (message.layer != layer || message.offset != piece->plan.offset ||
      message.length != piece->plan.length) {
    return DamagedStatus(layer);
  }
  if (!message.status.ok()) return OfPeer(message.status);
  if (message.crcs.size() != blocks->count) return DamagedStatus(layer);
  piece->crcs = message.crcs;
  return absl::OkStatus();
}

void PathCore::OnPiece(ByteSpan header, IncomingBody& body) {
  const auto message = wire::DecodePiece(header);
  const auto found = message.has_value() ? pieces_.find(message->request) : pieces_.end();
  if (found == pieces_.end() || found->second.has_sums || message->incarnation != link_->incarnation()) {
    return link_->Fail(NoSense());
  }
  const uint64_t request = found->first;
  Piece& piece = found->second;
  FetchState* const fetch = Find(piece.fetch);
  if (fetch == nullptr || (piece.state == PieceState::kAsked && fetch->range_ended(piece.plan.range))) {
    // Nobody wants it any more; it only kept its place in the windows.
    Drop(request);
    return Pump();
  }
  absl::Status status = TakeSums(*fetch, *message, &piece);
  piece.has_sums = true;
  const bool arrives = piece.state == PieceState::kArriving;  // by RMA
  if (status.ok() && body.size() != (arrives ? 0 : piece.plan.length)) {
    status = DamagedStatus(message->layer);
  }
  if (arrives) {
    if (!status.ok()) fetch->EndRange(piece.plan.range, status);
    if (piece.has_bytes) CheckPiece(request);
    return;
  }
  if (!status.ok()) {
    fetch->EndRange(piece.plan.range, status);
    Drop(request);
    Advance(fetch);
    return Pump();
  }
  piece.state = PieceState::kArriving;
  fetch->BeginWrite(piece.plan.range);
  const MemoryKind kind = piece.slot.empty() ? fetch->request().memory : MemoryKind::kHost;
  body.ReceiveInto(piece.to, kind, [self = shared_from_this(), request](const absl::Status& received) {
    self->OnBytes(request, received);
  });
}

void PathCore::OnBytes(uint64_t request, const absl::Status& status) {
  Piece& piece = pieces_.at(request);
  FetchState* const fetch = Find(piece.fetch);
  EPIC_CHECK(fetch != nullptr && piece.state == PieceState::kArriving);
  if (status.ok() && !piece.failed.has_value()) {
    piece.has_bytes = true;
    if (piece.has_sums) CheckPiece(request);
    return;
  }
  const bool lost = piece.failed.has_value() || absl::IsUnavailable(status) || absl::IsCancelled(status);
  if (lost) {
    fetch->Return(piece.plan);
    // Whatever the lane thinks of itself: what was asked for on it may never come.
    if (link_->up() && !piece.failed.has_value()) link_->Fail(PathDownStatus("a piece was lost on its way"));
  } else {
    fetch->EndRange(piece.plan.range, DamagedStatus(fetch->request().ranges[piece.plan.range].layer));
  }
  fetch->EndWrite(piece.plan.range);
  Drop(request);
  Advance(fetch);
  Pump();
}

void PathCore::CheckPiece(uint64_t request) {
  Piece& piece = pieces_.at(request);
  FetchState* const fetch = Find(piece.fetch);
  piece.state = PieceState::kChecking;
  if (fetch->range_ended(piece.plan.range)) return OnChecked(request, absl::OkStatus());
  const bool on_device = fetch->request().memory != MemoryKind::kHost;
  if (on_device && piece.slot.empty()) return CheckOnDevice(request, fetch, &piece);
  const Region& region = fetch->region();
  const FetchRange part{
      .layer = fetch->request().ranges[piece.plan.range].layer, .offset = piece.plan.offset, .to = piece.to};
  const absl::Status status = CheckRange(region, part, piece.crcs);
  if (!status.ok() || !on_device) return OnChecked(request, status);
  CopyToDevice(request, fetch, &piece);
}

void PathCore::CheckOnDevice(uint64_t request, FetchState* fetch, Piece* piece) {
  const Region& region = fetch->region();
  const uint32_t layer = fetch->request().ranges[piece->plan.range].layer;
  const auto blocks = BlocksOf(region.layout, piece->plan.offset, piece->plan.length);
  std::vector<uint64_t> sizes;
  for (uint64_t block = blocks->first; block < blocks->first + blocks->count; ++block) {
    sizes.push_back(BlockOffset(region.layout, block + 1) - BlockOffset(region.layout, block));
  }
  const std::span<const uint32_t> known = KnownCrcs(region, layer, blocks->first, blocks->count);
  if (!known.empty() && !std::ranges::equal(piece->crcs, known))
    return OnChecked(request, DamagedStatus(layer));
  shared_.staging->device()->Sum(piece->to, std::move(sizes),
                                 [loop = shared_.loop, self = shared_from_this(), request, layer,
                                  expected = piece->crcs](absl::StatusOr<std::vector<uint32_t>> sums) {
                                   const absl::Status status = !sums.ok()          ? sums.status()
                                                               : *sums == expected ? absl::OkStatus()
                                                                                   : DamagedStatus(layer);
                                   loop->Post([self, request, status] { self->OnChecked(request, status); });
                                 });
}

void PathCore::CopyToDevice(uint64_t request, FetchState* fetch, Piece* piece) {
  shared_.staging->device()->CopyIn(
      piece->to, fetch->BufferOf(piece->plan),
      [loop = shared_.loop, self = shared_from_this(), request](absl::Status status) {
        loop->Post([self, request, status = std::move(status)] { self->OnChecked(request, status); });
      });
}

void PathCore::OnChecked(uint64_t request, const absl::Status& status) {
  Piece& piece = pieces_.at(request);
  FetchState* const fetch = Find(piece.fetch);
  if (status.ok()) {
    const auto blocks = BlocksOf(fetch->region().layout, piece.plan.offset, piece.plan.length);
    fetch->OnPiece(piece.plan, blocks->first, piece.crcs);
  } else {
    fetch->EndRange(piece.plan.range, status);
  }
  fetch->EndWrite(piece.plan.range);
  Drop(request);
  Advance(fetch);
  Pump();
}

}  // namespace epic::transport
