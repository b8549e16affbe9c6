// Who writes which object just now: tokens, signs of life, preemption, and how each token ended. Pure logic
// over ArenaWriters and a clock; its owner (store_node.h) makes the writers and knows what exists.
// Thread-safe.
//
// A token lives from Reserve until its commit succeeds, it is aborted, its peer says goodbye, or `timeout_ms`
// passed since its last sign of life: a reserve, heartbeat, layer begun or finished, or commit. From that
// moment on it is preempted, whatever is asked first: nothing depends on when Sweep runs but the memory.
// While a reserve or commit of it runs it does not time out. What a token's end was is remembered for a
// while, so that a call that is repeated gets the same answer.
//
// Memory that is being filled (LayerFill) stays with its fill, whatever becomes of the token: late bytes land
// in nobody else's object. It is free again once the last fill is gone.
#ifndef EPIC_SERVICES_KV_STORE_CORE_NODE_RESERVATIONS_H_
#define EPIC_SERVICES_KV_STORE_CORE_NODE_RESERVATIONS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "services/kv_store/core/arena_writer.h"
#include "services/kv_store/core/node/incarnation.h"
#include "services/kv_store/core/node/node_types.h"
#include "services/kv_store/core/rows.h"

namespace epic::kv_store {

struct ReservationOptions {
  int64_t timeout_ms = 30'000;    // without a sign of life
  int64_t heartbeat_ms = 10'000;  // what writers are asked for
  int64_t remembered_ms = 600'000;
  size_t remembered_max = 16'384;
  size_t max = 4096;  // open at a time
  size_t max_per_peer = 1024;
};

class Reservations;

// The memory of one layer while its bytes arrive. Move-only; one thread at a time. REQUIRES: gone before the
// Reservations.
class LayerFill {
 public:
  LayerFill(LayerFill&& other) noexcept;
  LayerFill& operator=(LayerFill&& other) = delete;
  // Gives the layer up: nothing of what arrived is kept, and it may be begun again.
  ~LayerFill();

  // Whole layer: layout.LayerBytes().
  MutableByteSpan bytes() const { return bytes_; }
  uint32_t layer() const { return layer_; }
  const ReservationToken& token() const { return token_; }

 private:
  friend class Reservations;
  LayerFill(Reservations* owner, const ReservationToken& token, uint32_t layer,
            std::shared_ptr<ArenaWriter> writer);

  Reservations* owner_;  // nullptr: moved from
  const ReservationToken token_;
  const uint32_t layer_;
  std::shared_ptr<ArenaWriter> writer_;
  const MutableByteSpan bytes_;
};

class Reservations {
 public:
  // Takes memory for the item; nullptr: the object exists.
  using Begin = std::function<absl::StatusOr<std::unique_ptr<ArenaWriter>>()>;

  // `clock` outlives this; `random` is called under a lock.
  Reservations(const ReservationOptions& options, uint64_t incarnation, const Clock* clock,
               RandomSource random);

  // Calls `begin`, which may block, unless somebody else writes the object. Where several tokens race for one
  // object, one is reserved. Who asks again with the same request id gets the same token, as long as it is
  // known here, whatever became of it; one that is asked at the same time waits for the other. Errors
  // (kFailed): those of `begin`; kQueueFull when there are too many; kInvalidRequest for a source that is too
  // long, or a request id of another peer, object or layout.
  ReserveResult Reserve(PeerId peer, const ReserveItem& item, const Begin& begin) ABSL_LOCKS_EXCLUDED(mu_);

  // A sign of life. What the token is from now on.
  TokenState Heartbeat(const ReservationToken& token) ABSL_LOCKS_EXCLUDED(mu_);

  // The memory of one layer, for the caller to fill. Errors: kReservationEnded, or what the commit of the
  // token failed with; kReservationConflict when the layer is finished already or being filled;
  // kInvalidRequest when it is out of range.
  absl::StatusOr<LayerFill> BeginLayer(const ReservationToken& token, uint32_t layer)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Takes what was filled, if its checksums (one for each block of the layer) are `crcs`. Errors:
  // kLayerDamaged, nothing is kept of it; kReservationEnded; kInvalidRequest for a wrong number of checksums.
  absl::Status FinishLayer(LayerFill fill, std::span<const uint32_t> crcs) ABSL_LOCKS_EXCLUDED(mu_);

  // Makes the object visible if `build` is the digest of all its checksums. Idempotent: repeated, also after
  // the token's end, it answers the same; one that runs at the same time is waited for. Errors:
  // kReservationConflict when a layer is missing or being filled, or the digest is another one: the token
  // lives on; kReservationEnded; kContextNotFound and the like when the context is gone: final. With
  // durability `object` also those of the disk: the object is visible, and a further commit tries the disk
  // again.
  absl::StatusOr<Committed> Commit(const ReservationToken& token, const Digest& build)
      ABSL_LOCKS_EXCLUDED(mu_);
  // What the token is now: kAborted, or how it had ended before. Waits for a commit that runs. Idempotent.
  TokenState Abort(const ReservationToken& token) ABSL_LOCKS_EXCLUDED(mu_);
  // Aborts what the peer has reserved; what is being reserved or committed just now as soon as that ends
  // without success.
  void Goodbye(PeerId peer) ABSL_LOCKS_EXCLUDED(mu_);

  // Frees the memory of those that timed out. Returns how many there were.
  size_t Sweep() ABSL_LOCKS_EXCLUDED(mu_);

  // Who writes an object just now; nullopt: nobody.
  struct Writing {
    std::string source;
    int64_t age_ms = 0;
    int64_t silent_ms = 0;  // since the last sign of life
    uint32_t layers_finished = 0;
    uint32_t layers = 0;
  };
  std::optional<Writing> WritingOf(const TenantObjectKey& key) const ABSL_LOCKS_EXCLUDED(mu_);

  struct Counts {
    uint64_t open = 0;  // now
    // Since the start:
    uint64_t reserved = 0;
    uint64_t committed = 0;
    uint64_t aborted = 0;
    uint64_t preempted = 0;
    uint64_t failed = 0;
    uint64_t damaged_layers = 0;
  };
  Counts counts() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class LayerFill;
  enum class LayerState : uint8_t { kEmpty, kFilling, kFinished };
  // What a reserve was asked for.
  struct Asked {
    ReserveRequestId request;
    PeerId peer = 0;
    TenantObjectKey key;
    KvLayout layout;
    bool operator==(const Asked&) const = default;
  };
  struct Reservation {
    Asked asked;
    std::string source;
    int64_t since_ns = 0;
    int64_t last_sign_ns = 0;
    bool busy = false;                    // a reserve or commit of it runs: it does not time out
    bool leaving = false;                 // its peer has said goodbye
    std::shared_ptr<ArenaWriter> writer;  // nullptr while it is being reserved
    std::vector<LayerState> layers;
    std::optional<Digest> build;  // of a commit that got as far as the disk
  };
  struct End {
    TokenState state = TokenState::kUnknown;
    absl::StatusOr<Committed> outcome;  // what Commit answers
    int64_t at_ns = 0;
    Asked asked;
  };
  using Open = absl::flat_hash_map<ReservationToken, Reservation>;
  using Writers = std::vector<std::shared_ptr<ArenaWriter>>;

  // What a request that came before gets; nullopt: it did not. Waits for one that runs.
  std::optional<ReserveResult> Repeated(const Asked& asked, Writers* freed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ReservationToken NewToken() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckBounds(PeerId peer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsOverdue(const Reservation& reservation, int64_t now_ns) const {
    return !reservation.busy && now_ns - reservation.last_sign_ns >= options_.timeout_ms * 1'000'000;
  }
  // The open reservation, or nullptr; ends it first if it is overdue.
  Reservation* Find(const ReservationToken& token, Writers* freed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const End* EndOf(const ReservationToken& token) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status EndedError(const ReservationToken& token) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckWhole(const Reservation& reservation, const Digest& build) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<Committed> FinishCommit(const ReservationToken& token,
                                         const absl::StatusOr<std::shared_ptr<const KvObject>>& object,
                                         const Digest& build, Writers* freed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the reservation out. What it held goes into `freed`, to be destroyed without the lock.
  void Finish(const ReservationToken& token, TokenState state, absl::StatusOr<Committed> outcome,
              Writers* freed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetOldEnds(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndFill(const ReservationToken& token, uint32_t layer) ABSL_LOCKS_EXCLUDED(mu_);

  const ReservationOptions options_;
  const uint64_t incarnation_;
  const Clock* const clock_;
  const RandomSource random_;

  mutable Mutex mu_;
  CondVar changed_;  // a reserve or a commit has come to its end
  Open open_ ABSL_GUARDED_BY(mu_);
  std::map<TenantObjectKey, ReservationToken> by_key_ ABSL_GUARDED_BY(mu_);
  // Of tokens in open_ and in ends_.
  absl::flat_hash_map<ReserveRequestId, ReservationToken> by_request_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<PeerId, size_t> by_peer_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<ReservationToken, End> ends_ ABSL_GUARDED_BY(mu_);
  std::deque<ReservationToken> end_order_ ABSL_GUARDED_BY(mu_);
  Counts counts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_NODE_RESERVATIONS_H_
