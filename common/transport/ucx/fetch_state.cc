#include "common/transport/ucx/fetch_state.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/transport/range_check.h"
#include "common/transport/ucx/piece_plan.h"

namespace epic::transport {

FetchState::FetchState(FetchId id, FetchRequest request, std::shared_ptr<FetchListener> listener)
    : id_(id), request_(std::move(request)), listener_(std::move(listener)), ranges_(request_.ranges.size()) {
  for (size_t range = 0; range < ranges_.size(); ++range) {
    const FetchRange& asked = request_.ranges[range];
    ranges_[range].next = asked.offset;
    if (!asked.to.empty()) by_layer_[asked.layer].push_back(range);
  }
}

std::vector<uint32_t> FetchState::WantedLayers() const {
  std::vector<std::pair<size_t, uint32_t>> first;  // of each layer, the first range that did not end
  for (const auto& [layer, ranges] : by_layer_) {
    const auto open =
        std::find_if(ranges.begin(), ranges.end(), [this](size_t range) { return !range_ended(range); });
    if (open != ranges.end()) first.emplace_back(*open, layer);
  }
  std::sort(first.begin(), first.end());
  std::vector<uint32_t> layers;
  for (const auto& [range, layer] : first) layers.push_back(layer);
  return layers;
}

void FetchState::OnLayer(uint32_t layer, uint64_t size, uint64_t address) {
  const auto found = by_layer_.find(layer);
  if (found == by_layer_.end()) return;
  addresses_[layer] = address;
  for (const size_t range : found->second) {
    if (EndOf(range) > size) {
      EndRange(range, DamagedStatus(layer));
    } else if (HasMore(range)) {
      ready_.insert(range);
    }
  }
}

void FetchState::OnLayerFailed(uint32_t layer, const absl::Status& status) {
  const auto found = by_layer_.find(layer);
  if (found == by_layer_.end()) return;
  for (const size_t range : found->second) EndRange(range, status);
}

bool FetchState::HasMore(size_t range) const {
  const RangeState& state = ranges_[range];
  return !state.end.has_value() && (!state.again.empty() || state.next < EndOf(range));
}

PiecePlan FetchState::TakeNext() {
  const size_t range = *ready_.begin();
  RangeState& state = ranges_[range];
  PiecePlan piece{.range = range};
  if (!state.again.empty()) {
    piece.offset = state.again.back().first;
    piece.length = state.again.back().second;
    state.again.pop_back();
  } else {
    const uint64_t end = PieceEnd(region().layout, state.next, EndOf(range));
    piece.offset = state.next;
    piece.length = static_cast<uint32_t>(end - state.next);
    state.next = end;
  }
  if (!HasMore(range)) ready_.erase(range);
  return piece;
}

void FetchState::Return(const PiecePlan& piece) {
  RangeState& state = ranges_[piece.range];
  if (state.end.has_value()) return;
  state.again.emplace_back(piece.offset, piece.length);
  if (addresses_.contains(request_.ranges[piece.range].layer)) ready_.insert(piece.range);
}

void FetchState::ForgetLayers() {
  addresses_.clear();
  ready_.clear();
}

void FetchState::EndWrite(size_t range) {
  EPIC_CHECK(ranges_[range].writes > 0);
  ranges_[range].writes -= 1;
  Tell(range);
}

MutableByteSpan FetchState::BufferOf(const PiecePlan& piece) const {
  const FetchRange& asked = request_.ranges[piece.range];
  return asked.to.subspan(piece.offset - asked.offset, piece.length);
}

void FetchState::OnPiece(const PiecePlan& piece, uint64_t first_block, std::span<const uint32_t> crcs) {
  RangeState& state = ranges_[piece.range];
  if (state.end.has_value()) return;
  const FetchRange& asked = request_.ranges[piece.range];
  const uint64_t first = *BlockAt(region().layout, asked.offset);
  const uint64_t last = *BlockAt(region().layout, asked.offset + asked.to.size());
  state.crcs.resize(last - first);
  std::copy(crcs.begin(), crcs.end(), state.crcs.begin() + static_cast<ptrdiff_t>(first_block - first));
  state.done += piece.length;
  if (state.done == asked.to.size()) EndRange(piece.range, absl::OkStatus());
}

void FetchState::NoteError(const absl::Status& status) {
  if (first_error_.ok()) first_error_ = status;
}

void FetchState::EndRange(size_t range, const absl::Status& status) {
  RangeState& state = ranges_[range];
  if (state.end.has_value()) return;
  state.end = status;
  state.again.clear();
  ready_.erase(range);
  NoteError(status);
  Tell(range);
}

void FetchState::EndAll(const absl::Status& status) {
  for (size_t range = 0; range < ranges_.size(); ++range) EndRange(range, status);
}

void FetchState::Tell(size_t range) {
  RangeState& state = ranges_[range];
  if (!state.end.has_value() || state.told || state.writes > 0) return;
  state.told = true;
  told_ += 1;
  listener_->OnRange(range, *state.end,
                     state.end->ok() ? std::span<const uint32_t>(state.crcs) : std::span<const uint32_t>());
}

}  // namespace epic::transport
