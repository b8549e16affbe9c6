#include "services/kv_store/core/node/reservations.h"

#include <algorithm>

#include "common/status/error.h"
#include "services/kv_store/core/host_object.h"

namespace epic::kv_store {
namespace {

constexpr size_t kMaxSourceBytes = 256;
constexpr int64_t kRetryMs = 1000;
constexpr int64_t kNsPerMs = 1'000'000;

absl::Status UnknownToken() {
  return Error(ErrorCode::kReservationEnded,
               "this node knows no such reservation, or not any more; reserve the object again");
}

absl::Status GoneError() {
  return Error(ErrorCode::kReservationEnded, "the client said goodbye; reserve the object again");
}

absl::Status Conflict(const std::string& message) { return Error(ErrorCode::kReservationConflict, message); }

std::string LayerText(uint32_t layer) { return "layer " + std::to_string(layer); }

// Statuses after which a commit of the same token may still succeed: the disk did not take a durable object.
bool MayCommitAgain(const absl::Status& status) { return !absl::IsNotFound(status); }

}  // namespace

// --- fills ---

LayerFill::LayerFill(Reservations* owner, const ReservationToken& token, uint32_t layer,
                     std::shared_ptr<ArenaWriter> writer)
    : owner_(owner),
      token_(token),
      layer_(layer),
      writer_(std::move(writer)),
      bytes_(writer_->Buffer(layer)) {}

LayerFill::LayerFill(LayerFill&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)),
      token_(other.token_),
      layer_(other.layer_),
      writer_(std::move(other.writer_)),
      bytes_(other.bytes_) {}

LayerFill::~LayerFill() {
  if (owner_ != nullptr) owner_->EndFill(token_, layer_);
}

// --- reserve ---

Reservations::Reservations(const ReservationOptions& options, uint64_t incarnation, const Clock* clock,
                           RandomSource random)
    : options_(options), incarnation_(incarnation), clock_(clock), random_(std::move(random)) {}

ReservationToken Reservations::NewToken() {
  ReservationToken token;
  while (token == ReservationToken{} || open_.contains(token) || ends_.contains(token)) {
    token = {random_(), random_()};
  }
  return token;
}

absl::Status Reservations::CheckBounds(PeerId peer) const {
  const auto of_peer = by_peer_.find(peer);
  const bool peer_is_full = of_peer != by_peer_.end() && of_peer->second >= options_.max_per_peer;
  if (open_.size() < options_.max && !peer_is_full) return absl::OkStatus();
  return RetryLater(ErrorCode::kQueueFull,
                    std::to_string(peer_is_full ? options_.max_per_peer : options_.max) +
                        " objects are being written " + (peer_is_full ? "by this client" : "to this node") +
                        " already; commit or abort some, then reserve again",
                    kRetryMs);
}

std::optional<ReserveResult> Reservations::Repeated(const Asked& asked, Writers* freed) {
  if (asked.request == ReserveRequestId{}) return std::nullopt;
  while (true) {
    const auto known = by_request_.find(asked.request);
    if (known == by_request_.end()) return std::nullopt;
    ReserveResult result;
    result.token = known->second;
    Reservation* const reservation = Find(result.token, freed);
    const End* const end = reservation == nullptr ? EndOf(result.token) : nullptr;
    if (reservation == nullptr && end == nullptr) continue;  // forgotten just now
    if ((reservation != nullptr ? reservation->asked : end->asked) != asked) {
      result.token = {};
      result.status =
          Error(ErrorCode::kInvalidRequest,
                "this request id is used for another reserve; draw a new one for each", "requests");
      return result;
    }
    if (reservation != nullptr) {
      if (reservation->writer == nullptr) {  // it runs
        changed_.Wait(&mu_);
        continue;
      }
      reservation->last_sign_ns = clock_->SteadyNs();
    }
    result.outcome = ReserveOutcome::kReserved;
    result.heartbeat_ms = options_.heartbeat_ms;
    return result;
  }
}

ReserveResult Reservations::Reserve(PeerId peer, const ReserveItem& item, const Begin& begin) {
  ReserveResult result;
  if (item.source.size() > kMaxSourceBytes) {
    result.status = Error(ErrorCode::kInvalidRequest, "a source has at most 256 bytes", "source");
    return result;
  }
  const Asked asked{.request = item.request,
                    .peer = peer,
                    .key = {{item.tenant, item.key.id}, item.key.variant},
                    .layout = item.layout};
  Writers freed;
  {
    MutexLock lock(&mu_);
    if (const auto repeated = Repeated(asked, &freed); repeated.has_value()) return *repeated;
    const int64_t now_ns = clock_->SteadyNs();
    if (const auto other = by_key_.find(asked.key); other != by_key_.end()) {
      const ReservationToken token = other->second;
      if (const Reservation* writing = Find(token, &freed)) {
        const int64_t left_ms = options_.timeout_ms - (now_ns - writing->last_sign_ns) / kNsPerMs;
        result.outcome = ReserveOutcome::kBusy;
        result.age_ms = (now_ns - writing->since_ns) / kNsPerMs;
        result.retry_after_ms = std::clamp<int64_t>(left_ms, 1, kRetryMs);
        result.source = writing->source;
        return result;
      }
    }
    result.status = CheckBounds(peer);
    if (!result.status.ok()) return result;
    result.token = NewToken();
    Reservation reservation;
    reservation.asked = asked;
    reservation.source = item.source;
    if (item.request != ReserveRequestId{}) by_request_[item.request] = result.token;
    reservation.since_ns = reservation.last_sign_ns = now_ns;
    reservation.busy = true;
    open_.emplace(result.token, std::move(reservation));
    by_key_[asked.key] = result.token;
    ++by_peer_[peer];
  }
  freed.clear();  // what was preempted makes room
  absl::StatusOr<std::unique_ptr<ArenaWriter>> writer = begin();
  MutexLock lock(&mu_);
  changed_.SignalAll();
  if (!writer.ok() || *writer == nullptr) {
    result.outcome = writer.ok() ? ReserveOutcome::kExists : ReserveOutcome::kFailed;
    result.status = writer.status();
    Finish(result.token, TokenState::kUnknown, absl::UnknownError(""), &freed);
    result.token = {};
    return result;
  }
  Reservation& reservation = open_.at(result.token);
  reservation.writer = *std::move(writer);
  if (reservation.leaving) {
    result.status = GoneError();
    Finish(result.token, TokenState::kAborted, result.status, &freed);
    return result;
  }
  reservation.layers.resize(item.layout.layers, LayerState::kEmpty);
  reservation.busy = false;
  reservation.last_sign_ns = clock_->SteadyNs();
  ++counts_.reserved;
  result.outcome = ReserveOutcome::kReserved;
  result.heartbeat_ms = options_.heartbeat_ms;
  return result;
}

// --- what becomes of a token ---

Reservations::Reservation* Reservations::Find(const ReservationToken& token, Writers* freed) {
  const auto found = open_.find(token);
  if (found == open_.end()) return nullptr;
  if (!IsOverdue(found->second, clock_->SteadyNs())) return &found->second;
  Finish(token, TokenState::kPreempted,
         Error(ErrorCode::kReservationEnded, "the writer gave no sign of life for " +
                                                 std::to_string(options_.timeout_ms) +
                                                 " ms and lost its reservation; reserve the object again"),
         freed);
  return nullptr;
}

const Reservations::End* Reservations::EndOf(const ReservationToken& token) {
  ForgetOldEnds(clock_->SteadyNs());
  const auto end = ends_.find(token);
  return end == ends_.end() ? nullptr : &end->second;
}

absl::Status Reservations::EndedError(const ReservationToken& token) {
  const End* const end = EndOf(token);
  if (end == nullptr) return UnknownToken();
  if (end->state != TokenState::kCommitted) return end->outcome.status();
  return Error(ErrorCode::kReservationEnded,
               "the object is committed already; there is nothing left to write");
}

void Reservations::Finish(const ReservationToken& token, TokenState state, absl::StatusOr<Committed> outcome,
                          Writers* freed) {
  const auto found = open_.find(token);
  Reservation& reservation = found->second;
  by_key_.erase(reservation.asked.key);
  if (const auto peer = by_peer_.find(reservation.asked.peer); --peer->second == 0) by_peer_.erase(peer);
  freed->push_back(std::move(reservation.writer));
  Asked asked = std::move(reservation.asked);
  open_.erase(found);
  if (state == TokenState::kUnknown) {  // was never given out
    by_request_.erase(asked.request);
    return;
  }
  counts_.committed += state == TokenState::kCommitted ? 1 : 0;
  counts_.aborted += state == TokenState::kAborted ? 1 : 0;
  counts_.preempted += state == TokenState::kPreempted ? 1 : 0;
  counts_.failed += state == TokenState::kFailed ? 1 : 0;
  const int64_t now_ns = clock_->SteadyNs();
  ends_.emplace(
      token, End{.state = state, .outcome = std::move(outcome), .at_ns = now_ns, .asked = std::move(asked)});
  end_order_.push_back(token);
  ForgetOldEnds(now_ns);
}

void Reservations::ForgetOldEnds(int64_t now_ns) {
  while (!end_order_.empty()) {
    const auto oldest = ends_.find(end_order_.front());
    const bool is_old = now_ns - oldest->second.at_ns >= options_.remembered_ms * kNsPerMs;
    if (!is_old && end_order_.size() <= options_.remembered_max) return;
    by_request_.erase(oldest->second.asked.request);
    ends_.erase(oldest);
    end_order_.pop_front();
  }
}

TokenState Reservations::Heartbeat(const ReservationToken& token) {
  Writers freed;
  MutexLock lock(&mu_);
  if (Reservation* const reservation = Find(token, &freed)) {
    reservation->last_sign_ns = clock_->SteadyNs();
    return TokenState::kAlive;
  }
  const End* const end = EndOf(token);
  return end == nullptr ? TokenState::kUnknown : end->state;
}

// --- layers ---

absl::StatusOr<LayerFill> Reservations::BeginLayer(const ReservationToken& token, uint32_t layer) {
  Writers freed;
  MutexLock lock(&mu_);
  Reservation* const reservation = Find(token, &freed);
  if (reservation == nullptr) return EndedError(token);
  if (reservation->busy) return Conflict("the object is being committed; there is nothing left to write");
  if (layer >= reservation->layers.size()) {
    return Error(ErrorCode::kInvalidRequest,
                 LayerText(layer) + " of an object of " + std::to_string(reservation->layers.size()),
                 "layer");
  }
  LayerState& state = reservation->layers[layer];
  if (state == LayerState::kFinished)
    return Conflict(LayerText(layer) + " has arrived already; go on with others");
  if (state == LayerState::kFilling) {
    return RetryLater(ErrorCode::kReservationConflict,
                      LayerText(layer) + " is being sent by another call; end that one, or wait for it",
                      kRetryMs);
  }
  state = LayerState::kFilling;
  reservation->last_sign_ns = clock_->SteadyNs();
  return LayerFill(this, token, layer, reservation->writer);
}

void Reservations::EndFill(const ReservationToken& token, uint32_t layer) {
  MutexLock lock(&mu_);
  const auto found = open_.find(token);
  if (found == open_.end()) return;
  LayerState& state = found->second.layers[layer];
  if (state == LayerState::kFilling) state = LayerState::kEmpty;
}

absl::Status Reservations::FinishLayer(LayerFill fill, std::span<const uint32_t> crcs) {
  Writers freed;
  {
    MutexLock lock(&mu_);
    if (Find(fill.token(), &freed) == nullptr) return EndedError(fill.token());
  }
  // The fill is ours and the layer is marked: nobody else touches its bytes.
  absl::Status status = fill.writer_->FinishLayer(fill.layer(), crcs);
  if (absl::IsInvalidArgument(status)) {
    status = Error(ErrorCode::kInvalidRequest,
                   std::to_string(crcs.size()) + " checksums for " + LayerText(fill.layer()) +
                       "; send one for each block of it",
                   "block_crcs");
  }
  MutexLock lock(&mu_);
  if (!status.ok() && CodeOf(status) == ErrorCode::kLayerDamaged) ++counts_.damaged_layers;
  Reservation* const reservation = Find(fill.token(), &freed);
  if (reservation == nullptr) return EndedError(fill.token());
  reservation->last_sign_ns = clock_->SteadyNs();
  if (status.ok()) reservation->layers[fill.layer()] = LayerState::kFinished;
  return status;
}

// --- the end ---

absl::Status Reservations::CheckWhole(const Reservation& reservation, const Digest& build) const {
  for (uint32_t layer = 0; layer < reservation.layers.size(); ++layer) {
    if (reservation.layers[layer] == LayerState::kFinished) continue;
    const bool filling = reservation.layers[layer] == LayerState::kFilling;
    return Conflict(LayerText(layer) + (filling ? " is still being sent; wait for it, then commit again"
                                                : " is missing; send it, then commit again"));
  }
  const Digest arrived = reservation.build.has_value() ? *reservation.build : reservation.writer->Build();
  if (arrived == build) return absl::OkStatus();
  return Conflict("the build digest " + build.Hex() + " is not that of the checksums of the layers, " +
                  arrived.Hex() + "; abort, reserve again and send the layers of one compile");
}

absl::StatusOr<Committed> Reservations::Commit(const ReservationToken& token, const Digest& build) {
  Writers freed;
  std::shared_ptr<ArenaWriter> writer;
  {
    MutexLock lock(&mu_);
    Reservation* reservation = Find(token, &freed);
    while (reservation != nullptr && reservation->busy) {
      changed_.Wait(&mu_);
      reservation = Find(token, &freed);
    }
    if (reservation == nullptr) {
      const End* const end = EndOf(token);
      return end == nullptr ? absl::StatusOr<Committed>(UnknownToken()) : end->outcome;
    }
    reservation->last_sign_ns = clock_->SteadyNs();
    if (absl::Status status = CheckWhole(*reservation, build); !status.ok()) return status;
    reservation->busy = true;
    reservation->build = build;
    writer = reservation->writer;
  }
  const absl::StatusOr<std::shared_ptr<const KvObject>> object = writer->Commit();
  writer.reset();
  MutexLock lock(&mu_);
  changed_.SignalAll();
  return FinishCommit(token, object, build, &freed);
}

absl::StatusOr<Committed> Reservations::FinishCommit(
    const ReservationToken& token, const absl::StatusOr<std::shared_ptr<const KvObject>>& object,
    const Digest& build, Writers* freed) {
  if (!object.ok() && MayCommitAgain(object.status())) {
    Reservation& reservation = open_.at(token);
    reservation.busy = false;
    reservation.last_sign_ns = clock_->SteadyNs();
    if (reservation.leaving) Finish(token, TokenState::kAborted, GoneError(), freed);
    return object.status();
  }
  if (!object.ok()) {
    Finish(token, TokenState::kFailed, object.status(), freed);
    return object.status();
  }
  // The store has no other objects.
  const auto& host = static_cast<const HostObject&>(**object);
  const Committed committed{
      .build = host.build(),
      .generation = {.incarnation = incarnation_, .counter = host.region().generation()},
      .own = host.build() == build};
  Finish(token, TokenState::kCommitted, committed, freed);
  return committed;
}

TokenState Reservations::Abort(const ReservationToken& token) {
  Writers freed;
  MutexLock lock(&mu_);
  Reservation* reservation = Find(token, &freed);
  while (reservation != nullptr && reservation->busy) {
    changed_.Wait(&mu_);
    reservation = Find(token, &freed);
  }
  if (reservation != nullptr) {
    Finish(token, TokenState::kAborted,
           Error(ErrorCode::kReservationEnded, "the reservation was aborted; reserve the object again"),
           &freed);
  }
  const End* const end = EndOf(token);
  return end == nullptr ? TokenState::kUnknown : end->state;
}

void Reservations::Goodbye(PeerId peer) {
  Writers freed;
  MutexLock lock(&mu_);
  std::vector<ReservationToken> tokens;
  for (auto& [token, reservation] : open_) {
    if (reservation.asked.peer != peer) continue;
    reservation.leaving = true;
    if (!reservation.busy) tokens.push_back(token);
  }
  for (const ReservationToken& token : tokens) {
    if (Find(token, &freed) != nullptr) Finish(token, TokenState::kAborted, GoneError(), &freed);
  }
}

size_t Reservations::Sweep() {
  Writers freed;
  MutexLock lock(&mu_);
  const int64_t now_ns = clock_->SteadyNs();
  std::vector<ReservationToken> overdue;
  for (const auto& [token, reservation] : open_) {
    if (IsOverdue(reservation, now_ns)) overdue.push_back(token);
  }
  for (const ReservationToken& token : overdue) Find(token, &freed);
  ForgetOldEnds(now_ns);
  return overdue.size();
}

std::optional<Reservations::Writing> Reservations::WritingOf(const TenantObjectKey& key) const {
  MutexLock lock(&mu_);
  const auto token = by_key_.find(key);
  if (token == by_key_.end()) return std::nullopt;
  const Reservation& reservation = open_.at(token->second);
  const int64_t now_ns = clock_->SteadyNs();
  if (IsOverdue(reservation, now_ns)) return std::nullopt;
  Writing writing{.source = reservation.source,
                  .age_ms = (now_ns - reservation.since_ns) / kNsPerMs,
                  .silent_ms = (now_ns - reservation.last_sign_ns) / kNsPerMs,
                  .layers = static_cast<uint32_t>(reservation.layers.size())};
  writing.layers_finished = static_cast<uint32_t>(
      std::count(reservation.layers.begin(), reservation.layers.end(), LayerState::kFinished));
  return writing;
}

Reservations::Counts Reservations::counts() const {
  MutexLock lock(&mu_);
  Counts counts = counts_;
  counts.open = open_.size();
  return counts;
}

}  // namespace epic::kv_store
