#include "common/rpc/kv_store/record_convert.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

// nullopt: absent.
absl::StatusOr<std::optional<Pin>> FromProto(v1::Pin pin) {
  switch (pin) {
    case v1::PIN_UNSPECIFIED:
      return std::nullopt;
    case v1::PIN_NONE:
      return Pin::kNone;
    case v1::PIN_SOFT:
      return Pin::kSoft;
    case v1::PIN_HARD:
      return Pin::kHard;
    default:
      return UnknownValue("pin");
  }
}

absl::StatusOr<Durability> FromProto(v1::Durability durability) {
  switch (durability) {
    case v1::DURABILITY_UNSPECIFIED:
    case v1::DURABILITY_REPLICAS:
      return Durability::kReplicas;
    case v1::DURABILITY_ONE:
      return Durability::kOne;
    case v1::DURABILITY_OBJECT:
      return Durability::kObject;
    default:
      return UnknownValue("durability");
  }
}

void SetTime(const HybridTime& time, v1::HybridTime* proto) {
  proto->set_unix_ms(time.unix_ms);
  proto->set_counter(time.counter);
}
HybridTime TimeOf(const v1::HybridTime& proto) { return {proto.unix_ms(), proto.counter()}; }

void SetPrefix(const CompilePrefixSpec& prefix, v1::StorePrefix* proto) {
  proto->set_type(ToProto(prefix.kind));
  proto->mutable_tokens()->Assign(prefix.tokens.begin(), prefix.tokens.end());
  proto->set_context_id(prefix.context_id.text());
}

absl::StatusOr<CompilePrefixSpec> PrefixOf(const v1::StorePrefix& proto) {
  CompilePrefixSpec prefix;
  EPIC_ASSIGN_OR_RETURN(prefix.kind, CompilePrefixFromProto(proto.type()));
  prefix.tokens.assign(proto.tokens().begin(), proto.tokens().end());
  if (!proto.context_id().empty()) {
    EPIC_ASSIGN_OR_RETURN(prefix.context_id,
                          CacheIdFromProto(proto.context_id(), "compile_prefix.context_id"));
  }
  return prefix;
}

template <typename Proto>
std::vector<std::string> TextsOf(const Proto& texts) {
  return {texts.begin(), texts.end()};
}

void SetOptional(
    const std::optional<std::optional<int64_t>>& from,
    v1::StoreUpdateContextRequest::OptionalInt* (v1::StoreUpdateContextRequest::*mutable_field)(),
    v1::StoreUpdateContextRequest* proto) {
  if (!from.has_value()) return;
  auto* field = (proto->*mutable_field)();
  if (from->has_value()) field->set_value(**from);
}

std::optional<int64_t> OptionalOf(const v1::StoreUpdateContextRequest::OptionalInt& proto) {
  return proto.has_value() ? std::optional<int64_t>(proto.value()) : std::nullopt;
}

}  // namespace

absl::StatusOr<Digest> DigestFromProto(const std::string& bytes, std::string_view field) {
  Digest digest;
  if (bytes.empty()) return digest;
  if (bytes.size() != digest.bytes.size()) {
    return Error(ErrorCode::kInvalidRequest, std::string(field) + " is no SHA-256: give 32 bytes, or none",
                 field);
  }
  std::copy_n(bytes.begin(), bytes.size(), digest.bytes.begin());
  return digest;
}

std::string ToProto(const Digest& digest) {
  return digest == Digest{} ? std::string() : std::string(digest.view());
}

absl::StatusOr<CacheId> CacheIdFromProto(const std::string& text, std::string_view field) {
  auto id = CacheId::Parse(text);
  if (!id.ok()) return Error(ErrorCode::kInvalidRequest, MessageOf(id.status()), field);
  return id;
}

v1::ObjectVariant ToProto(const ObjectVariant& variant) {
  v1::ObjectVariant proto;
  proto.set_prefix(ToProto(variant.prefix));
  proto.set_prefix_tokens_digest(ToProto(variant.prefix_tokens));
  proto.set_dtype(variant.dtype == KvDtype::kF32 ? v1::KV_DTYPE_F32 : v1::KV_DTYPE_BF16);
  proto.set_compute(variant.compute == ComputeFormat::kF32 ? v1::KV_COMPUTE_F32 : v1::KV_COMPUTE_BF16);
  return proto;
}

absl::StatusOr<ObjectVariant> FromProto(const v1::ObjectVariant& proto) {
  ObjectVariant variant;
  EPIC_ASSIGN_OR_RETURN(variant.prefix, CompilePrefixFromProto(proto.prefix()));
  EPIC_ASSIGN_OR_RETURN(variant.prefix_tokens,
                        DigestFromProto(proto.prefix_tokens_digest(), "prefix_tokens_digest"));
  if (proto.dtype() != v1::KV_DTYPE_F32 && proto.dtype() != v1::KV_DTYPE_BF16) return UnknownValue("dtype");
  if (proto.compute() != v1::KV_COMPUTE_F32 && proto.compute() != v1::KV_COMPUTE_BF16) {
    return UnknownValue("compute");
  }
  variant.dtype = proto.dtype() == v1::KV_DTYPE_F32 ? KvDtype::kF32 : KvDtype::kBf16;
  variant.compute = proto.compute() == v1::KV_COMPUTE_F32 ? ComputeFormat::kF32 : ComputeFormat::kBf16;
  return variant;
}

absl::StatusOr<ContextState> FromProto(v1::ContextState state) {
  switch (state) {
    case v1::CONTEXT_STATE_COMPILING:
      return ContextState::kCompiling;
    case v1::CONTEXT_STATE_READY:
      return ContextState::kReady;
    case v1::CONTEXT_STATE_FAILED:
      return ContextState::kFailed;
    default:
      return UnknownValue("state");
  }
}

v1::StoredContext ToProto(const ContextRecord& record) {
  v1::StoredContext proto;
  proto.set_id(record.id.text());
  proto.set_model_identity(ToProto(record.model_identity));
  proto.set_model(record.model);
  proto.set_token_count(record.token_count);
  proto.set_created_unix_ms(record.created_at_ms);
  SetTime(record.created, proto.mutable_created());
  proto.set_hidden(record.hidden);
  SetPrefix(record.compile_prefix, proto.mutable_compile_prefix());
  proto.set_durability(ToProto(record.durability));
  proto.set_state(ToProto(record.state));
  proto.set_compile_ms(record.compile_ms);
  proto.set_error(record.error);
  if (record.ttl_seconds.has_value()) proto.set_ttl_seconds(*record.ttl_seconds);
  if (record.expires_at_ms.has_value()) proto.set_expires_unix_ms(*record.expires_at_ms);
  SetTime(record.expiry_changed, proto.mutable_expiry_changed());
  proto.set_pin(ToProto(record.pin));
  if (record.pin_until_ms.has_value()) proto.set_pin_until_ms(*record.pin_until_ms);
  SetTime(record.pin_changed, proto.mutable_pin_changed());
  for (const std::string& tag : record.tags) proto.add_tags(tag);
  SetTime(record.tags_changed, proto.mutable_tags_changed());
  proto.set_name(record.name);
  SetTime(record.name_changed, proto.mutable_name_changed());
  proto.set_last_used_unix_ms(record.last_used_at_ms);
  proto.set_hits(record.hits);
  for (const ObjectVariant& variant : record.variants) *proto.add_variants() = ToProto(variant);
  proto.set_object_bytes(record.bytes);
  return proto;
}

absl::StatusOr<ContextRecord> FromProto(const v1::StoredContext& proto, const std::string& tenant) {
  ContextRecord record;
  record.tenant = tenant;
  EPIC_ASSIGN_OR_RETURN(record.id, CacheIdFromProto(proto.id(), "id"));
  EPIC_ASSIGN_OR_RETURN(record.model_identity, DigestFromProto(proto.model_identity(), "model_identity"));
  record.model = proto.model();
  record.token_count = proto.token_count();
  record.created_at_ms = proto.created_unix_ms();
  record.created = TimeOf(proto.created());
  record.hidden = proto.hidden();
  EPIC_ASSIGN_OR_RETURN(record.compile_prefix, PrefixOf(proto.compile_prefix()));
  EPIC_ASSIGN_OR_RETURN(record.durability, FromProto(proto.durability()));
  EPIC_ASSIGN_OR_RETURN(record.state, FromProto(proto.state()));
  record.compile_ms = proto.compile_ms();
  record.error = proto.error();
  if (proto.has_ttl_seconds()) record.ttl_seconds = proto.ttl_seconds();
  if (proto.has_expires_unix_ms()) record.expires_at_ms = proto.expires_unix_ms();
  record.expiry_changed = TimeOf(proto.expiry_changed());
  EPIC_ASSIGN_OR_RETURN(const std::optional<Pin> pin, FromProto(proto.pin()));
  record.pin = pin.value_or(Pin::kNone);
  if (proto.has_pin_until_ms()) record.pin_until_ms = proto.pin_until_ms();
  record.pin_changed = TimeOf(proto.pin_changed());
  record.tags = TextsOf(proto.tags());
  record.tags_changed = TimeOf(proto.tags_changed());
  record.name = proto.name();
  record.name_changed = TimeOf(proto.name_changed());
  record.last_used_at_ms = proto.last_used_unix_ms();
  record.hits = proto.hits();
  for (const v1::ObjectVariant& variant : proto.variants()) {
    EPIC_ASSIGN_OR_RETURN(record.variants.emplace_back(), FromProto(variant));
  }
  record.bytes = proto.object_bytes();
  return record;
}

v1::StoreCreateContextRequest ToProto(const NewContext& context) {
  v1::StoreCreateContextRequest proto;
  proto.set_tenant(context.tenant);
  proto.set_model_identity(ToProto(context.model_identity));
  proto.set_model(context.model);
  proto.mutable_tokens()->Assign(context.tokens.begin(), context.tokens.end());
  proto.set_hidden(context.hidden);
  if (context.ttl_seconds.has_value()) proto.set_ttl_seconds(*context.ttl_seconds);
  proto.set_pin(ToProto(context.pin));
  if (context.pin_until_ms.has_value()) proto.set_pin_until_ms(*context.pin_until_ms);
  for (const std::string& tag : context.tags) proto.add_tags(tag);
  proto.set_name(context.name);
  SetPrefix(context.compile_prefix, proto.mutable_compile_prefix());
  proto.set_durability(ToProto(context.durability));
  return proto;
}

absl::StatusOr<NewContext> FromProto(const v1::StoreCreateContextRequest& proto) {
  NewContext context;
  context.tenant = proto.tenant();
  EPIC_ASSIGN_OR_RETURN(context.model_identity, DigestFromProto(proto.model_identity(), "model_identity"));
  context.model = proto.model();
  context.tokens.assign(proto.tokens().begin(), proto.tokens().end());
  context.hidden = proto.hidden();
  if (proto.has_ttl_seconds()) context.ttl_seconds = proto.ttl_seconds();
  EPIC_ASSIGN_OR_RETURN(const std::optional<Pin> pin, FromProto(proto.pin()));
  context.pin = pin.value_or(Pin::kNone);
  if (proto.has_pin_until_ms()) context.pin_until_ms = proto.pin_until_ms();
  context.tags = TextsOf(proto.tags());
  context.name = proto.name();
  EPIC_ASSIGN_OR_RETURN(context.compile_prefix, PrefixOf(proto.compile_prefix()));
  EPIC_ASSIGN_OR_RETURN(context.durability, FromProto(proto.durability()));
  return context;
}

v1::StoreListContextsRequest ToProto(std::string_view tenant, const ContextQuery& query) {
  v1::StoreListContextsRequest proto;
  proto.set_tenant(tenant.data(), tenant.size());
  proto.set_limit(query.limit);
  proto.set_after(query.after.text());
  proto.set_ascending(!query.descending);
  if (query.tag.has_value()) proto.set_tag(*query.tag);
  if (query.model.has_value()) proto.set_model(*query.model);
  if (query.state.has_value()) proto.set_state(ToProto(*query.state));
  if (query.name.has_value()) proto.set_name(*query.name);
  return proto;
}

absl::StatusOr<ContextQuery> FromProto(const v1::StoreListContextsRequest& proto) {
  ContextQuery query;
  query.limit = proto.limit();
  if (!proto.after().empty()) {
    EPIC_ASSIGN_OR_RETURN(query.after, CacheIdFromProto(proto.after(), "after"));
  }
  query.descending = !proto.ascending();
  if (proto.has_tag()) query.tag = proto.tag();
  if (proto.has_model()) query.model = proto.model();
  if (proto.state() != v1::CONTEXT_STATE_UNSPECIFIED) {
    EPIC_ASSIGN_OR_RETURN(query.state, FromProto(proto.state()));
  }
  if (proto.has_name()) query.name = proto.name();
  return query;
}

v1::StoreUpdateContextRequest ToProto(std::string_view tenant, const CacheId& id, const ContextPatch& patch) {
  using Request = v1::StoreUpdateContextRequest;
  Request proto;
  proto.set_tenant(tenant.data(), tenant.size());
  proto.set_id(id.text());
  SetOptional(patch.ttl_seconds, &Request::mutable_ttl_seconds, &proto);
  if (patch.pin.has_value()) proto.set_pin(ToProto(*patch.pin));
  SetOptional(patch.pin_until_ms, &Request::mutable_pin_until_ms, &proto);
  if (patch.tags.has_value()) {
    proto.mutable_tags();
    for (const std::string& tag : *patch.tags) proto.mutable_tags()->add_tags(tag);
  }
  if (patch.name.has_value()) proto.set_name(*patch.name);
  return proto;
}

absl::StatusOr<ContextPatch> FromProto(const v1::StoreUpdateContextRequest& proto) {
  ContextPatch patch;
  if (proto.has_ttl_seconds()) patch.ttl_seconds = OptionalOf(proto.ttl_seconds());
  EPIC_ASSIGN_OR_RETURN(patch.pin, FromProto(proto.pin()));
  if (proto.has_pin_until_ms()) patch.pin_until_ms = OptionalOf(proto.pin_until_ms());
  if (proto.has_tags()) patch.tags = TextsOf(proto.tags().tags());
  if (proto.has_name()) patch.name = proto.name();
  return patch;
}

v1::StoreUsageResponse ToProto(const StoreUsage& usage, const StoreDisk& disk, int64_t now_steady_ns) {
  v1::StoreUsageResponse proto;
  proto.set_contexts(usage.contexts);
  proto.set_objects_in_memory(usage.objects_in_memory);
  proto.set_memory_bytes(usage.memory_bytes);
  proto.set_memory_capacity_bytes(usage.memory_capacity_bytes);
  proto.set_memory_largest_hole_bytes(usage.memory_largest_hole_bytes);
  proto.set_memory_held_bytes(usage.memory_held_bytes);
  proto.set_memory_quarantined_bytes(usage.memory_quarantined_bytes);
  proto.set_leased_objects(usage.leased_objects);
  proto.set_disk_bytes(usage.disk_bytes);
  proto.set_reservations(usage.reservations);
  proto.set_disk_errors(disk.errors);
  if (disk.last_error_steady_ns != 0) {
    proto.set_last_disk_error_age_ms(std::max<int64_t>(0, now_steady_ns - disk.last_error_steady_ns) /
                                     kNsPerMs);
  }
  proto.set_disk_full(disk.full);
  proto.set_disk_slow(disk.slow);
  proto.set_disk_wait_ms(disk.wait_ns / kNsPerMs);
  proto.set_disk_late(disk.late);
  proto.set_disk_not_written(disk.not_written);
  return proto;
}

StoreUsage UsageFromProto(const v1::StoreUsageResponse& proto) {
  StoreUsage usage;
  usage.contexts = proto.contexts();
  usage.objects_in_memory = proto.objects_in_memory();
  usage.memory_bytes = proto.memory_bytes();
  usage.memory_capacity_bytes = proto.memory_capacity_bytes();
  usage.memory_largest_hole_bytes = proto.memory_largest_hole_bytes();
  usage.memory_held_bytes = proto.memory_held_bytes();
  usage.memory_quarantined_bytes = proto.memory_quarantined_bytes();
  usage.leased_objects = proto.leased_objects();
  usage.disk_bytes = proto.disk_bytes();
  usage.reservations = proto.reservations();
  return usage;
}

StoreDisk DiskFromProto(const v1::StoreUsageResponse& proto, int64_t now_steady_ns) {
  StoreDisk disk;
  disk.errors = proto.disk_errors();
  if (proto.has_last_disk_error_age_ms()) {
    // 0 means none.
    disk.last_error_steady_ns =
        std::max<int64_t>(1, now_steady_ns - proto.last_disk_error_age_ms() * kNsPerMs);
  }
  disk.full = proto.disk_full();
  disk.slow = proto.disk_slow();
  disk.wait_ns = proto.disk_wait_ms() * kNsPerMs;
  disk.late = proto.disk_late();
  disk.not_written = proto.disk_not_written();
  return disk;
}

}  // namespace epic
