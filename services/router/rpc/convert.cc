#include "services/router/rpc/convert.h"

#include <string>

#include "common/rpc/chat_events.h"
#include "common/rpc/context_enums.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/names.h"

namespace epic {
namespace {

constexpr int64_t kMsPerSecond = 1000;

absl::StatusOr<std::optional<std::string>> PinName(v1::Pin pin) {
  switch (pin) {
    case v1::PIN_UNSPECIFIED:
      return std::nullopt;
    case v1::PIN_NONE:
      return "none";
    case v1::PIN_SOFT:
      return "soft";
    case v1::PIN_HARD:
      return "hard";
    default:
      return UnknownValue("pin");
  }
}

absl::StatusOr<std::optional<std::string>> DurabilityName(v1::Durability durability) {
  switch (durability) {
    case v1::DURABILITY_UNSPECIFIED:
      return std::nullopt;
    case v1::DURABILITY_ONE:
      return "one";
    case v1::DURABILITY_REPLICAS:
      return "replicas";
    case v1::DURABILITY_OBJECT:
      return "object";
    default:
      return UnknownValue("durability");
  }
}

absl::StatusOr<std::optional<std::string>> PrefixName(v1::CompilePrefixType type, std::string_view field) {
  if (type == v1::COMPILE_PREFIX_TYPE_UNSPECIFIED) return std::nullopt;
  EPIC_ASSIGN_OR_RETURN(const CompilePrefixKind kind, CompilePrefixFromProto(type, field));
  return std::string(NameOf(kind));
}

absl::StatusOr<std::optional<std::string>> StateName(v1::ContextState state) {
  switch (state) {
    case v1::CONTEXT_STATE_UNSPECIFIED:
      return std::nullopt;
    case v1::CONTEXT_STATE_COMPILING:
      return "compiling";
    case v1::CONTEXT_STATE_READY:
      return "ready";
    case v1::CONTEXT_STATE_FAILED:
      return "failed";
    default:
      return UnknownValue("state");
  }
}

absl::StatusOr<std::optional<std::string>> OnMissingName(v1::Linking::OnMissing on_missing) {
  switch (on_missing) {
    case v1::Linking::ON_MISSING_UNSPECIFIED:
      return std::nullopt;
    case v1::Linking::ON_MISSING_RECOMPILE:
      return "recompile";
    case v1::Linking::ON_MISSING_ERROR:
      return "error";
    default:
      return UnknownValue("linking.on_missing");
  }
}

std::string VariantName(const ObjectVariant& variant) {
  std::string name(NameOf(variant.prefix));
  name += variant.dtype == KvDtype::kBf16 ? "/bf16" : "/f32";
  return name;
}

template <typename T>
std::optional<T> Present(bool has, T value) {
  return has ? std::optional<T>(std::move(value)) : std::nullopt;
}

absl::StatusOr<CompilePrefixRequest> FromProto(const v1::CompilePrefix& proto, const std::string& field) {
  EPIC_ASSIGN_OR_RETURN(auto type, PrefixName(proto.type(), field + ".type"));
  return CompilePrefixRequest{type.value_or("none"), Present(proto.has_text(), proto.text()),
                              Present(proto.has_context_id(), proto.context_id())};
}

absl::StatusOr<LinkingRequest> FromProto(const v1::Linking& proto) {
  LinkingRequest linking;
  linking.strategy = Present(proto.has_strategy(), proto.strategy());
  linking.k = Present<int64_t>(proto.has_k(), proto.k());
  linking.ratio = Present<double>(proto.has_ratio(), proto.ratio());
  linking.budget = Present<int64_t>(proto.has_budget(), proto.budget());
  EPIC_ASSIGN_OR_RETURN(linking.compile_prefix, PrefixName(proto.compile_prefix(), "linking.compile_prefix"));
  if (proto.has_prefix()) {
    EPIC_ASSIGN_OR_RETURN(linking.compile_prefix_object, FromProto(proto.prefix(), "linking.compile_prefix"));
  }
  EPIC_ASSIGN_OR_RETURN(linking.on_missing, OnMissingName(proto.on_missing()));
  return linking;
}

absl::StatusOr<ContentPart> FromProto(const v1::ContentPart& proto, const std::string& field) {
  switch (proto.part_case()) {
    case v1::ContentPart::kText:
      return ContentPart{ContentPart::Kind::kText, proto.text()};
    case v1::ContentPart::kContextId:
      return ContentPart{ContentPart::Kind::kContextId, proto.context_id()};
    case v1::ContentPart::kContextName:
      return ContentPart{ContentPart::Kind::kContextName, proto.context_name()};
    case v1::ContentPart::PART_NOT_SET:
      break;
  }
  return Error(ErrorCode::kInvalidRequest, "a content part is empty: set text, context_id or context_name",
               field);
}

}  // namespace

absl::StatusOr<std::vector<ChatMessage>> FromProto(
    const google::protobuf::RepeatedPtrField<v1::ChatMessage>& proto) {
  std::vector<ChatMessage> messages;
  for (int i = 0; i < proto.size(); ++i) {
    ChatMessage message{proto[i].role(), {}};
    for (int j = 0; j < proto[i].content_size(); ++j) {
      const std::string field = "messages[" + std::to_string(i) + "].content[" + std::to_string(j) + "]";
      EPIC_ASSIGN_OR_RETURN(ContentPart part, FromProto(proto[i].content(j), field));
      message.content.push_back(std::move(part));
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

absl::StatusOr<CreateContextRequest> FromProto(const v1::CreateContextRequest& proto) {
  CreateContextRequest request;
  request.model = Present(proto.has_model(), proto.model());
  switch (proto.source_case()) {
    case v1::CreateContextRequest::kText:
      request.text = proto.text();
      break;
    case v1::CreateContextRequest::kTokens:
      request.tokens.emplace(proto.tokens().ids().begin(), proto.tokens().ids().end());
      break;
    case v1::CreateContextRequest::kMessages: {
      EPIC_ASSIGN_OR_RETURN(request.messages, FromProto(proto.messages().messages()));
      break;
    }
    case v1::CreateContextRequest::SOURCE_NOT_SET:
      return Error(ErrorCode::kInvalidRequest, "set one of text, tokens and messages", "text");
  }
  request.ttl = Present<int64_t>(proto.has_ttl_seconds(), proto.ttl_seconds());
  EPIC_ASSIGN_OR_RETURN(request.pin, PinName(proto.pin()));
  request.pin_until = Present<int64_t>(proto.has_pin_until(), proto.pin_until());
  request.tags.assign(proto.tags().begin(), proto.tags().end());
  request.name = Present(proto.has_name(), proto.name());
  if (proto.has_compile_prefix()) {
    EPIC_ASSIGN_OR_RETURN(request.compile_prefix, FromProto(proto.compile_prefix(), "compile_prefix"));
  }
  EPIC_ASSIGN_OR_RETURN(request.durability, DurabilityName(proto.durability()));
  request.wait = Present(proto.has_wait_seconds(), proto.wait_seconds());
  return request;
}

absl::StatusOr<ListContextsRequest> FromProto(const v1::ListContextsRequest& proto) {
  ListContextsRequest request;
  request.limit = Present<int64_t>(proto.has_limit(), proto.limit());
  request.after = Present(proto.has_after(), proto.after());
  switch (proto.order()) {
    case v1::ListContextsRequest::ORDER_UNSPECIFIED:
      break;
    case v1::ListContextsRequest::ORDER_ASCENDING:
      request.order = "asc";
      break;
    case v1::ListContextsRequest::ORDER_DESCENDING:
      request.order = "desc";
      break;
    default:
      return UnknownValue("order");
  }
  request.tag = Present(proto.has_tag(), proto.tag());
  request.model = Present(proto.has_model(), proto.model());
  EPIC_ASSIGN_OR_RETURN(request.state, StateName(proto.state()));
  request.name = Present(proto.has_name(), proto.name());
  return request;
}

absl::StatusOr<PatchContextRequest> FromProto(const v1::UpdateContextRequest& proto) {
  PatchContextRequest request;
  if (proto.update_mask().paths().empty()) {
    return Error(ErrorCode::kInvalidRequest, "update_mask names no field; nothing would change",
                 "update_mask");
  }
  for (const std::string& path : proto.update_mask().paths()) {
    if (path == "ttl_seconds") {
      request.ttl = Present<int64_t>(proto.has_ttl_seconds(), proto.ttl_seconds());
    } else if (path == "pin") {
      EPIC_ASSIGN_OR_RETURN(auto pin, PinName(proto.pin()));
      request.pin = pin.value_or("none");
    } else if (path == "pin_until") {
      request.pin_until = Present<int64_t>(proto.has_pin_until(), proto.pin_until());
    } else if (path == "tags") {
      request.tags.emplace(proto.tags().begin(), proto.tags().end());
    } else if (path == "name") {
      request.name = proto.name();
    } else {
      return Error(
          ErrorCode::kInvalidRequest,
          "update_mask may name ttl_seconds, pin, pin_until, tags and name; a context's content is immutable",
          "update_mask");
    }
  }
  return request;
}

absl::StatusOr<ChatRequest> FromProto(const v1::ChatRequest& proto) {
  ChatRequest request;
  request.stream = true;
  request.model = Present(proto.has_model(), proto.model());
  EPIC_ASSIGN_OR_RETURN(request.messages, FromProto(proto.messages()));
  request.context_ids.assign(proto.context_ids().begin(), proto.context_ids().end());
  EPIC_ASSIGN_OR_RETURN(request.linking, FromProto(proto.linking()));
  request.max_completion_tokens =
      Present<int64_t>(proto.has_max_completion_tokens(), proto.max_completion_tokens());
  request.temperature = Present(proto.has_temperature(), proto.temperature());
  request.top_p = Present(proto.has_top_p(), proto.top_p());
  request.min_p = Present(proto.has_min_p(), proto.min_p());
  request.top_k = Present<int64_t>(proto.has_top_k(), proto.top_k());
  request.seed = Present<int64_t>(proto.has_seed(), proto.seed());
  request.n = Present<int64_t>(proto.has_n(), proto.n());
  request.top_logprobs = Present<int64_t>(proto.has_top_logprobs(), proto.top_logprobs());
  request.presence_penalty = Present(proto.has_presence_penalty(), proto.presence_penalty());
  request.frequency_penalty = Present(proto.has_frequency_penalty(), proto.frequency_penalty());
  request.repetition_penalty = Present(proto.has_repetition_penalty(), proto.repetition_penalty());
  request.stop.assign(proto.stop().begin(), proto.stop().end());
  request.stop_token_ids.assign(proto.stop_token_ids().begin(), proto.stop_token_ids().end());
  for (const v1::LogitBias& bias : proto.logit_bias()) {
    request.logit_bias.emplace_back(std::to_string(bias.token()), bias.bias());
  }
  request.logprobs = proto.logprobs();
  request.ignore_eos = proto.ignore_eos();
  request.user = Present(proto.has_user(), proto.user());
  return request;
}

v1::Context ToProto(const ContextRecord& record) {
  v1::Context proto;
  proto.set_id(record.id.text());
  proto.set_model(record.model);
  proto.set_state(ToProto(record.state));
  proto.set_tokens(record.token_count);
  proto.set_bytes(record.bytes);
  proto.set_created_at(record.created_at_ms / kMsPerSecond);
  proto.set_last_used_at(record.last_used_at_ms / kMsPerSecond);
  if (record.expires_at_ms.has_value()) proto.set_expires_at(*record.expires_at_ms / kMsPerSecond);
  if (record.ttl_seconds.has_value()) proto.set_ttl_seconds(*record.ttl_seconds);
  proto.set_pin(ToProto(record.pin));
  if (record.pin_until_ms.has_value()) proto.set_pin_until(*record.pin_until_ms / kMsPerSecond);
  for (const std::string& tag : record.tags) proto.add_tags(tag);
  proto.set_name(record.name);
  proto.set_durability(ToProto(record.durability));
  for (const ObjectVariant& variant : record.variants) proto.add_variants(VariantName(variant));
  proto.set_hits(record.hits);
  proto.set_compile_ms(record.compile_ms);
  proto.set_error(record.error);
  return proto;
}

v1::CreateContextResponse ToProto(const CreateContextResult& result) {
  v1::CreateContextResponse proto;
  switch (result.outcome) {
    case CreateContextResult::Outcome::kCreated:
      proto.set_outcome(v1::CreateContextResponse::OUTCOME_CREATED);
      break;
    case CreateContextResult::Outcome::kExisted:
      proto.set_outcome(v1::CreateContextResponse::OUTCOME_EXISTED);
      break;
    case CreateContextResult::Outcome::kAccepted:
      proto.set_outcome(v1::CreateContextResponse::OUTCOME_ACCEPTED);
      break;
  }
  *proto.mutable_context() = ToProto(result.record);
  return proto;
}

v1::ListContextsResponse ToProto(const ContextPage& page) {
  v1::ListContextsResponse proto;
  for (const ContextRecord& record : page.records) *proto.add_contexts() = ToProto(record);
  proto.set_has_more(page.has_more);
  return proto;
}

v1::Model ToProto(const ModelInfo& model) {
  v1::Model proto;
  proto.set_id(model.id);
  proto.set_created(model.created);
  proto.set_max_model_len(model.max_model_len);
  proto.set_identity(model.identity);
  proto.set_architecture(model.architecture);
  proto.set_parameters(model.parameters);
  proto.set_vocab(model.vocab);
  proto.set_compute(model.compute);
  proto.set_default_linking(model.default_linking);
  return proto;
}

v1::ChatEvent ToProto(const ChatStart& start) {
  v1::ChatEvent event;
  v1::ChatEvent::Start& proto = *event.mutable_start();
  proto.set_id(start.id);
  proto.set_created(start.created);
  proto.set_model(start.model);
  proto.set_system_fingerprint(start.system_fingerprint);
  proto.set_linking(start.linking);
  if (start.planned_recomputed.has_value()) proto.set_planned_recomputed_tokens(*start.planned_recomputed);
  proto.set_choices(start.choices);
  return event;
}

v1::ChatEvent ToProto(const ChatDelta& delta) {
  v1::ChatEvent event;
  SetDelta(delta, event.mutable_delta());
  return event;
}

v1::ChatEvent DoneEvent(const ChatUsage& usage, const ChatTimings& timings) {
  v1::ChatEvent event;
  SetUsage(usage, event.mutable_done()->mutable_usage());
  v1::Timings& times = *event.mutable_done()->mutable_timings();
  times.set_queue_ms(timings.queue_ms);
  times.set_fetch_ms(timings.fetch_ms);
  times.set_decide_ms(timings.decide_ms);
  times.set_link_ms(timings.link_ms);
  times.set_ttft_ms(timings.ttft_ms);
  times.set_decode_ms(timings.decode_ms);
  times.set_fetched_bytes(timings.fetched_bytes);
  return event;
}

}  // namespace epic
