// EPIC's HTTP interface as the `epic` command uses it: JSON in, JSON or a clear status out.
//
// Blocking, one thread at a time. An error of the server comes back with the server's own words and code.
#ifndef EPIC_SERVICES_CLI_API_CLIENT_H_
#define EPIC_SERVICES_CLI_API_CLIENT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "services/cli/http_client.h"

namespace epic {

// What one chat gave, gathered from its stream.
struct ChatOutcome {
  std::string text;  // of choice 0
  std::string finish_reason;
  std::string linking;        // header x-epic-linking
  double first_token_ms = 0;  // from sending to the first text, by the client's clock
  double total_ms = 0;
  uint64_t prompt_tokens = 0;
  uint64_t completion_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t recomputed_tokens = 0;
  uint64_t fresh_tokens = 0;
  double server_ttft_ms = 0;  // timings.ttft_ms
};

class ApiClient {
 public:
  explicit ApiClient(std::string address) : http_(std::move(address)) {}
  const std::string& address() const { return http_.address(); }

  // Errors: those of HttpClient, and a status with the server's message for any HTTP status of 400 and above.
  absl::StatusOr<nlohmann::json> Call(std::string_view method, std::string_view target) const;
  absl::StatusOr<nlohmann::json> Call(std::string_view method, std::string_view target,
                                      const nlohmann::json& body) const;

  // Creates a context and waits until it is ready, however often the server says "still compiling".
  // `created` (may be null) says whether it is new.
  absl::StatusOr<nlohmann::json> CreateContext(const nlohmann::json& body, bool* created) const;

  // The Cache ID that the user means: `id_or_name` itself where it looks like one, else that of the context
  // with this name. Errors: NotFound; InvalidArgument when several models have one of that name.
  absl::StatusOr<std::string> ContextId(const std::string& id_or_name) const;

  // Streams a chat (stream and include_usage are set here); on_text gets the text of choice 0 as it comes.
  absl::StatusOr<ChatOutcome> Chat(nlohmann::json body,
                                   const std::function<void(std::string_view)>& on_text) const;

 private:
  HttpClient http_;
};

// Percent-encodes all but unreserved characters.
std::string UrlEncode(std::string_view text);

}  // namespace epic

#endif  // EPIC_SERVICES_CLI_API_CLIENT_H_
