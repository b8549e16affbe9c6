// The checks that both doors share: fields of requests, turned into values the workers take or into errors
// that name the field. Pure functions.
#ifndef EPIC_SERVICES_ROUTER_CORE_CHECKS_H_
#define EPIC_SERVICES_ROUTER_CORE_CHECKS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/engine/engine.h"
#include "services/router/core/api.h"
#include "services/router/core/router_parts.h"

namespace epic {

// Errors: kInvalidRequest naming `param` unless low <= value <= high (NaN is outside).
absl::Status CheckRange(double value, double low, double high, std::string_view param);
absl::Status CheckRange(int64_t value, int64_t low, int64_t high, std::string_view param);

// OK when `model` is absent or served. Errors: kModelNotFound.
absl::Status CheckModel(const std::optional<std::string>& model, const ServedModel& served);

// none | bos | bos4 | system.
absl::StatusOr<CompilePrefixKind> ParseCompilePrefix(std::string_view text, std::string_view param);
// `param` is the field that holds the prefix: compile_prefix, or linking.compile_prefix. Errors: an unknown
// type; text or context_id with another type than system; system without exactly one of them; text that is
// empty or not UTF-8.
absl::StatusOr<CompilePrefixKind> CheckCompilePrefix(const CompilePrefixRequest& prefix,
                                                     std::string_view param);
absl::StatusOr<Pin> ParsePin(std::string_view text);
absl::StatusOr<Durability> ParseDurability(std::string_view text);
absl::StatusOr<ContextState> ParseState(std::string_view text);
// Errors: kContextNotFound (404) for what is not a Cache ID.
absl::StatusOr<CacheId> ParseCacheId(std::string_view text, std::string_view param);

// Token ids of a client. Errors: kInvalidRequest for an id outside the vocabulary.
absl::StatusOr<std::vector<TokenId>> CheckTokens(const std::vector<int64_t>& tokens, uint32_t vocab,
                                                 std::string_view param);

// Sorted and unique. Errors: too many, empty, too long, not UTF-8.
absl::StatusOr<std::vector<std::string>> CheckTags(std::vector<std::string> tags, const RouterLimits& limits);
absl::Status CheckName(std::string_view name, const RouterLimits& limits);

// Roles, counts, and text that is UTF-8. `developer` is the same as `system`. `context_ids` count as parts.
absl::Status CheckMessages(const std::vector<ChatMessage>& messages, const RouterLimits& limits,
                           size_t context_ids = 0);

// The field of a chat that asks for a compile prefix.
inline constexpr std::string_view kLinkingPrefixParam = "linking.compile_prefix";

// All of a ChatRequest that needs no prompt.
struct CheckedChat {
  SamplingParams sampling;
  bool has_seed = false;
  uint32_t choices = 1;
  std::optional<uint32_t> max_tokens;
  std::string max_tokens_param = "max_tokens";  // the field that gave it
  std::vector<TokenId> stop_tokens;
  LinkStrategy strategy;
  OnMissing on_missing = OnMissing::kRecompile;
};
absl::StatusOr<CheckedChat> CheckChat(const ChatRequest& request, const RouterParts& parts);

// The strategy of a request, or the server's where it names none.
absl::StatusOr<LinkStrategy> CheckLinking(const LinkingRequest& linking, const RouterParts& parts);

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_CORE_CHECKS_H_
