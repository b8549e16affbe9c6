// The structs of core/api.h printed as the JSON of the public interface. Pure functions; the output is always
// valid UTF-8 JSON, whatever bytes are inside.
#ifndef EPIC_SERVICES_ROUTER_HTTP_JSON_ANSWERS_H_
#define EPIC_SERVICES_ROUTER_HTTP_JSON_ANSWERS_H_

#include <optional>
#include <string>
#include <vector>

#include "services/router/core/api.h"

namespace epic {

std::string PrintContext(const ContextRecord& record);
std::string PrintContextPage(const ContextPage& page);
// `pending`: nodes that may still hold bytes of it; not shown where there are none.
std::string PrintDeleted(const std::string& id, const std::vector<std::string>& pending);

std::string PrintModel(const ModelInfo& model);
std::string PrintModels(const std::vector<ModelInfo>& models);
std::string PrintTokens(const std::vector<TokenPiece>& pieces, bool with_pieces);
std::string PrintContent(const std::string& content);
std::string PrintPrompt(const std::string& prompt);

// When not able, with the four-key error beside the report.
std::string PrintHealth(const HealthReport& report);
std::string PrintVersion(const std::string& version, const std::string& build);
std::string PrintQuality(const ChatQuality& quality);
std::string PrintInFlight(const std::vector<InFlightRequest>& requests);

// One choice of an answer that is not streamed.
struct ChatChoice {
  std::string text;
  std::vector<ChatLogprob> logprobs;
  std::string finish_reason;
};
std::string PrintCompletion(const ChatStart& start, const std::vector<ChatChoice>& choices,
                            bool with_logprobs, const ChatUsage& usage, const ChatTimings& timings);

// Chunks of a stream, each the JSON of one "data:" line. `usage_null` adds "usage":null, as clients that
// asked for usage expect in every chunk but the last.
std::string PrintRoleChunk(const ChatStart& start, uint32_t choice, bool usage_null);
std::string PrintDeltaChunk(const ChatStart& start, const ChatDelta& delta, bool with_logprobs,
                            bool usage_null);
std::string PrintFinishChunk(const ChatStart& start, uint32_t choice, const std::string& reason,
                             const std::optional<ChatTimings>& timings, bool usage_null);
std::string PrintUsageChunk(const ChatStart& start, const ChatUsage& usage, const ChatTimings& timings);

// The value of x-epic-linking: "legolink-16; recomputed=128"; without a count where none is known.
std::string PrintLinkingHeader(const std::string& linking, std::optional<uint32_t> recomputed);

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_HTTP_JSON_ANSWERS_H_
