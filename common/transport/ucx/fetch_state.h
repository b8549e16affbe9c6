// One fetch as the reader sees it: which layers are there, which parts were asked for, what came, and what
// its listener still has to hear. Pure bookkeeping of one loop: path_core.h acts on it.
#ifndef EPIC_COMMON_TRANSPORT_UCX_FETCH_STATE_H_
#define EPIC_COMMON_TRANSPORT_UCX_FETCH_STATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/timers.h"
#include "common/transport/transport.h"

namespace epic::transport {

// A part of a range to ask for: whole blocks of its layer.
struct PiecePlan {
  size_t range = 0;
  uint64_t offset = 0;  // in the layer
  uint32_t length = 0;
};

class FetchState {
 public:
  // REQUIRES: ValidateRequest(request).ok().
  FetchState(FetchId id, FetchRequest request, std::shared_ptr<FetchListener> listener);

  FetchId id() const { return id_; }
  const FetchRequest& request() const { return request_; }
  const Region& region() const { return *request_.region; }

  // --- asking

  // Layers that have ranges which did not end, in the order in which they are wanted.
  std::vector<uint32_t> WantedLayers() const;
  // The peer has a layer, with so many bytes, at that address. Ranges that want more end as damaged.
  void OnLayer(uint32_t layer, uint64_t size, uint64_t address);
  // The peer will never have it.
  void OnLayerFailed(uint32_t layer, const absl::Status& status);
  uint64_t AddressOf(uint32_t layer) const { return addresses_.at(layer); }
  bool has_next() const { return !ready_.empty(); }
  // The next piece, of the earliest range that can be read. REQUIRES: has_next().
  PiecePlan TakeNext();
  // Not asked for after all, or lost: it comes again.
  void Return(const PiecePlan& piece);
  // Another connection: layers must be waited for anew.
  void ForgetLayers();

  // --- buffers

  // A piece is on its way into its range's buffer, and has ended.
  void BeginWrite(size_t range) { ranges_[range].writes += 1; }
  void EndWrite(size_t range);
  // Where the bytes of a piece go.
  MutableByteSpan BufferOf(const PiecePlan& piece) const;
  // A piece is in its buffer and was checked. `crcs` of its blocks, of which the first is `first_block`.
  void OnPiece(const PiecePlan& piece, uint64_t first_block, std::span<const uint32_t> crcs);

  // --- ending

  // The range ends with `status` once nothing writes to it; later calls for it are ignored.
  void EndRange(size_t range, const absl::Status& status);
  // The same for all.
  void EndAll(const absl::Status& status);
  bool range_ended(size_t range) const { return ranges_[range].end.has_value(); }
  // Every range was told.
  bool told_all() const { return told_ == ranges_.size(); }
  // Before the last call: the first error of a range, or of the fetch.
  const absl::Status& first_error() const { return first_error_; }
  void NoteError(const absl::Status& status);
  // OnDone. REQUIRES: told_all(); once.
  void Done(const absl::Status& status) { std::exchange(listener_, nullptr)->OnDone(status); }

  // Of PathCore.
  bool open = false;        // the peer was told of it, on this connection
  bool confirming = false;  // and asked whether the lease was held
  bool queued = false;      // waits for its turn to ask
  bool retried = false;     // one connection was lost under it
  TimerId deadline = 0;
  TimerId grace = 0;

 private:
  struct RangeState {
    uint64_t next = 0;                                 // asked for up to here, in the layer
    std::vector<std::pair<uint64_t, uint32_t>> again;  // offset and length of what was lost
    uint64_t done = 0;                                 // bytes
    uint32_t writes = 0;
    std::optional<absl::Status> end;
    bool told = false;
    std::vector<uint32_t> crcs;
  };

  uint64_t EndOf(size_t range) const {
    return request_.ranges[range].offset + request_.ranges[range].to.size();
  }
  bool HasMore(size_t range) const;
  void Tell(size_t range);

  const FetchId id_;
  const FetchRequest request_;
  std::shared_ptr<FetchListener> listener_;
  std::vector<RangeState> ranges_;
  std::map<uint32_t, std::vector<size_t>> by_layer_;  // the ranges of each, without empty ones
  std::map<uint32_t, uint64_t> addresses_;            // of layers that are there
  std::set<size_t> ready_;                            // ranges with something to ask for
  size_t told_ = 0;
  absl::Status first_error_;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_FETCH_STATE_H_
