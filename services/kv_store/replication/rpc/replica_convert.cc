#include "services/kv_store/replication/rpc/replica_convert.h"

#include <string>
#include <string_view>
#include <utility>

#include "common/rpc/kv_store/record_convert.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/record_codec.h"
#include "services/kv_store/replication/rpc/replica_status.h"

namespace epic::kv_store {
namespace {

constexpr size_t kMaxTenantBytes = 256;
constexpr size_t kMaxNodeBytes = 256;
constexpr size_t kMaxNameBytes = 1024;
constexpr int kMaxTokens = 1 << 24;
constexpr uint64_t kMaxBeat = uint64_t{1} << 48;
constexpr int64_t kMaxUnixMs = int64_t{1} << 53;

absl::Status Malformed(std::string_view field, std::string_view what) {
  return Error(ErrorCode::kInvalidRequest, std::string(field) + " " + std::string(what), field);
}

absl::StatusOr<std::string> TextOf(const std::string& text, size_t most, std::string_view field) {
  if (text.size() > most) return Malformed(field, "is too long");
  return text;
}

void SetTime(const HybridTime& time, v1::HybridTime* (v1::ReplicaTombstone::*field)(),
             v1::ReplicaTombstone* proto) {
  if (time == HybridTime{}) return;
  v1::HybridTime* const set = (proto->*field)();
  set->set_unix_ms(time.unix_ms);
  set->set_counter(time.counter);
}

absl::Status CheckTime(const HybridTime& time, std::string_view field) {
  if (time.unix_ms < 0 || time.unix_ms > kMaxUnixMs) return Malformed(field, "is no time");
  return absl::OkStatus();
}

absl::StatusOr<HybridTime> TimeOf(const v1::HybridTime& proto, std::string_view field) {
  const HybridTime time{proto.unix_ms(), proto.counter()};
  EPIC_RETURN_IF_ERROR(CheckTime(time, field));
  return time;
}

absl::StatusOr<uint64_t> BeatOf(uint64_t beat) {
  if (beat > kMaxBeat) return Malformed("beat", "is out of range");
  return beat;
}

v1::ReplicaKey KeyToProto(const ContextKey& key) {
  v1::ReplicaKey proto;
  proto.set_tenant(key.tenant);
  proto.set_id(key.id.text());
  return proto;
}

absl::StatusOr<ContextKey> KeyOf(const v1::ReplicaKey& proto) {
  ContextKey key;
  EPIC_ASSIGN_OR_RETURN(key.tenant, TextOf(proto.tenant(), kMaxTenantBytes, "tenant"));
  EPIC_ASSIGN_OR_RETURN(key.id, CacheIdFromProto(proto.id(), "id"));
  return key;
}

v1::ReplicaTombstone TombstoneToProto(const Tombstone& tombstone) {
  using Proto = v1::ReplicaTombstone;
  Proto proto;
  SetTime(tombstone.at, &Proto::mutable_at, &proto);
  proto.set_cause(tombstone.cause == RemovalCause::kDeleted ? v1::REPLICA_REMOVAL_DELETED
                                                            : v1::REPLICA_REMOVAL_EXPIRED);
  SetTime(tombstone.deleted, &Proto::mutable_deleted, &proto);
  SetTime(tombstone.expired_life, &Proto::mutable_expired_life, &proto);
  SetTime(tombstone.expired, &Proto::mutable_expired, &proto);
  if (tombstone.created_at_ms.has_value()) proto.set_created_unix_ms(*tombstone.created_at_ms);
  return proto;
}

absl::StatusOr<Tombstone> TombstoneOf(const v1::ReplicaTombstone& proto) {
  Tombstone tombstone;
  if (proto.cause() != v1::REPLICA_REMOVAL_DELETED && proto.cause() != v1::REPLICA_REMOVAL_EXPIRED) {
    return UnknownValue("cause");
  }
  tombstone.cause =
      proto.cause() == v1::REPLICA_REMOVAL_DELETED ? RemovalCause::kDeleted : RemovalCause::kExpired;
  EPIC_ASSIGN_OR_RETURN(tombstone.at, TimeOf(proto.at(), "at"));
  EPIC_ASSIGN_OR_RETURN(tombstone.deleted, TimeOf(proto.deleted(), "deleted"));
  EPIC_ASSIGN_OR_RETURN(tombstone.expired_life, TimeOf(proto.expired_life(), "expired_life"));
  EPIC_ASSIGN_OR_RETURN(tombstone.expired, TimeOf(proto.expired(), "expired"));
  if (proto.has_created_unix_ms()) tombstone.created_at_ms = proto.created_unix_ms();
  return tombstone;
}

absl::StatusOr<ContextRecord> RecordOf(const v1::StoredContext& proto, const std::string& tenant) {
  EPIC_ASSIGN_OR_RETURN(ContextRecord record, epic::FromProto(proto, tenant));
  EPIC_RETURN_IF_ERROR(ValidateRecord(record));
  for (const HybridTime& time : {record.created, record.expiry_changed, record.pin_changed,
                                 record.tags_changed, record.name_changed}) {
    EPIC_RETURN_IF_ERROR(CheckTime(time, "record"));
  }
  return record;
}

v1::ReplicaContextState StateToProto(const ReplicaState& state) {
  v1::ReplicaContextState proto;
  if (state.record.has_value()) *proto.mutable_record() = epic::ToProto(*state.record);
  if (state.tombstone.has_value()) *proto.mutable_tombstone() = TombstoneToProto(*state.tombstone);
  return proto;
}

absl::StatusOr<ReplicaState> StateOf(const v1::ReplicaContextState& proto, const std::string& tenant) {
  ReplicaState state;
  if (proto.has_record()) {
    EPIC_ASSIGN_OR_RETURN(state.record, RecordOf(proto.record(), tenant));
  }
  if (proto.has_tombstone()) {
    EPIC_ASSIGN_OR_RETURN(state.tombstone, TombstoneOf(proto.tombstone()));
  }
  if (state.record.has_value() && state.tombstone.has_value() && !Counts(*state.record, *state.tombstone)) {
    return Malformed("state", "has a record that its own tombstone removes");
  }
  return state;
}

v1::ReplicaItem ItemToProto(const ReplicaItem& item) {
  v1::ReplicaItem proto;
  *proto.mutable_key() = KeyToProto(item.key);
  *proto.mutable_state() = StateToProto(item.state);
  if (item.tokens != nullptr) {
    proto.mutable_tokens()->mutable_ids()->Assign(item.tokens->begin(), item.tokens->end());
  }
  return proto;
}

absl::StatusOr<ReplicaItem> ItemOf(const v1::ReplicaItem& proto) {
  ReplicaItem item;
  EPIC_ASSIGN_OR_RETURN(item.key, KeyOf(proto.key()));
  EPIC_ASSIGN_OR_RETURN(item.state, StateOf(proto.state(), item.key.tenant));
  const auto& record = item.state.record;
  if (record.has_value() && record->id != item.key.id) return Malformed("record", "is another context's");
  if (!proto.has_tokens()) return item;
  const auto& ids = proto.tokens().ids();
  if (ids.size() > kMaxTokens || (record.has_value() && record->token_count != uint32_t(ids.size()))) {
    return Malformed("tokens", "are not as many as the record says");
  }
  item.tokens = std::make_shared<const std::vector<TokenId>>(ids.begin(), ids.end());
  return item;
}

template <typename Items>
absl::StatusOr<std::vector<ReplicaItem>> ItemsOf(const Items& protos) {
  if (protos.size() > kMaxReplicaItems) return Malformed("items", "are too many");
  std::vector<ReplicaItem> items;
  items.reserve(static_cast<size_t>(protos.size()));
  for (const v1::ReplicaItem& proto : protos) {
    EPIC_ASSIGN_OR_RETURN(items.emplace_back(), ItemOf(proto));
  }
  return items;
}

// How many of the items were added: as many as fit, at least one.
template <typename Proto>
size_t AddItems(const std::vector<ReplicaItem>& items, size_t most_bytes, Proto* proto) {
  size_t bytes = 0;
  for (size_t at = 0; at < items.size(); ++at) {
    v1::ReplicaItem item = ItemToProto(items[at]);
    bytes += item.ByteSizeLong();
    if (at > 0 && bytes > most_bytes) return at;
    *proto->add_items() = std::move(item);
  }
  return items.size();
}

void SetStanding(const Standing& standing, v1::ReplicaStanding* proto) {
  proto->set_session(standing.session);
  proto->set_epoch(standing.epoch);
  proto->set_up(standing.up == NodeUp::kServing   ? v1::REPLICA_UP_SERVING
                : standing.up == NodeUp::kJoining ? v1::REPLICA_UP_JOINING
                                                  : v1::REPLICA_UP_DOWN);
  proto->set_empty(standing.empty);
  proto->set_beat(standing.beat);
  proto->set_served_at(standing.served_at);
}

absl::StatusOr<NodeUp> UpOf(v1::ReplicaUp up) {
  switch (up) {
    case v1::REPLICA_UP_DOWN:
      return NodeUp::kDown;
    case v1::REPLICA_UP_JOINING:
      return NodeUp::kJoining;
    case v1::REPLICA_UP_SERVING:
      return NodeUp::kServing;
    default:
      return UnknownValue("up");
  }
}

absl::StatusOr<Standing> StandingOf(const v1::ReplicaStanding& proto) {
  Standing standing{.session = proto.session(), .epoch = proto.epoch()};
  EPIC_ASSIGN_OR_RETURN(standing.up, UpOf(proto.up()));
  standing.empty = proto.empty();
  EPIC_ASSIGN_OR_RETURN(standing.beat, BeatOf(proto.beat()));
  EPIC_ASSIGN_OR_RETURN(standing.served_at, BeatOf(proto.served_at()));
  return standing;
}

void SetBeats(const BeatLog& beats, v1::ReplicaBeats* proto) {
  proto->set_beat(beats.beat);
  for (const auto& [beat, time] : beats.starts) {
    v1::ReplicaBeats::Start* const start = proto->add_starts();
    start->set_beat(beat);
    start->mutable_time()->set_unix_ms(time.unix_ms);
    start->mutable_time()->set_counter(time.counter);
  }
}

absl::StatusOr<BeatLog> BeatsOf(const v1::ReplicaBeats& proto) {
  BeatLog beats;
  EPIC_ASSIGN_OR_RETURN(beats.beat, BeatOf(proto.beat()));
  if (static_cast<uint32_t>(proto.starts_size()) > kMaxBeatStarts) return Malformed("starts", "are too many");
  uint64_t last = 0;
  for (const v1::ReplicaBeats::Start& start : proto.starts()) {
    if (start.beat() <= last || start.beat() > beats.beat)
      return Malformed("starts", "do not grow to the beat");
    last = start.beat();
    EPIC_ASSIGN_OR_RETURN(beats.starts[last], TimeOf(start.time(), "starts"));
  }
  return beats;
}

absl::Status SetChange(const v1::ReplicaChangeRequest& proto, ChangeRequest* request) {
  const ContextKey& key = request->key;
  switch (proto.what_case()) {
    case v1::ReplicaChangeRequest::kCreate: {
      EPIC_ASSIGN_OR_RETURN(NewContext context, epic::FromProto(proto.create()));
      if (proto.create().tokens_size() > kMaxTokens) return Malformed("tokens", "are too many");
      if (context.tenant != key.tenant ||
          CacheId::Of(context.tenant, context.model_identity, context.tokens) != key.id) {
        return Malformed("create", "is of another context");
      }
      request->what = std::move(context);
      return absl::OkStatus();
    }
    case v1::ReplicaChangeRequest::kUpdate: {
      if (proto.update().tenant() != key.tenant || proto.update().id() != key.id.text()) {
        return Malformed("update", "is of another context");
      }
      EPIC_ASSIGN_OR_RETURN(request->what, epic::FromProto(proto.update()));
      return absl::OkStatus();
    }
    case v1::ReplicaChangeRequest::kDelete:
      request->what = DeleteChange{};
      return absl::OkStatus();
    case v1::ReplicaChangeRequest::kSetState: {
      SetStateChange change;
      EPIC_ASSIGN_OR_RETURN(change.state, epic::FromProto(proto.set_state().state()));
      change.compile_ms = proto.set_state().compile_ms();
      EPIC_ASSIGN_OR_RETURN(change.error, TextOf(proto.set_state().error(), kMaxRecordErrorBytes, "error"));
      request->what = std::move(change);
      return absl::OkStatus();
    }
    default:
      return UnknownValue("what");
  }
}

}  // namespace

v1::ReplicaSendRequest ToProto(const SendRequest& request) {
  v1::ReplicaSendRequest proto;
  proto.set_session(request.session);
  proto.set_beat(request.beat);
  for (const ReplicaItem& item : request.items) *proto.add_items() = ItemToProto(item);
  return proto;
}

absl::StatusOr<SendRequest> FromProto(const v1::ReplicaSendRequest& proto) {
  SendRequest request{.session = proto.session(), .beat = 0, .items = {}};
  EPIC_ASSIGN_OR_RETURN(request.beat, BeatOf(proto.beat()));
  EPIC_ASSIGN_OR_RETURN(request.items, ItemsOf(proto.items()));
  return request;
}

v1::ReplicaSendResponse ToProto(const SendReply& reply) {
  v1::ReplicaSendResponse proto;
  SetStanding(reply.standing, proto.mutable_standing());
  for (const ItemResult& result : reply.results) {
    v1::ReplicaSendResponse::Result* const to = proto.add_results();
    if (!result.status.ok()) *to->mutable_error() = StatusToProto(result.status);
    if (!result.newer.has_value()) continue;
    *to->mutable_newer() = StateToProto(*result.newer);
    if (result.newer->record.has_value()) to->set_tenant(result.newer->record->tenant);
  }
  return proto;
}

absl::StatusOr<SendReply> FromProto(const v1::ReplicaSendResponse& proto) {
  SendReply reply;
  EPIC_ASSIGN_OR_RETURN(reply.standing, StandingOf(proto.standing()));
  if (proto.results_size() > kMaxReplicaItems) return Malformed("results", "are too many");
  for (const v1::ReplicaSendResponse::Result& result : proto.results()) {
    ItemResult& to = reply.results.emplace_back();
    if (result.has_error()) {
      EPIC_ASSIGN_OR_RETURN(to.status, StatusFromProto(result.error()));
    }
    if (result.has_newer()) {
      EPIC_ASSIGN_OR_RETURN(to.newer, StateOf(result.newer(), result.tenant()));
    }
  }
  return reply;
}

v1::ReplicaFetchRequest ToProto(const FetchRequest& request) {
  v1::ReplicaFetchRequest proto;
  proto.set_node(request.node);
  proto.set_session(request.session);
  if (request.after.has_value()) *proto.mutable_after() = KeyToProto(*request.after);
  proto.set_limit(request.limit);
  return proto;
}

absl::StatusOr<FetchRequest> FromProto(const v1::ReplicaFetchRequest& proto) {
  FetchRequest request;
  EPIC_ASSIGN_OR_RETURN(request.node, TextOf(proto.node(), kMaxNodeBytes, "node"));
  request.session = proto.session();
  if (proto.has_after()) {
    EPIC_ASSIGN_OR_RETURN(request.after, KeyOf(proto.after()));
  }
  request.limit = proto.limit();
  if (request.limit < 1 || request.limit > kMaxReplicaItems) return Malformed("limit", "is out of range");
  return request;
}

v1::ReplicaFetchResponse ToProto(const FetchReply& reply) {
  v1::ReplicaFetchResponse proto;
  SetStanding(reply.standing, proto.mutable_standing());
  const size_t added = AddItems(reply.items, kFetchedBytes, &proto);
  if (added < reply.items.size()) {
    *proto.mutable_next() = KeyToProto(reply.items[added - 1].key);
  } else if (reply.next.has_value()) {
    *proto.mutable_next() = KeyToProto(*reply.next);
  }
  return proto;
}

absl::StatusOr<FetchReply> FromProto(const v1::ReplicaFetchResponse& proto) {
  FetchReply reply;
  EPIC_ASSIGN_OR_RETURN(reply.standing, StandingOf(proto.standing()));
  EPIC_ASSIGN_OR_RETURN(reply.items, ItemsOf(proto.items()));
  if (proto.has_next()) {
    EPIC_ASSIGN_OR_RETURN(reply.next, KeyOf(proto.next()));
  }
  return reply;
}

v1::ReplicaQueryRequest ToProto(const QueryRequest& request) {
  v1::ReplicaQueryRequest proto;
  for (const ContextKey& key : request.keys) *proto.add_keys() = KeyToProto(key);
  proto.set_with_tokens(request.with_tokens);
  return proto;
}

absl::StatusOr<QueryRequest> FromProto(const v1::ReplicaQueryRequest& proto) {
  QueryRequest request{.keys = {}, .with_tokens = proto.with_tokens()};
  if (proto.keys_size() > kMaxReplicaItems) return Malformed("keys", "are too many");
  for (const v1::ReplicaKey& key : proto.keys()) {
    EPIC_ASSIGN_OR_RETURN(request.keys.emplace_back(), KeyOf(key));
  }
  return request;
}

v1::ReplicaQueryResponse ToProto(const QueryReply& reply) {
  v1::ReplicaQueryResponse proto;
  SetStanding(reply.standing, proto.mutable_standing());
  AddItems(reply.items, kQueriedBytes, &proto);
  return proto;
}

absl::StatusOr<QueryReply> FromProto(const v1::ReplicaQueryResponse& proto) {
  QueryReply reply;
  EPIC_ASSIGN_OR_RETURN(reply.standing, StandingOf(proto.standing()));
  EPIC_ASSIGN_OR_RETURN(reply.items, ItemsOf(proto.items()));
  return reply;
}

v1::ReplicaNameRequest ToProto(const NameRequest& request) {
  v1::ReplicaNameRequest proto;
  proto.set_action(request.what == NameRequest::What::kAsk     ? v1::REPLICA_NAME_ACTION_ASK
                   : request.what == NameRequest::What::kClaim ? v1::REPLICA_NAME_ACTION_CLAIM
                                                               : v1::REPLICA_NAME_ACTION_RELEASE);
  *proto.mutable_key() = KeyToProto({request.tenant, request.id});
  proto.set_model_identity(epic::ToProto(request.model_identity));
  proto.set_name(request.name);
  proto.set_home(request.home);
  return proto;
}

absl::StatusOr<NameRequest> FromProto(const v1::ReplicaNameRequest& proto) {
  NameRequest request;
  switch (proto.action()) {
    case v1::REPLICA_NAME_ACTION_ASK:
      request.what = NameRequest::What::kAsk;
      break;
    case v1::REPLICA_NAME_ACTION_CLAIM:
      request.what = NameRequest::What::kClaim;
      break;
    case v1::REPLICA_NAME_ACTION_RELEASE:
      request.what = NameRequest::What::kRelease;
      break;
    default:
      return UnknownValue("action");
  }
  EPIC_ASSIGN_OR_RETURN(ContextKey key, KeyOf(proto.key()));
  request.tenant = std::move(key.tenant);
  request.id = std::move(key.id);
  EPIC_ASSIGN_OR_RETURN(request.model_identity, DigestFromProto(proto.model_identity(), "model_identity"));
  EPIC_ASSIGN_OR_RETURN(request.name, TextOf(proto.name(), kMaxNameBytes, "name"));
  EPIC_ASSIGN_OR_RETURN(request.home, TextOf(proto.home(), kMaxNodeBytes, "home"));
  return request;
}

v1::ReplicaNameResponse ToProto(const NameReply& reply) {
  v1::ReplicaNameResponse proto;
  SetStanding(reply.standing, proto.mutable_standing());
  proto.set_holder(reply.holder.text());
  return proto;
}

absl::StatusOr<NameReply> FromProto(const v1::ReplicaNameResponse& proto) {
  NameReply reply;
  EPIC_ASSIGN_OR_RETURN(reply.standing, StandingOf(proto.standing()));
  if (!proto.holder().empty()) {
    EPIC_ASSIGN_OR_RETURN(reply.holder, CacheIdFromProto(proto.holder(), "holder"));
  }
  return reply;
}

v1::ReplicaBeatRequest ToProto(const BeatRequest& request) {
  v1::ReplicaBeatRequest proto;
  SetBeats(request.beats, proto.mutable_beats());
  return proto;
}

absl::StatusOr<BeatRequest> FromProto(const v1::ReplicaBeatRequest& proto) {
  BeatRequest request;
  EPIC_ASSIGN_OR_RETURN(request.beats, BeatsOf(proto.beats()));
  return request;
}

v1::ReplicaBeatResponse ToProto(const BeatReply& reply) {
  v1::ReplicaBeatResponse proto;
  SetStanding(reply.standing, proto.mutable_standing());
  SetBeats(reply.beats, proto.mutable_beats());
  return proto;
}

absl::StatusOr<BeatReply> FromProto(const v1::ReplicaBeatResponse& proto) {
  BeatReply reply;
  EPIC_ASSIGN_OR_RETURN(reply.standing, StandingOf(proto.standing()));
  EPIC_ASSIGN_OR_RETURN(reply.beats, BeatsOf(proto.beats()));
  return reply;
}

v1::ReplicaEraseRequest ToProto(const EraseRequest& request) {
  v1::ReplicaEraseRequest proto;
  *proto.mutable_key() = KeyToProto(request.key);
  *proto.mutable_tombstone() = TombstoneToProto(request.tombstone);
  return proto;
}

absl::StatusOr<EraseRequest> FromProto(const v1::ReplicaEraseRequest& proto) {
  EraseRequest request;
  EPIC_ASSIGN_OR_RETURN(request.key, KeyOf(proto.key()));
  EPIC_ASSIGN_OR_RETURN(request.tombstone, TombstoneOf(proto.tombstone()));
  return request;
}

v1::ReplicaEraseResponse ToProto(const EraseReply& reply) {
  v1::ReplicaEraseResponse proto;
  SetStanding(reply.standing, proto.mutable_standing());
  return proto;
}

absl::StatusOr<EraseReply> FromProto(const v1::ReplicaEraseResponse& proto) {
  EraseReply reply;
  EPIC_ASSIGN_OR_RETURN(reply.standing, StandingOf(proto.standing()));
  return reply;
}

v1::ReplicaChangeRequest ToProto(const ChangeRequest& request) {
  v1::ReplicaChangeRequest proto;
  proto.set_id(request.id);
  *proto.mutable_key() = KeyToProto(request.key);
  proto.set_until_unix_ms(request.until_unix_ms);
  if (const auto* context = std::get_if<NewContext>(&request.what)) {
    *proto.mutable_create() = epic::ToProto(*context);
  } else if (const auto* patch = std::get_if<ContextPatch>(&request.what)) {
    *proto.mutable_update() = epic::ToProto(request.key.tenant, request.key.id, *patch);
  } else if (const auto* state = std::get_if<SetStateChange>(&request.what)) {
    proto.mutable_set_state()->set_state(epic::ToProto(state->state));
    proto.mutable_set_state()->set_compile_ms(state->compile_ms);
    proto.mutable_set_state()->set_error(state->error);
  } else {
    proto.mutable_delete_();
  }
  return proto;
}

absl::StatusOr<ChangeRequest> FromProto(const v1::ReplicaChangeRequest& proto) {
  ChangeRequest request{.id = proto.id(), .key = {}, .what = DeleteChange{}, .until_unix_ms = 0};
  EPIC_ASSIGN_OR_RETURN(request.key, KeyOf(proto.key()));
  EPIC_RETURN_IF_ERROR(SetChange(proto, &request));
  request.until_unix_ms = proto.until_unix_ms();
  if (request.until_unix_ms < 0 || request.until_unix_ms > kMaxUnixMs) {
    return Malformed("until_unix_ms", "is no time");
  }
  return request;
}

v1::ReplicaChangeResponse ToProto(const ChangeReply& reply) {
  v1::ReplicaChangeResponse proto;
  if (!reply.record.id.empty()) *proto.mutable_record() = epic::ToProto(reply.record);
  proto.set_tenant(reply.record.tenant);
  proto.set_changed(reply.changed);
  if (reply.tombstone.has_value()) *proto.mutable_tombstone() = TombstoneToProto(*reply.tombstone);
  return proto;
}

absl::StatusOr<ChangeReply> FromProto(const v1::ReplicaChangeResponse& proto) {
  ChangeReply reply;
  if (proto.has_record()) {
    EPIC_ASSIGN_OR_RETURN(reply.record, RecordOf(proto.record(), proto.tenant()));
  }
  reply.changed = proto.changed();
  if (proto.has_tombstone()) {
    EPIC_ASSIGN_OR_RETURN(reply.tombstone, TombstoneOf(proto.tombstone()));
  }
  return reply;
}

}  // namespace epic::kv_store
