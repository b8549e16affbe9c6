// Request bodies and query strings into the structs of core/api.h. Only shape and type are checked here;
// whether a value makes sense is decided behind the Apis. Pure functions, any input.
//
// Errors of all: InvalidArgument (kInvalidRequest, kUnsupportedParameter), with the path of the field as
// param.
#ifndef EPIC_SERVICES_ROUTER_HTTP_JSON_REQUESTS_H_
#define EPIC_SERVICES_ROUTER_HTTP_JSON_REQUESTS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/router/core/api.h"

namespace epic {

struct JsonRequestLimits {
  uint32_t max_depth = 64;
  uint32_t max_values = 2'000'000;
};

struct ParsedChat {
  ChatRequest request;
  bool include_usage = false;  // stream_options.include_usage
};
absl::StatusOr<ParsedChat> ParseChat(std::string_view body, const JsonRequestLimits& limits);

absl::StatusOr<CreateContextRequest> ParseCreateContext(std::string_view body,
                                                        const JsonRequestLimits& limits);
absl::StatusOr<PatchContextRequest> ParsePatchContext(std::string_view body, const JsonRequestLimits& limits);
absl::StatusOr<ListContextsRequest> ParseListContexts(std::string_view query);
// ?erase=wait, the only parameter; whether it is there.
absl::StatusOr<bool> ParseDeleteContext(std::string_view query);

struct TokenizeRequest {
  std::optional<std::string> model;
  std::string content;
  bool with_pieces = false;
};
absl::StatusOr<TokenizeRequest> ParseTokenize(std::string_view body, const JsonRequestLimits& limits);

struct DetokenizeRequest {
  std::optional<std::string> model;
  std::vector<int64_t> tokens;
};
absl::StatusOr<DetokenizeRequest> ParseDetokenize(std::string_view body, const JsonRequestLimits& limits);

struct ApplyTemplateRequest {
  std::optional<std::string> model;
  std::vector<ChatMessage> messages;
};
absl::StatusOr<ApplyTemplateRequest> ParseApplyTemplate(std::string_view body,
                                                        const JsonRequestLimits& limits);

// The fields of a chat request that are known and refused, for the README's list of limits.
std::vector<std::string> UnsupportedChatFields();

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_HTTP_JSON_REQUESTS_H_
