#include "services/router/core/checks.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/model/utf8.h"
#include "services/model/utf8_stream.h"

namespace epic {
namespace {

constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

absl::Status Invalid(std::string_view message, std::string_view param) {
  return Error(ErrorCode::kInvalidRequest, message, param);
}

// A number as people write it: 0.5, not 0.500000.
std::string Plain(double value) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return std::string(text.data(), end);
}

// The value of `text` in a list of names.
template <typename T, size_t N>
absl::StatusOr<T> ParseName(std::string_view text, std::string_view param,
                            const std::array<std::pair<std::string_view, T>, N>& names) {
  std::string all;
  for (const auto& [name, value] : names) {
    if (name == text) return value;
    all += all.empty() ? std::string(name) : ", " + std::string(name);
  }
  return Invalid(std::string(param) + " must be one of: " + all, param);
}

absl::Status CheckOptional(const std::optional<double>& value, double low, double high,
                           std::string_view param) {
  return value.has_value() ? CheckRange(*value, low, high, param) : absl::OkStatus();
}

absl::StatusOr<SamplingParams> CheckSampling(const ChatRequest& request) {
  SamplingParams sampling;
  EPIC_RETURN_IF_ERROR(CheckOptional(request.temperature, 0, 2, "temperature"));
  EPIC_RETURN_IF_ERROR(CheckOptional(request.top_p, 0, 1, "top_p"));
  EPIC_RETURN_IF_ERROR(CheckOptional(request.min_p, 0, 1, "min_p"));
  EPIC_RETURN_IF_ERROR(CheckOptional(request.presence_penalty, -2, 2, "presence_penalty"));
  EPIC_RETURN_IF_ERROR(CheckOptional(request.frequency_penalty, -2, 2, "frequency_penalty"));
  EPIC_RETURN_IF_ERROR(CheckOptional(request.repetition_penalty, 0.01, 10, "repetition_penalty"));
  if (request.top_p == 0.0) return Invalid("top_p must be above 0", "top_p");
  sampling.temperature = static_cast<float>(request.temperature.value_or(1));
  sampling.top_p = static_cast<float>(request.top_p.value_or(1));
  sampling.min_p = static_cast<float>(request.min_p.value_or(0));
  sampling.presence_penalty = static_cast<float>(request.presence_penalty.value_or(0));
  sampling.frequency_penalty = static_cast<float>(request.frequency_penalty.value_or(0));
  sampling.repetition_penalty = static_cast<float>(request.repetition_penalty.value_or(1));
  const int64_t top_k = request.top_k.value_or(0);
  EPIC_RETURN_IF_ERROR(CheckRange(top_k, int64_t{-1}, kMaxTokens, "top_k"));
  sampling.top_k = static_cast<int32_t>(std::max<int64_t>(top_k, 0));
  const int64_t top_logprobs = request.top_logprobs.value_or(0);
  EPIC_RETURN_IF_ERROR(CheckRange(top_logprobs, int64_t{0}, int64_t{20}, "top_logprobs"));
  if (request.top_logprobs.has_value() && !request.logprobs) {
    return Invalid("top_logprobs needs logprobs: true", "top_logprobs");
  }
  sampling.logprobs = request.logprobs;
  sampling.top_logprobs = static_cast<uint32_t>(top_logprobs);
  sampling.seed = static_cast<uint64_t>(request.seed.value_or(0));
  return sampling;
}

absl::Status CheckBias(const ChatRequest& request, const RouterLimits& limits, uint32_t vocab,
                       SamplingParams* sampling) {
  if (static_cast<int64_t>(request.logit_bias.size()) > limits.logit_bias) {
    return Invalid("logit_bias has more than " + std::to_string(limits.logit_bias) + " entries",
                   "logit_bias");
  }
  for (const auto& [key, bias] : request.logit_bias) {
    TokenId token = 0;
    const auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (code != std::errc() || end != key.data() + key.size() || token >= vocab) {
      return Invalid("logit_bias keys must be token ids below " + std::to_string(vocab), "logit_bias");
    }
    EPIC_RETURN_IF_ERROR(CheckRange(bias, -100, 100, "logit_bias"));
    sampling->logit_bias.emplace_back(token, static_cast<float>(bias));
  }
  return absl::OkStatus();
}

absl::Status CheckStop(const std::vector<std::string>& stop, const RouterLimits& limits) {
  if (static_cast<int64_t>(stop.size()) > limits.stop_count) {
    return Invalid("stop may have up to " + std::to_string(limits.stop_count) + " strings", "stop");
  }
  for (const std::string& text : stop) {
    if (text.empty()) return Invalid("stop strings must not be empty", "stop");
    if (static_cast<int64_t>(text.size()) > limits.stop_bytes) {
      return Invalid("a stop string may have up to " + std::to_string(limits.stop_bytes) + " bytes", "stop");
    }
    if (FindInvalidUtf8(text).has_value()) return Invalid("stop strings must be UTF-8", "stop");
  }
  return absl::OkStatus();
}

absl::Status CheckMaxTokens(const ChatRequest& request, CheckedChat* chat) {
  for (const auto& [value, param] : {std::pair(request.max_tokens, "max_tokens"),
                                     std::pair(request.max_completion_tokens, "max_completion_tokens")}) {
    if (!value.has_value()) continue;
    EPIC_RETURN_IF_ERROR(CheckRange(*value, int64_t{1}, kMaxTokens, param));
    chat->max_tokens = static_cast<uint32_t>(*value);
    chat->max_tokens_param = param;
  }
  return absl::OkStatus();
}

// The compile prefix that a request asks for, if any.
absl::StatusOr<std::optional<CompilePrefixKind>> CheckLinkingPrefix(const LinkingRequest& linking) {
  if (linking.compile_prefix_object.has_value()) {
    if (linking.compile_prefix.has_value()) {
      return Invalid("give the compile prefix once, as a word or as an object", kLinkingPrefixParam);
    }
    return CheckCompilePrefix(*linking.compile_prefix_object, kLinkingPrefixParam);
  }
  if (!linking.compile_prefix.has_value()) return std::nullopt;
  return ParseCompilePrefix(*linking.compile_prefix, kLinkingPrefixParam);
}

absl::StatusOr<OnMissing> CheckOnMissing(const LinkingRequest& linking) {
  constexpr std::array<std::pair<std::string_view, OnMissing>, 2> kNames = {
      {{"recompile", OnMissing::kRecompile}, {"error", OnMissing::kError}}};
  return ParseName(linking.on_missing.value_or("recompile"), "linking.on_missing", kNames);
}

}  // namespace

absl::Status CheckRange(double value, double low, double high, std::string_view param) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Invalid(std::string(param) + " must be a number from " + Plain(low) + " to " + Plain(high), param);
}

absl::Status CheckRange(int64_t value, int64_t low, int64_t high, std::string_view param) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Invalid(std::string(param) + " must be a whole number from " + std::to_string(low) + " to " +
                     std::to_string(high) + ", not " + std::to_string(value),
                 param);
}

absl::Status CheckModel(const std::optional<std::string>& model, const ServedModel& served) {
  if (!model.has_value() || *model == served.alias) return absl::OkStatus();
  return Error(ErrorCode::kModelNotFound,
               "the model '" + model->substr(0, 128) + "' is not served: use '" + served.alias + "'",
               "model");
}

absl::StatusOr<CompilePrefixKind> ParseCompilePrefix(std::string_view text, std::string_view param) {
  constexpr std::array<std::pair<std::string_view, CompilePrefixKind>, 4> kNames = {
      {{"none", CompilePrefixKind::kNone},
       {"bos", CompilePrefixKind::kBos},
       {"bos4", CompilePrefixKind::kBos4},
       {"system", CompilePrefixKind::kSystem}}};
  return ParseName(text, param, kNames);
}

absl::StatusOr<CompilePrefixKind> CheckCompilePrefix(const CompilePrefixRequest& prefix,
                                                     std::string_view param) {
  const std::string field(param);
  EPIC_ASSIGN_OR_RETURN(const CompilePrefixKind kind, ParseCompilePrefix(prefix.type, field + ".type"));
  const int given = prefix.text.has_value() + prefix.context_id.has_value();
  if (kind != CompilePrefixKind::kSystem && given > 0) {
    return Invalid("text and context_id belong to the type system", param);
  }
  if (kind == CompilePrefixKind::kSystem && given != 1) {
    return Invalid("the type system needs exactly one of text and context_id", param);
  }
  if (prefix.text.has_value() && (prefix.text->empty() || FindInvalidUtf8(*prefix.text).has_value())) {
    return Invalid("the prefix's text must be UTF-8 and not empty", field + ".text");
  }
  return kind;
}

absl::StatusOr<Pin> ParsePin(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, Pin>, 3> kNames = {
      {{"none", Pin::kNone}, {"soft", Pin::kSoft}, {"hard", Pin::kHard}}};
  return ParseName(text, "pin", kNames);
}

absl::StatusOr<Durability> ParseDurability(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, Durability>, 3> kNames = {
      {{"one", Durability::kOne}, {"replicas", Durability::kReplicas}, {"object", Durability::kObject}}};
  return ParseName(text, "durability", kNames);
}

absl::StatusOr<ContextState> ParseState(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, ContextState>, 3> kNames = {
      {{"compiling", ContextState::kCompiling},
       {"ready", ContextState::kReady},
       {"failed", ContextState::kFailed}}};
  return ParseName(text, "state", kNames);
}

absl::StatusOr<CacheId> ParseCacheId(std::string_view text, std::string_view param) {
  absl::StatusOr<CacheId> id = CacheId::Parse(text);
  if (id.ok()) return id;
  return Error(ErrorCode::kContextNotFound,
               "no such context: a Cache ID is ctx_ followed by 32 characters of a-z and 2-7", param);
}

absl::StatusOr<std::vector<TokenId>> CheckTokens(const std::vector<int64_t>& tokens, uint32_t vocab,
                                                 std::string_view param) {
  std::vector<TokenId> ids;
  ids.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    EPIC_RETURN_IF_ERROR(CheckRange(tokens[i], int64_t{0}, int64_t{vocab} - 1,
                                    std::string(param) + "[" + std::to_string(i) + "]"));
    ids.push_back(static_cast<TokenId>(tokens[i]));
  }
  return ids;
}

absl::StatusOr<std::vector<std::string>> CheckTags(std::vector<std::string> tags,
                                                   const RouterLimits& limits) {
  for (const std::string& tag : tags) {
    if (tag.empty() || static_cast<int64_t>(tag.size()) > limits.tag_bytes) {
      return Invalid("a tag must have 1 to " + std::to_string(limits.tag_bytes) + " bytes", "tags");
    }
    if (FindInvalidUtf8(tag).has_value()) return Invalid("tags must be UTF-8", "tags");
  }
  std::sort(tags.begin(), tags.end());
  tags.erase(std::unique(tags.begin(), tags.end()), tags.end());
  if (static_cast<int64_t>(tags.size()) > limits.tags) {
    return Invalid("a context may have up to " + std::to_string(limits.tags) + " tags", "tags");
  }
  return tags;
}

absl::Status CheckName(std::string_view name, const RouterLimits& limits) {
  if (static_cast<int64_t>(name.size()) > limits.name_bytes) {
    return Invalid("a name may have up to " + std::to_string(limits.name_bytes) + " bytes", "name");
  }
  if (FindInvalidUtf8(name).has_value()) return Invalid("a name must be UTF-8", "name");
  return absl::OkStatus();
}

absl::Status CheckMessages(const std::vector<ChatMessage>& messages, const RouterLimits& limits,
                           size_t context_ids) {
  if (messages.empty()) return Invalid("messages must have at least one message", "messages");
  if (static_cast<int64_t>(messages.size()) > limits.messages) {
    return Invalid("messages may have up to " + std::to_string(limits.messages) + " messages", "messages");
  }
  size_t parts = context_ids;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string at = "messages[" + std::to_string(i) + "]";
    const std::string& role = messages[i].role;
    if (role != "system" && role != "developer" && role != "user" && role != "assistant") {
      return Invalid("unknown role '" + ReplaceInvalidUtf8(role.substr(0, 64)) +
                         "': use system, developer, user or assistant",
                     at + ".role");
    }
    parts += messages[i].content.size();
    for (const ContentPart& part : messages[i].content) {
      if (part.kind == ContentPart::Kind::kText && FindInvalidUtf8(part.value).has_value()) {
        return Invalid("text must be UTF-8", at + ".content");
      }
    }
  }
  if (static_cast<int64_t>(parts) > limits.content_parts) {
    return Invalid("messages may have up to " + std::to_string(limits.content_parts) +
                       " content parts, context_ids included",
                   "messages");
  }
  return absl::OkStatus();
}

absl::StatusOr<LinkStrategy> CheckLinking(const LinkingRequest& linking, const RouterParts& parts) {
  if (linking.auto_mode.has_value() && *linking.auto_mode != "off") {
    const bool known = *linking.auto_mode == "background" || *linking.auto_mode == "linked";
    if (!known) return Invalid("linking.auto must be off", "linking.auto");
    return Error(ErrorCode::kUnsupportedParameter, "linking.auto is not supported yet: use off",
                 "linking.auto");
  }
  StrategyFields fields;
  fields.ratio = linking.ratio;
  if (linking.k.has_value()) {
    EPIC_RETURN_IF_ERROR(CheckRange(*linking.k, int64_t{0}, int64_t{65536}, "linking.k"));
    fields.k = static_cast<uint32_t>(*linking.k);
  }
  if (linking.budget.has_value()) {
    EPIC_RETURN_IF_ERROR(CheckRange(*linking.budget, int64_t{1}, int64_t{65536}, "linking.budget"));
    fields.budget = static_cast<uint32_t>(*linking.budget);
  }
  EPIC_ASSIGN_OR_RETURN(fields.compile_prefix, CheckLinkingPrefix(linking));
  // A request that gives a number alone means the strategy that takes it.
  const std::string fallback = fields.k.has_value()        ? "legolink"
                               : fields.ratio.has_value()  ? "cacheblend"
                               : fields.budget.has_value() ? "query-guided"
                                                           : parts.default_strategy;
  const std::string name = linking.strategy.value_or(fallback);
  if (!fields.compile_prefix.has_value() &&
      (name == "legolink-0" || (name == "legolink" && fields.k == 0u))) {
    EPIC_ASSIGN_OR_RETURN(fields.compile_prefix,
                          ParseCompilePrefix(parts.default_compile_prefix, kLinkingPrefixParam));
  }
  return ParseStrategy(name, fields);
}

absl::StatusOr<CheckedChat> CheckChat(const ChatRequest& request, const RouterParts& parts) {
  const RouterLimits& limits = parts.limits;
  const uint32_t vocab = parts.model->engine->config().vocab;
  CheckedChat chat;
  EPIC_RETURN_IF_ERROR(CheckModel(request.model, *parts.model));
  EPIC_RETURN_IF_ERROR(CheckMessages(request.messages, limits, request.context_ids.size()));
  EPIC_ASSIGN_OR_RETURN(chat.sampling, CheckSampling(request));
  chat.has_seed = request.seed.has_value();
  EPIC_RETURN_IF_ERROR(CheckBias(request, limits, vocab, &chat.sampling));
  const int64_t n = request.n.value_or(1);
  EPIC_RETURN_IF_ERROR(CheckRange(n, int64_t{1}, limits.n, "n"));
  chat.choices = static_cast<uint32_t>(n);
  EPIC_RETURN_IF_ERROR(CheckMaxTokens(request, &chat));
  EPIC_RETURN_IF_ERROR(CheckStop(request.stop, limits));
  if (static_cast<int64_t>(request.stop_token_ids.size()) > limits.stop_token_ids) {
    return Invalid("stop_token_ids may have up to " + std::to_string(limits.stop_token_ids) + " ids",
                   "stop_token_ids");
  }
  EPIC_ASSIGN_OR_RETURN(chat.stop_tokens, CheckTokens(request.stop_token_ids, vocab, "stop_token_ids"));
  EPIC_ASSIGN_OR_RETURN(chat.strategy, CheckLinking(request.linking, parts));
  EPIC_ASSIGN_OR_RETURN(chat.on_missing, CheckOnMissing(request.linking));
  return chat;
}

}  // namespace epic
