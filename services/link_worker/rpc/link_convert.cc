#include "services/link_worker/rpc/link_convert.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/chat_events.h"
#include "common/rpc/context_enums.h"
#include "common/rpc/kv_store/object_convert.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic {
namespace {

constexpr uint32_t kMaxChoices = 128;
constexpr int kMaxPieces = 4096;
constexpr double kNsPerMs = 1e6;

absl::Status Refuse(std::string_view what, std::string_view field) {
  return Error(ErrorCode::kInvalidRequest, what, field);
}

absl::Status ReadContext(const v1::PromptPiece& proto, const std::string& tenant,
                         const Digest& model_identity, LinkPiece* piece) {
  EPIC_ASSIGN_OR_RETURN(const std::vector<ObjectKey> keys, KeysFromProto(proto.key()));
  if (keys.size() != 1) return Refuse("name one object for each context", "pieces.key");
  piece->context = keys.front().id;
  piece->variant = keys.front().variant;
  piece->prefix_tokens.assign(proto.prefix_tokens().begin(), proto.prefix_tokens().end());
  piece->sets_state = proto.sets_state();
  piece->place = proto.place();
  if (CacheId::Of(tenant, model_identity, piece->tokens) != piece->context) {
    return Refuse("these are not the tokens of that context under the model of this worker", "pieces.tokens");
  }
  switch (proto.on_missing()) {
    case v1::Linking::ON_MISSING_UNSPECIFIED:
    case v1::Linking::ON_MISSING_RECOMPILE:
      piece->on_missing = OnMissing::kRecompile;
      return absl::OkStatus();
    case v1::Linking::ON_MISSING_ERROR:
      piece->on_missing = OnMissing::kError;
      return absl::OkStatus();
    default:
      return Refuse("no such value", "pieces.on_missing");
  }
}

absl::StatusOr<LinkPiece> PieceFromProto(const v1::PromptPiece& proto, const std::string& tenant,
                                         const Digest& model_identity) {
  LinkPiece piece;
  piece.tokens.assign(proto.tokens().begin(), proto.tokens().end());
  if (piece.tokens.empty()) return Refuse("a piece has tokens", "pieces.tokens");
  switch (proto.kind()) {
    case v1::PromptPiece::KIND_TEXT:
      piece.kind = LinkPiece::Kind::kText;
      return piece;
    case v1::PromptPiece::KIND_HEAD:
      piece.kind = LinkPiece::Kind::kHead;
      return piece;
    case v1::PromptPiece::KIND_CONTEXT:
      piece.kind = LinkPiece::Kind::kContext;
      EPIC_RETURN_IF_ERROR(ReadContext(proto, tenant, model_identity, &piece));
      return piece;
    default:
      return Refuse("no such kind of piece", "pieces.kind");
  }
}

absl::StatusOr<SamplingParams> SamplingFromProto(const v1::Sampling& proto) {
  SamplingParams out;
  out.temperature = proto.temperature();
  out.top_p = proto.top_p();
  out.top_k = proto.top_k();
  out.min_p = proto.min_p();
  out.presence_penalty = proto.presence_penalty();
  out.frequency_penalty = proto.frequency_penalty();
  out.repetition_penalty = proto.repetition_penalty();
  for (const float value : {out.temperature, out.top_p, out.min_p, out.presence_penalty,
                            out.frequency_penalty, out.repetition_penalty}) {
    if (!std::isfinite(value)) return Refuse("must be numbers", "sampling");
  }
  if (out.temperature < 0 || out.top_p <= 0 || out.repetition_penalty <= 0) {
    return Refuse("temperature must be at least 0, top_p and repetition_penalty above 0", "sampling");
  }
  out.seed = proto.seed();
  for (const v1::LogitBias& bias : proto.logit_bias()) {
    if (!std::isfinite(bias.bias())) return Refuse("must be numbers", "sampling.logit_bias");
    out.logit_bias.emplace_back(bias.token(), static_cast<float>(bias.bias()));
  }
  out.logprobs = proto.logprobs();
  out.top_logprobs = proto.top_logprobs();
  return out;
}

}  // namespace

absl::StatusOr<LinkJob> JobFromProto(const v1::LinkPromptRequest& request, const Digest& model_identity) {
  LinkJob job;
  job.tenant = request.tenant();
  if (request.pieces().empty() || request.pieces_size() > kMaxPieces) {
    return Refuse("a prompt has 1 to 4096 pieces", "pieces");
  }
  for (const v1::PromptPiece& proto : request.pieces()) {
    EPIC_ASSIGN_OR_RETURN(LinkPiece piece, PieceFromProto(proto, job.tenant, model_identity));
    job.pieces.push_back(std::move(piece));
  }
  EPIC_ASSIGN_OR_RETURN(job.strategy, ParseStrategy(request.strategy()));
  EPIC_ASSIGN_OR_RETURN(job.strategy.compile_prefix, CompilePrefixFromProto(request.compile_prefix()));
  EPIC_ASSIGN_OR_RETURN(job.sampling, SamplingFromProto(request.sampling()));
  job.choices = request.choices();
  if (job.choices == 0 || job.choices > kMaxChoices) return Refuse("must be 1 to 128", "choices");
  job.max_tokens = request.max_tokens();
  if (job.max_tokens == 0) return Refuse("must be at least 1", "max_tokens");
  job.stop_tokens.assign(request.stop_tokens().begin(), request.stop_tokens().end());
  for (const std::string& stop : request.stop()) {
    if (stop.empty()) return Refuse("a stop string is not empty", "stop");
    job.stop.push_back(stop);
  }
  job.ignore_eos = request.ignore_eos();
  return job;
}

v1::LinkEvent AdmittedEvent(std::optional<uint32_t> planned_recomputed) {
  v1::LinkEvent event;
  v1::LinkEvent::Admitted* admitted = event.mutable_admitted();
  if (planned_recomputed.has_value()) admitted->set_planned_recomputed_tokens(*planned_recomputed);
  return event;
}

v1::LinkEvent ToProto(const LinkDelta& delta) {
  v1::LinkEvent event;
  SetDelta(delta, event.mutable_delta());
  return event;
}

v1::LinkEvent FinishEvent(uint32_t choice, FinishReason reason) {
  v1::LinkEvent event;
  event.mutable_finish()->set_choice(choice);
  event.mutable_finish()->set_reason(reason == FinishReason::kLength ? "length" : "stop");
  return event;
}

v1::LinkEvent DoneEvent(const LinkUsage& usage, const LinkTimings& timings) {
  v1::LinkEvent event;
  SetUsage(usage, event.mutable_done()->mutable_usage());
  v1::Timings* times = event.mutable_done()->mutable_timings();
  times->set_queue_ms(static_cast<double>(timings.queue_ns) / kNsPerMs);
  times->set_fetch_ms(static_cast<double>(timings.fetch_ns) / kNsPerMs);
  times->set_decide_ms(static_cast<double>(timings.decide_ns) / kNsPerMs);
  times->set_link_ms(static_cast<double>(timings.link_ns) / kNsPerMs);
  times->set_ttft_ms(static_cast<double>(timings.ttft_ns) / kNsPerMs);
  times->set_decode_ms(static_cast<double>(timings.decode_ns) / kNsPerMs);
  times->set_fetched_bytes(timings.fetched_bytes);
  event.mutable_done()->set_recompiled_objects(timings.recompiled_objects);
  return event;
}

}  // namespace epic
