// The one place where an absl::Status becomes an HTTP answer: status line, four-key body, Retry-After and
// x-should-retry, all by the table of common/status/error.h. Pure functions.
#ifndef EPIC_COMMON_HTTP_ERROR_ANSWER_H_
#define EPIC_COMMON_HTTP_ERROR_ANSWER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/http/http_message.h"

namespace epic {

// {"error":{"message","type","param","code"}}; param is null when the status names none.
// REQUIRES: !status.ok().
std::string ErrorBody(const absl::Status& status);

// `retry_after_ms` is the advice where the status carries none and its code asks for one.
// REQUIRES: !status.ok().
HttpAnswer ErrorAnswer(const absl::Status& status, int64_t retry_after_ms = 1000);

// "Not Found" for 404; "Unknown" for a status that the door never sends.
std::string_view ReasonPhrase(int status);

// `text` as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
std::string JsonString(std::string_view text);

}  // namespace epic

#endif  // EPIC_COMMON_HTTP_ERROR_ANSWER_H_
