#include "services/cli/api_client.h"

#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/clock.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic {
namespace {

using nlohmann::json;

constexpr double kNsPerMs = 1e6;
constexpr std::string_view kIdPrefix = "ctx_";
constexpr int kMaxCreateWaits = 60;  // each up to 55 s

json ParseOrNull(std::string_view text) { return json::parse(text, nullptr, /*allow_exceptions=*/false); }

std::string Text(const json& value, const char* key) {
  const auto found = value.find(key);
  return found != value.end() && found->is_string() ? found->get<std::string>() : std::string();
}

uint64_t Count(const json& value, const char* key) {
  const auto found = value.find(key);
  return found != value.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

absl::Status ErrorOf(const json& body, int http_status) {
  if (body.is_object() && body.contains("error") && body["error"].is_object()) {
    const json& error = body["error"];
    const std::string code = Text(error, "code");
    for (const ErrorInfo& info : ErrorTable()) {
      if (info.name == code) return Error(info.code, Text(error, "message"), Text(error, "param"));
    }
    return absl::UnknownError(Text(error, "message"));
  }
  return absl::UnknownError("the server answered with HTTP status " + std::to_string(http_status));
}

absl::StatusOr<json> Interpret(absl::StatusOr<HttpReply> answer) {
  if (!answer.ok()) return answer.status();
  json body = ParseOrNull(answer->body);
  if (answer->status >= 400) return ErrorOf(body, answer->status);
  if (body.is_discarded()) return absl::InternalError("the server's answer is not JSON; is it EPIC?");
  return body;
}

// Gathers the events of a stream.
class StreamReader {
 public:
  StreamReader(const std::function<void(std::string_view)>& on_text, const Clock* clock, ChatOutcome* outcome)
      : on_text_(on_text), clock_(clock), outcome_(outcome), sent_ns_(clock->SteadyNs()) {}

  void OnLine(std::string_view line) {
    constexpr std::string_view kData = "data: ";
    if (!line.starts_with(kData)) return;
    line.remove_prefix(kData.size());
    if (line == "[DONE]") {
      done_ = true;
      return;
    }
    const json event = ParseOrNull(line);
    if (!event.is_object()) return;
    if (event.contains("error")) {
      failure_ = ErrorOf(event, 500);
      return;
    }
    TakeChoice(event);
    if (const auto usage = event.find("usage"); usage != event.end() && usage->is_object()) TakeUsage(*usage);
    if (const auto timings = event.find("timings"); timings != event.end() && timings->is_object()) {
      outcome_->server_ttft_ms = timings->value("ttft_ms", 0.0);
    }
  }

  absl::Status Finish() {
    outcome_->total_ms = ElapsedMs();
    if (!failure_.ok()) return failure_;
    if (!done_) return absl::DataLossError("the stream ended early; see the server's log");
    return absl::OkStatus();
  }

 private:
  double ElapsedMs() const { return static_cast<double>(clock_->SteadyNs() - sent_ns_) / kNsPerMs; }

  void TakeChoice(const json& event) {
    const auto choices = event.find("choices");
    if (choices == event.end() || !choices->is_array() || choices->empty()) return;
    const json& choice = choices->front();
    if (choice.value("index", 0) != 0) return;
    if (const auto delta = choice.find("delta"); delta != choice.end() && delta->is_object()) {
      if (const std::string text = Text(*delta, "content"); !text.empty()) {
        if (outcome_->text.empty()) outcome_->first_token_ms = ElapsedMs();
        outcome_->text += text;
        on_text_(text);
      }
    }
    if (const std::string reason = Text(choice, "finish_reason"); !reason.empty())
      outcome_->finish_reason = reason;
  }

  void TakeUsage(const json& usage) {
    outcome_->prompt_tokens = Count(usage, "prompt_tokens");
    outcome_->completion_tokens = Count(usage, "completion_tokens");
    outcome_->recomputed_tokens = Count(usage, "recomputed_tokens");
    outcome_->fresh_tokens = Count(usage, "fresh_tokens");
    if (const auto details = usage.find("prompt_tokens_details");
        details != usage.end() && details->is_object()) {
      outcome_->cached_tokens = Count(*details, "cached_tokens");
    }
  }

  const std::function<void(std::string_view)>& on_text_;
  const Clock* const clock_;
  ChatOutcome* const outcome_;
  const int64_t sent_ns_;
  bool done_ = false;
  absl::Status failure_;
};

}  // namespace

absl::StatusOr<json> ApiClient::Call(std::string_view method, std::string_view target) const {
  return Interpret(http_.Call(method, target));
}

absl::StatusOr<json> ApiClient::Call(std::string_view method, std::string_view target,
                                     const json& body) const {
  return Interpret(http_.Call(method, target, body.dump(-1, ' ', false, json::error_handler_t::replace)));
}

absl::StatusOr<json> ApiClient::CreateContext(const json& body, bool* created) const {
  if (created != nullptr) *created = false;
  const std::string text = body.dump(-1, ' ', false, json::error_handler_t::replace);
  for (int attempt = 0; attempt < kMaxCreateWaits; ++attempt) {
    EPIC_ASSIGN_OR_RETURN(HttpReply answer, http_.Call("POST", "/v1/contexts", text));
    if (created != nullptr && (answer.status == 201 || answer.status == 202)) *created = true;
    const int status = answer.status;
    EPIC_ASSIGN_OR_RETURN(json record, Interpret(std::move(answer)));
    if (status == 202) continue;
    if (Text(record, "state") == "failed") return Error(ErrorCode::kContextFailed, Text(record, "error"));
    return record;
  }
  return Error(ErrorCode::kContextCompiling,
               "the context is still compiling; ask again with `epic context get`");
}

absl::StatusOr<std::string> ApiClient::ContextId(const std::string& id_or_name) const {
  if (id_or_name.starts_with(kIdPrefix)) return id_or_name;
  EPIC_ASSIGN_OR_RETURN(const json page, Call("GET", "/v1/contexts?limit=2&name=" + UrlEncode(id_or_name)));
  const json found = page.value("data", json::array());
  if (found.empty()) {
    return absl::NotFoundError("no context has the Cache ID or name '" + id_or_name +
                               "'; `epic context list` shows all");
  }
  if (found.size() > 1) {
    return absl::InvalidArgumentError("contexts of several models have the name '" + id_or_name +
                                      "'; give the Cache ID");
  }
  return Text(found.front(), "id");
}

absl::StatusOr<ChatOutcome> ApiClient::Chat(json body,
                                            const std::function<void(std::string_view)>& on_text) const {
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  ChatOutcome outcome;
  StreamReader reader(on_text, SystemClock::Get(), &outcome);
  EPIC_ASSIGN_OR_RETURN(
      HttpReply answer,
      http_.Stream("POST", "/v1/chat/completions", body.dump(-1, ' ', false, json::error_handler_t::replace),
                   [&reader](std::string_view line) { reader.OnLine(line); }));
  if (answer.status != 200) return Interpret(std::move(answer)).status();
  if (const auto header = answer.headers.find("x-epic-linking"); header != answer.headers.end()) {
    outcome.linking = header->second;
  }
  EPIC_RETURN_IF_ERROR(reader.Finish());
  return outcome;
}

std::string UrlEncode(std::string_view text) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

}  // namespace epic
