#include "services/router/http/json_requests.h"

#include <array>
#include <charconv>
#include <utility>

#include "common/status/error.h"
#include "services/router/http/json_messages.h"
#include "services/router/http/json_parse.h"
#include "services/router/http/routes.h"

namespace epic {
namespace {

using Json = nlohmann::json;

JsonLimits Limits(const JsonRequestLimits& limits) { return {limits.max_depth, limits.max_values}; }

// A field that is known to OpenAI's interface or to other servers and not honoured here. It is refused unless
// its value asks for nothing.
struct UnsupportedField {
  const char* name;
  bool (*asks_nothing)(const Json& value);
};

bool Never(const Json&) { return false; }
bool IsEmptyList(const Json& value) { return value.is_array() && value.empty(); }
bool IsFalse(const Json& value) { return value == false; }
bool IsTrue(const Json& value) { return value == true; }
bool IsNone(const Json& value) { return value == "none"; }
bool IsZero(const Json& value) { return value.is_number() && value.get<double>() == 0; }
bool IsOne(const Json& value) { return value.is_number() && value.get<double>() == 1; }
bool IsTextFormat(const Json& value) {
  return value.is_object() && value.size() == 1 && value.contains("type") && value["type"] == "text";
}
bool IsTextOnly(const Json& value) { return value.is_array() && value.size() == 1 && value[0] == "text"; }
bool IsDefaultTier(const Json& value) { return value == "auto" || value == "default"; }

constexpr std::array kUnsupported = {
    UnsupportedField{"tools", IsEmptyList},
    UnsupportedField{"tool_choice", IsNone},
    UnsupportedField{"functions", IsEmptyList},
    UnsupportedField{"function_call", IsNone},
    UnsupportedField{"response_format", IsTextFormat},
    UnsupportedField{"audio", Never},
    UnsupportedField{"modalities", IsTextOnly},
    UnsupportedField{"prediction", Never},
    UnsupportedField{"reasoning_effort", IsNone},
    UnsupportedField{"reasoning", Never},
    UnsupportedField{"verbosity", Never},
    UnsupportedField{"store", IsFalse},
    UnsupportedField{"service_tier", IsDefaultTier},
    UnsupportedField{"web_search_options", Never},
    UnsupportedField{"keep", IsFalse},
    UnsupportedField{"best_of", IsOne},
    UnsupportedField{"use_beam_search", IsFalse},
    UnsupportedField{"echo", IsFalse},
    UnsupportedField{"suffix", Never},
    UnsupportedField{"min_tokens", IsZero},
    UnsupportedField{"length_penalty", IsOne},
    UnsupportedField{"typical_p", IsOne},
    UnsupportedField{"repeat_penalty", IsOne},
    UnsupportedField{"mirostat", IsZero},
    UnsupportedField{"prompt_logprobs", IsZero},
    UnsupportedField{"truncate_prompt_tokens", Never},
    UnsupportedField{"bad_words", IsEmptyList},
    UnsupportedField{"allowed_token_ids", IsEmptyList},
    UnsupportedField{"include_stop_str_in_output", IsFalse},
    UnsupportedField{"skip_special_tokens", IsTrue},
    UnsupportedField{"add_generation_prompt", IsTrue},
    UnsupportedField{"continue_final_message", IsFalse},
    UnsupportedField{"chat_template", Never},
    UnsupportedField{"chat_template_kwargs", Never},
    UnsupportedField{"documents", IsEmptyList},
    UnsupportedField{"json_schema", Never},
    UnsupportedField{"structured_outputs", Never},
    UnsupportedField{"grammar", Never},
    UnsupportedField{"guided_json", Never},
    UnsupportedField{"guided_regex", Never},
    UnsupportedField{"guided_choice", Never},
    UnsupportedField{"guided_grammar", Never},
};

void RefuseUnsupported(JsonFields& fields) {
  for (const UnsupportedField& field : kUnsupported) {
    const Json* value = fields.Any(field.name);
    if (value == nullptr || field.asks_nothing(*value)) continue;
    fields.Fail(Error(ErrorCode::kUnsupportedParameter,
                      std::string(field.name) + " is not supported; remove it", field.name));
  }
}

CompilePrefixRequest ReadCompilePrefix(const Json& json, const std::string& path, JsonFields& errors) {
  JsonFields fields(json, path);
  CompilePrefixRequest out;
  fields.OnlyKeys({"type", "text", "context_id"});
  std::optional<std::string> type = fields.String("type");
  if (!type.has_value()) fields.FailType("type", "none, bos, bos4 or system");
  out.type = std::move(type).value_or("none");
  out.text = fields.String("text");
  out.context_id = fields.String("context_id");
  errors.Join(fields);
  return out;
}

// "bos4", or an object as in the creation of a context.
void ReadLinkingPrefix(JsonFields& linking, LinkingRequest& out) {
  const Json* value = linking.Any("compile_prefix");
  if (value == nullptr) return;
  if (value->is_object()) {
    out.compile_prefix_object = ReadCompilePrefix(*value, linking.PathOf("compile_prefix"), linking);
  } else if (value->is_string()) {
    out.compile_prefix = linking.String("compile_prefix");
  } else {
    linking.FailType("compile_prefix", "a string or an object");
  }
}

LinkingRequest ReadLinking(JsonFields& fields) {
  LinkingRequest out;
  const Json* json = fields.Object("linking");
  if (json == nullptr) return out;
  JsonFields linking(*json, "linking");
  linking.OnlyKeys({"strategy", "k", "ratio", "budget", "compile_prefix", "on_missing", "auto"});
  out.strategy = linking.String("strategy");
  out.k = linking.Integer("k");
  out.ratio = linking.Number("ratio");
  out.budget = linking.Integer("budget");
  ReadLinkingPrefix(linking, out);
  out.on_missing = linking.String("on_missing");
  out.auto_mode = linking.String("auto");
  fields.Join(linking);
  return out;
}

std::vector<std::string> ReadStop(JsonFields& fields) {
  const Json* value = fields.Any("stop");
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get_ref<const std::string&>()};
  if (!value->is_array()) {
    fields.FailType("stop", "a string or a list of strings");
    return {};
  }
  return fields.Strings("stop").value_or(std::vector<std::string>());
}

std::vector<std::pair<std::string, double>> ReadLogitBias(JsonFields& fields) {
  std::vector<std::pair<std::string, double>> out;
  const Json* object = fields.Object("logit_bias");
  if (object == nullptr) return out;
  for (const auto& [key, value] : object->items()) {
    if (!value.is_number()) {
      const std::string path = "logit_bias." + key.substr(0, 64);
      fields.Fail(Error(ErrorCode::kInvalidRequest, path + " must be a number", path));
      break;
    }
    out.emplace_back(key, value.get<double>());
  }
  return out;
}

bool ReadStreamOptions(JsonFields& fields, bool stream) {
  const Json* json = fields.Object("stream_options");
  if (json == nullptr) return false;
  if (!stream) {
    fields.Fail(Error(ErrorCode::kInvalidRequest, "stream_options needs stream: true", "stream_options"));
    return false;
  }
  JsonFields options(*json, "stream_options");
  const bool include_usage = options.Bool("include_usage").value_or(false);
  for (const char* key : {"continuous_usage_stats", "include_obfuscation"}) {
    if (!options.Bool(key).value_or(false)) continue;
    options.Fail(Error(ErrorCode::kUnsupportedParameter, options.PathOf(key) + " is not supported; remove it",
                       options.PathOf(key)));
  }
  fields.Join(options);
  return include_usage;
}

void ReadSampling(JsonFields& fields, ChatRequest& out) {
  out.max_tokens = fields.Integer("max_tokens");
  out.max_completion_tokens = fields.Integer("max_completion_tokens");
  out.temperature = fields.Number("temperature");
  out.top_p = fields.Number("top_p");
  out.min_p = fields.Number("min_p");
  out.top_k = fields.Integer("top_k");
  out.seed = fields.Integer("seed");
  out.n = fields.Integer("n");
  out.presence_penalty = fields.Number("presence_penalty");
  out.frequency_penalty = fields.Number("frequency_penalty");
  out.repetition_penalty = fields.Number("repetition_penalty");
  out.stop = ReadStop(fields);
  out.stop_token_ids = fields.Integers("stop_token_ids").value_or(std::vector<int64_t>());
  out.logit_bias = ReadLogitBias(fields);
  out.logprobs = fields.Bool("logprobs").value_or(false);
  out.top_logprobs = fields.Integer("top_logprobs");
  out.ignore_eos = fields.Bool("ignore_eos").value_or(false);
}

std::optional<int64_t> ParseWholeNumber(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The printer replaces what is not UTF-8: text that comes back unchanged is.
bool IsUtf8(const std::string& text) {
  const absl::StatusOr<Json> back =
      ParseJson(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace), JsonLimits());
  return back.ok() && *back == text;
}

// name=value pairs of a query. Errors: a broken escape, text that is not UTF-8.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseQuery(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> out;
  while (!query.empty()) {
    const size_t amp = query.find('&');
    const std::string_view pair = query.substr(0, amp);
    query = amp == std::string_view::npos ? std::string_view() : query.substr(amp + 1);
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    std::optional<std::string> name = PercentDecode(pair.substr(0, equals), /*plus_is_space=*/true);
    std::optional<std::string> value = equals == std::string_view::npos
                                           ? std::optional<std::string>("")
                                           : PercentDecode(pair.substr(equals + 1), /*plus_is_space=*/true);
    if (!name.has_value() || !value.has_value() || !IsUtf8(*name) || !IsUtf8(*value)) {
      return Error(ErrorCode::kInvalidRequest, "the query has a broken percent escape or is not UTF-8");
    }
    out.emplace_back(*std::move(name), *std::move(value));
  }
  return out;
}

absl::Status SetOnce(std::optional<std::string>& field, const std::string& name, std::string value) {
  if (field.has_value()) return Error(ErrorCode::kInvalidRequest, name + " stands twice in the query", name);
  field = std::move(value);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ParsedChat> ParseChat(std::string_view body, const JsonRequestLimits& limits) {
  absl::StatusOr<Json> json = ParseJsonObject(body, Limits(limits));
  if (!json.ok()) return json.status();
  JsonFields fields(*json, "");
  ParsedChat out;
  ChatRequest& request = out.request;
  RefuseUnsupported(fields);
  request.model = fields.String("model");
  request.messages = ReadMessages(fields);
  request.context_ids = fields.Strings("context_ids").value_or(std::vector<std::string>());
  request.linking = ReadLinking(fields);
  request.stream = fields.Bool("stream").value_or(false);
  out.include_usage = ReadStreamOptions(fields, request.stream);
  ReadSampling(fields, request);
  request.user = fields.String("user");
  if (!fields.ok()) return fields.status();
  return out;
}

absl::StatusOr<CreateContextRequest> ParseCreateContext(std::string_view body,
                                                        const JsonRequestLimits& limits) {
  absl::StatusOr<Json> json = ParseJsonObject(body, Limits(limits));
  if (!json.ok()) return json.status();
  JsonFields fields(*json, "");
  CreateContextRequest out;
  out.model = fields.String("model");
  out.text = fields.String("text");
  out.tokens = fields.Integers("tokens");
  if (fields.Any("messages") != nullptr) out.messages = ReadMessages(fields);
  out.ttl = fields.Integer("ttl");
  out.pin = fields.String("pin");
  out.pin_until = fields.Integer("pin_until");
  out.tags = fields.Strings("tags").value_or(std::vector<std::string>());
  out.name = fields.String("name");
  if (const Json* prefix = fields.Object("compile_prefix"); prefix != nullptr) {
    out.compile_prefix = ReadCompilePrefix(*prefix, "compile_prefix", fields);
  }
  out.durability = fields.String("durability");
  out.wait = fields.Number("wait");
  if (!fields.ok()) return fields.status();
  return out;
}

absl::StatusOr<PatchContextRequest> ParsePatchContext(std::string_view body,
                                                      const JsonRequestLimits& limits) {
  absl::StatusOr<Json> json = ParseJsonObject(body, Limits(limits));
  if (!json.ok()) return json.status();
  JsonFields fields(*json, "");
  // A field that would change the content must not look as if it had been taken.
  for (const char* key : {"text", "tokens", "messages", "model", "id", "compile_prefix", "durability"}) {
    if (!fields.Has(key)) continue;
    fields.Fail(Error(ErrorCode::kInvalidRequest,
                      std::string(key) + " cannot be changed; create another context", key));
  }
  PatchContextRequest out;
  const std::optional<int64_t> ttl = fields.Integer("ttl");
  if (fields.Has("ttl")) out.ttl = ttl;
  out.pin = fields.String("pin");
  const std::optional<int64_t> pin_until = fields.Integer("pin_until");
  if (fields.Has("pin_until")) out.pin_until = pin_until;
  out.tags = fields.Strings("tags");
  out.name = fields.String("name");
  if (!fields.ok()) return fields.status();
  return out;
}

absl::StatusOr<ListContextsRequest> ParseListContexts(std::string_view query) {
  auto pairs = ParseQuery(query);
  if (!pairs.ok()) return pairs.status();
  ListContextsRequest out;
  std::optional<std::string> limit;
  const std::array<std::pair<std::string_view, std::optional<std::string>*>, 7> fields = {{
      {"limit", &limit},
      {"after", &out.after},
      {"order", &out.order},
      {"tag", &out.tag},
      {"model", &out.model},
      {"state", &out.state},
      {"name", &out.name},
  }};
  for (auto& [name, value] : *pairs) {
    for (const auto& [known, field] : fields) {
      if (name != known) continue;
      if (absl::Status status = SetOnce(*field, name, std::move(value)); !status.ok()) return status;
      break;
    }
  }
  if (limit.has_value()) {
    out.limit = ParseWholeNumber(*limit);
    if (!out.limit.has_value()) {
      return Error(ErrorCode::kInvalidRequest, "limit must be a whole number from 1 to 1000", "limit");
    }
  }
  return out;
}

absl::StatusOr<bool> ParseDeleteContext(std::string_view query) {
  auto pairs = ParseQuery(query);
  if (!pairs.ok()) return pairs.status();
  bool erase = false;
  for (const auto& [name, value] : *pairs) {
    if (name != "erase") continue;
    if (value != "wait") return Error(ErrorCode::kInvalidRequest, "erase can only be wait", "erase");
    erase = true;
  }
  return erase;
}

absl::StatusOr<TokenizeRequest> ParseTokenize(std::string_view body, const JsonRequestLimits& limits) {
  absl::StatusOr<Json> json = ParseJsonObject(body, Limits(limits));
  if (!json.ok()) return json.status();
  JsonFields fields(*json, "");
  TokenizeRequest out;
  out.model = fields.String("model");
  std::optional<std::string> content = fields.String("content");
  if (!content.has_value()) fields.FailType("content", "a string");
  out.content = std::move(content).value_or("");
  out.with_pieces = fields.Bool("with_pieces").value_or(false);
  if (!fields.ok()) return fields.status();
  return out;
}

absl::StatusOr<DetokenizeRequest> ParseDetokenize(std::string_view body, const JsonRequestLimits& limits) {
  absl::StatusOr<Json> json = ParseJsonObject(body, Limits(limits));
  if (!json.ok()) return json.status();
  JsonFields fields(*json, "");
  DetokenizeRequest out;
  out.model = fields.String("model");
  std::optional<std::vector<int64_t>> tokens = fields.Integers("tokens");
  if (!tokens.has_value()) fields.FailType("tokens", "a list of integers");
  out.tokens = std::move(tokens).value_or(std::vector<int64_t>());
  if (!fields.ok()) return fields.status();
  return out;
}

absl::StatusOr<ApplyTemplateRequest> ParseApplyTemplate(std::string_view body,
                                                        const JsonRequestLimits& limits) {
  absl::StatusOr<Json> json = ParseJsonObject(body, Limits(limits));
  if (!json.ok()) return json.status();
  JsonFields fields(*json, "");
  ApplyTemplateRequest out;
  out.model = fields.String("model");
  out.messages = ReadMessages(fields);
  if (!fields.ok()) return fields.status();
  return out;
}

std::vector<std::string> UnsupportedChatFields() {
  std::vector<std::string> out;
  for (const UnsupportedField& field : kUnsupported) out.push_back(field.name);
  return out;
}

}  // namespace epic
