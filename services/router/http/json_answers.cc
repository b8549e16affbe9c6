#include "services/router/http/json_answers.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/status/error.h"
#include "common/storage/names.h"

namespace epic {
namespace {

// Keeps the order in which fields are set: an answer reads as the interface documents it.
using Json = nlohmann::ordered_json;

// JSON has no infinity: a probability of zero is this, as in OpenAI's answers.
constexpr double kLogprobOfZero = -9999.0;

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json SecondsOrNull(std::optional<int64_t> ms) { return ms.has_value() ? Json(*ms / 1000) : Json(nullptr); }
Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json VariantJson(const ObjectVariant& variant) {
  return {{"compile_prefix", NameOf(variant.prefix)},
          {"dtype", variant.dtype == KvDtype::kBf16 ? "bf16" : "f32"},
          {"compute", variant.compute == ComputeFormat::kF32 ? "f32" : "bf16"},
          {"digest", variant.ToDigest().Hex()}};
}

Json ContextJson(const ContextRecord& record) {
  Json json;
  json["object"] = "context";
  json["id"] = record.id.text();
  json["model"] = record.model;
  json["state"] = NameOf(record.state);
  json["tokens"] = record.token_count;
  json["bytes"] = record.bytes;
  json["created_at"] = record.created_at_ms / 1000;
  json["last_used_at"] = record.last_used_at_ms > 0 ? Json(record.last_used_at_ms / 1000) : Json(nullptr);
  json["expires_at"] = SecondsOrNull(record.expires_at_ms);
  json["ttl"] = record.ttl_seconds.has_value() ? Json(*record.ttl_seconds) : Json(nullptr);
  json["pin"] = NameOf(record.pin);
  json["pin_until"] = SecondsOrNull(record.pin_until_ms);
  json["tags"] = record.tags;
  json["name"] = TextOrNull(record.name);
  json["durability"] = NameOf(record.durability);
  json["compile_prefix"] = {{"type", NameOf(record.compile_prefix.kind)}};
  if (!record.compile_prefix.context_id.empty()) {
    json["compile_prefix"]["context_id"] = record.compile_prefix.context_id.text();
  }
  json["variants"] = Json::array();
  for (const ObjectVariant& variant : record.variants) json["variants"].push_back(VariantJson(variant));
  json["hits"] = record.hits;
  json["compile_ms"] = record.state == ContextState::kCompiling ? Json(nullptr) : Json(record.compile_ms);
  json["error"] = TextOrNull(record.error);
  return json;
}

Json ModelJson(const ModelInfo& model) {
  return {{"id", model.id},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "epic"},
          {"max_model_len", model.max_model_len},
          {"identity", model.identity},
          {"architecture", model.architecture},
          {"parameters", model.parameters},
          {"vocab", model.vocab},
          {"compute", model.compute},
          {"default_linking", model.default_linking}};
}

Json BytesJson(std::string_view bytes) {
  Json out = Json::array();
  for (const char c : bytes) out.push_back(static_cast<unsigned char>(c));
  return out;
}

double FiniteLogprob(float logprob) { return std::isfinite(logprob) ? logprob : kLogprobOfZero; }

Json LogprobsJson(const std::vector<ChatLogprob>& logprobs) {
  Json content = Json::array();
  for (const ChatLogprob& entry : logprobs) {
    Json top = Json::array();
    for (const auto& [bytes, logprob] : entry.top) {
      top.push_back({{"token", bytes}, {"logprob", FiniteLogprob(logprob)}, {"bytes", BytesJson(bytes)}});
    }
    content.push_back({{"token", entry.bytes},
                       {"logprob", FiniteLogprob(entry.logprob)},
                       {"bytes", BytesJson(entry.bytes)},
                       {"top_logprobs", std::move(top)}});
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json UsageJson(const ChatUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"recomputed_tokens", usage.recomputed_tokens},
          {"fresh_tokens", usage.fresh_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", uint64_t{usage.prompt_tokens} + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

double Milliseconds(double value) { return std::isfinite(value) ? std::round(value * 1000) / 1000 : 0; }

Json TimingsJson(const ChatTimings& timings) {
  return {{"queue_ms", Milliseconds(timings.queue_ms)},   {"fetch_ms", Milliseconds(timings.fetch_ms)},
          {"decide_ms", Milliseconds(timings.decide_ms)}, {"link_ms", Milliseconds(timings.link_ms)},
          {"ttft_ms", Milliseconds(timings.ttft_ms)},     {"decode_ms", Milliseconds(timings.decode_ms)},
          {"fetched_bytes", timings.fetched_bytes}};
}

Json ChunkJson(const ChatStart& start) {
  return {{"id", start.id},
          {"object", "chat.completion.chunk"},
          {"created", start.created},
          {"model", start.model},
          {"system_fingerprint", start.system_fingerprint},
          {"choices", Json::array()}};
}

Json ChoiceJson(uint32_t index, Json delta) {
  return {{"index", index}, {"delta", std::move(delta)}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
}

std::string DumpChunk(Json chunk, bool usage_null) {
  if (usage_null) chunk["usage"] = nullptr;
  return Dump(chunk);
}

}  // namespace

std::string PrintContext(const ContextRecord& record) { return Dump(ContextJson(record)); }

std::string PrintContextPage(const ContextPage& page) {
  Json json = {{"object", "list"}, {"data", Json::array()}};
  for (const ContextRecord& record : page.records) json["data"].push_back(ContextJson(record));
  json["has_more"] = page.has_more;
  json["first_id"] = page.records.empty() ? Json(nullptr) : Json(page.records.front().id.text());
  json["last_id"] = page.records.empty() ? Json(nullptr) : Json(page.records.back().id.text());
  return Dump(json);
}

std::string PrintDeleted(const std::string& id, const std::vector<std::string>& pending) {
  Json answer = {{"id", id}, {"object", "context"}, {"deleted", true}};
  if (!pending.empty()) answer["pending"] = pending;
  return Dump(answer);
}

std::string PrintModel(const ModelInfo& model) { return Dump(ModelJson(model)); }

std::string PrintModels(const std::vector<ModelInfo>& models) {
  Json json = {{"object", "list"}, {"data", Json::array()}};
  for (const ModelInfo& model : models) json["data"].push_back(ModelJson(model));
  return Dump(json);
}

std::string PrintTokens(const std::vector<TokenPiece>& pieces, bool with_pieces) {
  Json tokens = Json::array();
  for (const TokenPiece& piece : pieces) {
    if (with_pieces) {
      tokens.push_back({{"id", piece.id}, {"piece", piece.bytes}, {"bytes", BytesJson(piece.bytes)}});
    } else {
      tokens.push_back(piece.id);
    }
  }
  return Dump({{"tokens", std::move(tokens)}, {"count", pieces.size()}});
}

std::string PrintContent(const std::string& content) { return Dump({{"content", content}}); }
std::string PrintPrompt(const std::string& prompt) { return Dump({{"prompt", prompt}}); }

std::string PrintHealth(const HealthReport& report) {
  Json json = {{"status", report.status}, {"causes", report.causes}};
  if (!report.able) {
    ErrorCode code = ErrorCode::kInternal;
    if (report.status == "loading") code = ErrorCode::kLoading;
    if (report.status == "draining") code = ErrorCode::kDraining;
    json["error"] = {{"message", "not able to serve now: " + report.status},
                     {"type", InfoOf(code).type},
                     {"param", nullptr},
                     {"code", InfoOf(code).name}};
  }
  return Dump(json);
}

std::string PrintVersion(const std::string& version, const std::string& build) {
  return Dump({{"name", "epic"}, {"version", version}, {"build", build}});
}

std::string PrintQuality(const ChatQuality& quality) {
  return Dump({{"object", "quality"},
               {"linking", quality.linking},
               {"tokens", quality.tokens},
               {"kl_mean", quality.kl_mean},
               {"kl_median", quality.kl_median},
               {"kl_first", quality.kl_first},
               {"top1", quality.top1},
               {"prompt_tokens", quality.prompt_tokens},
               {"cached_tokens", quality.cached_tokens},
               {"recomputed_tokens", quality.recomputed_tokens}});
}

std::string PrintInFlight(const std::vector<InFlightRequest>& requests) {
  Json list = Json::array();
  for (const InFlightRequest& request : requests) {
    list.push_back({{"request_id", request.request_id},
                    {"kind", request.kind},
                    {"phase", request.phase},
                    {"age_ms", request.age_ms}});
  }
  return Dump({{"object", "list"}, {"data", std::move(list)}});
}

std::string PrintCompletion(const ChatStart& start, const std::vector<ChatChoice>& choices,
                            bool with_logprobs, const ChatUsage& usage, const ChatTimings& timings) {
  Json json = {{"id", start.id},
               {"object", "chat.completion"},
               {"created", start.created},
               {"model", start.model},
               {"system_fingerprint", start.system_fingerprint},
               {"choices", Json::array()}};
  for (size_t i = 0; i < choices.size(); ++i) {
    const ChatChoice& choice = choices[i];
    json["choices"].push_back(
        {{"index", i},
         {"message", {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}}},
         {"logprobs", with_logprobs ? LogprobsJson(choice.logprobs) : Json(nullptr)},
         {"finish_reason", TextOrNull(choice.finish_reason)}});
  }
  json["usage"] = UsageJson(usage);
  json["timings"] = TimingsJson(timings);
  return Dump(json);
}

std::string PrintRoleChunk(const ChatStart& start, uint32_t choice, bool usage_null) {
  Json chunk = ChunkJson(start);
  chunk["choices"].push_back(ChoiceJson(choice, {{"role", "assistant"}, {"content", ""}}));
  return DumpChunk(std::move(chunk), usage_null);
}

std::string PrintDeltaChunk(const ChatStart& start, const ChatDelta& delta, bool with_logprobs,
                            bool usage_null) {
  Json chunk = ChunkJson(start);
  Json choice = ChoiceJson(delta.choice, {{"content", delta.text}});
  if (with_logprobs) choice["logprobs"] = LogprobsJson(delta.logprobs);
  chunk["choices"].push_back(std::move(choice));
  return DumpChunk(std::move(chunk), usage_null);
}

std::string PrintFinishChunk(const ChatStart& start, uint32_t choice, const std::string& reason,
                             const std::optional<ChatTimings>& timings, bool usage_null) {
  Json chunk = ChunkJson(start);
  Json last = ChoiceJson(choice, Json::object());
  last["finish_reason"] = reason;
  chunk["choices"].push_back(std::move(last));
  if (timings.has_value()) chunk["timings"] = TimingsJson(*timings);
  return DumpChunk(std::move(chunk), usage_null);
}

std::string PrintUsageChunk(const ChatStart& start, const ChatUsage& usage, const ChatTimings& timings) {
  Json chunk = ChunkJson(start);
  chunk["usage"] = UsageJson(usage);
  chunk["timings"] = TimingsJson(timings);
  return Dump(chunk);
}

std::string PrintLinkingHeader(const std::string& linking, std::optional<uint32_t> recomputed) {
  return recomputed.has_value() ? linking + "; recomputed=" + std::to_string(*recomputed) : linking;
}

}  // namespace epic
