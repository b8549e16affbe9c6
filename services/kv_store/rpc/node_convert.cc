#include "services/kv_store/rpc/node_convert.h"

#include "common/base/bytes.h"
#include "common/rpc/kv_store/item_status.h"
#include "common/rpc/kv_store/object_convert.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic::kv_store {

std::string BytesOf(const ReservationToken& token) {
  std::string bytes;
  AppendLittle<uint64_t>(&bytes, token.high);
  AppendLittle<uint64_t>(&bytes, token.low);
  return bytes;
}

absl::StatusOr<ReservationToken> TokenOf(std::string_view bytes) {
  if (bytes.size() != kTokenBytes) {
    return Error(ErrorCode::kInvalidRequest, "a token is the 16 bytes that Reserve gave", "token");
  }
  return ReservationToken{.high = LoadLittle<uint64_t>(AsBytes(bytes)),
                          .low = LoadLittle<uint64_t>(AsBytes(bytes), sizeof(uint64_t))};
}

absl::StatusOr<std::vector<ReservationToken>> TokensOf(const std::string& bytes) {
  EPIC_ASSIGN_OR_RETURN(const auto pieces, PiecesOf(bytes, kTokenBytes, "tokens"));
  std::vector<ReservationToken> tokens;
  tokens.reserve(pieces.size());
  for (const std::string_view piece : pieces) {
    EPIC_ASSIGN_OR_RETURN(tokens.emplace_back(), TokenOf(piece));
  }
  return tokens;
}

absl::StatusOr<std::vector<ReserveRequestId>> RequestIdsOf(const std::string& bytes, size_t count) {
  std::vector<ReserveRequestId> ids(count);
  if (bytes.empty()) return ids;
  EPIC_ASSIGN_OR_RETURN(const auto pieces, PiecesOf(bytes, kRequestIdBytes, "requests"));
  if (pieces.size() != count) {
    return Error(ErrorCode::kInvalidRequest, "each key has one request id of 16 bytes, or none has",
                 "requests");
  }
  for (size_t i = 0; i < count; ++i) {
    ids[i] = {.high = LoadLittle<uint64_t>(AsBytes(pieces[i])),
              .low = LoadLittle<uint64_t>(AsBytes(pieces[i]), sizeof(uint64_t))};
  }
  return ids;
}

v1::TokenState ToProto(TokenState state) {
  switch (state) {
    case TokenState::kAlive:
      return v1::TOKEN_STATE_ALIVE;
    case TokenState::kCommitted:
      return v1::TOKEN_STATE_COMMITTED;
    case TokenState::kAborted:
      return v1::TOKEN_STATE_ABORTED;
    case TokenState::kPreempted:
      return v1::TOKEN_STATE_PREEMPTED;
    case TokenState::kFailed:
      return v1::TOKEN_STATE_FAILED;
    case TokenState::kUnknown:
      return v1::TOKEN_STATE_UNKNOWN;
  }
  return v1::TOKEN_STATE_UNSPECIFIED;
}

absl::StatusOr<std::vector<LeaseId>> LeasesOf(const v1::Leases& proto) {
  EPIC_RETURN_IF_ERROR(CheckBatch(static_cast<size_t>(proto.numbers_size()), "leases.numbers"));
  std::vector<LeaseId> leases;
  leases.reserve(static_cast<size_t>(proto.numbers_size()));
  for (const uint64_t number : proto.numbers()) leases.push_back({proto.incarnation(), number});
  return leases;
}

v1::LeaseStatesResponse ToProto(const std::vector<LeaseState>& states, uint64_t incarnation) {
  v1::LeaseStatesResponse proto;
  proto.set_incarnation(incarnation);
  for (const LeaseState state : states) proto.add_held(state == LeaseState::kHeld);
  return proto;
}

void SetItem(const ReserveResult& result, v1::ReserveObjectsResponse::Item* item) {
  switch (result.outcome) {
    case ReserveOutcome::kReserved:
      return item->set_token(BytesOf(result.token));
    case ReserveOutcome::kExists:
      return item->set_exists(true);
    case ReserveOutcome::kBusy:
      item->mutable_busy()->set_age_ms(result.age_ms);
      item->mutable_busy()->set_retry_after_ms(result.retry_after_ms);
      item->mutable_busy()->set_source(result.source);
      return;
    case ReserveOutcome::kFailed:
      *item->mutable_error() = epic::ToProto(result.status);
      return;
  }
}

void SetItem(const absl::StatusOr<Committed>& result, v1::CommitObjectsResponse::Item* item) {
  if (!result.ok()) {
    *item->mutable_error() = epic::ToProto(result.status());
    return;
  }
  v1::CommitObjectsResponse::Committed* committed = item->mutable_committed();
  committed->set_build(std::string(result->build.view()));
  committed->mutable_generation()->set_incarnation(result->generation.incarnation);
  committed->mutable_generation()->set_counter(result->generation.counter);
  committed->set_own(result->own);
}

void SetItem(const LeaseResult& result, bool with_checksums, v1::AcquireObjectsResponse::Item* item) {
  switch (result.outcome) {
    case AcquireOutcome::kLeased: {
      v1::AcquireObjectsResponse::Lease* lease = item->mutable_lease();
      lease->set_number(result.lease.number);
      lease->set_counter(result.generation.counter);
      lease->set_build(std::string(result.object->build().view()));
      lease->set_on_its_way(result.object->ReadyLayers() < result.object->layout().layers);
      if (!with_checksums) return;
      const auto& crcs = result.object->head().block_crcs;
      lease->mutable_block_crcs()->Assign(crcs.begin(), crcs.end());
      return;
    }
    case AcquireOutcome::kMiss:
      return item->set_miss(epic::ToProto(result.cause));
    case AcquireOutcome::kFailed:
      *item->mutable_error() = epic::ToProto(result.status);
      return;
  }
}

}  // namespace epic::kv_store
