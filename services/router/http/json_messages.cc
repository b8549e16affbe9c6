#include "services/router/http/json_messages.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "common/status/error.h"

namespace epic {
namespace {

using Json = nlohmann::json;

// Part types of OpenAI's interface that EPIC does not take.
constexpr std::array<std::string_view, 6> kUnsupportedParts = {"image_url", "input_audio", "file",
                                                               "video_url", "refusal",     "input_image"};
// Fields of a message that have a meaning which EPIC does not honour.
constexpr std::array<const char*, 8> kUnsupportedMessageFields = {
    "name", "tool_calls", "tool_call_id", "function_call", "audio", "reasoning_content", "prefix", "refusal"};

absl::Status Unsupported(const std::string& path) {
  return Error(ErrorCode::kUnsupportedParameter, path + " is not supported; remove it", path);
}

ContentPart ReadContextPart(JsonFields& part) {
  part.OnlyKeys({"type", "id", "name"});
  std::optional<std::string> id = part.String("id");
  std::optional<std::string> name = part.String("name");
  if (part.ok() && id.has_value() == name.has_value()) {
    part.Fail(Error(ErrorCode::kInvalidRequest, part.PathOf("id") + " or name is needed, exactly one of them",
                    part.PathOf("id")));
  }
  if (id.has_value()) return {ContentPart::Kind::kContextId, *std::move(id)};
  return {ContentPart::Kind::kContextName, name.value_or("")};
}

ContentPart ReadPart(const Json& json, const std::string& path, JsonFields& errors) {
  if (!json.is_object()) {
    errors.Fail(Error(ErrorCode::kInvalidRequest, path + " must be an object with a type", path));
    return {};
  }
  JsonFields part(json, path);
  ContentPart out;
  const std::optional<std::string> type = part.String("type");
  if (!type.has_value()) {
    part.FailType("type", "text or context");
  } else if (*type == "text") {
    part.OnlyKeys({"type", "text"});
    std::optional<std::string> text = part.String("text");
    if (!text.has_value()) part.FailType("text", "a string");
    out.value = std::move(text).value_or("");
  } else if (*type == "context") {
    out = ReadContextPart(part);
  } else if (std::find(kUnsupportedParts.begin(), kUnsupportedParts.end(), *type) !=
             kUnsupportedParts.end()) {
    part.Fail(Error(ErrorCode::kUnsupportedParameter,
                    part.PathOf("type") + " " + *type + " is not supported; use text or context",
                    part.PathOf("type")));
  } else {
    part.Fail(Error(ErrorCode::kInvalidRequest, part.PathOf("type") + " must be text or context",
                    part.PathOf("type")));
  }
  errors.Join(part);
  return out;
}

void ReadContent(JsonFields& message, std::vector<ContentPart>& out) {
  const Json* content = message.Any("content");
  if (content == nullptr) {
    message.FailType("content", "a string or a list of parts");
  } else if (content->is_string()) {
    out.push_back({ContentPart::Kind::kText, content->get_ref<const std::string&>()});
  } else if (content->is_array()) {
    out.reserve(content->size());
    for (size_t i = 0; i < content->size() && message.ok(); ++i) {
      out.push_back(
          ReadPart((*content)[i], message.PathOf("content") + "[" + std::to_string(i) + "]", message));
    }
  } else {
    message.FailType("content", "a string or a list of parts");
  }
}

ChatMessage ReadMessage(const Json& json, const std::string& path, JsonFields& errors) {
  ChatMessage out;
  if (!json.is_object()) {
    errors.Fail(Error(ErrorCode::kInvalidRequest, path + " must be an object with role and content", path));
    return out;
  }
  JsonFields message(json, path);
  std::optional<std::string> role = message.String("role");
  if (!role.has_value()) message.FailType("role", "a string");
  out.role = std::move(role).value_or("");
  for (const char* field : kUnsupportedMessageFields) {
    // Empty lists come back when a client echoes an answer as its next request's history.
    const Json* value = message.Any(field);
    if (value != nullptr && !(value->is_array() && value->empty())) {
      message.Fail(Unsupported(message.PathOf(field)));
    }
  }
  ReadContent(message, out.content);
  errors.Join(message);
  return out;
}

}  // namespace

std::vector<ChatMessage> ReadMessages(JsonFields& fields) {
  std::vector<ChatMessage> out;
  const Json* messages = fields.Any("messages");
  if (messages == nullptr || !messages->is_array()) {
    fields.FailType("messages", "a list of messages");
    return out;
  }
  out.reserve(messages->size());
  for (size_t i = 0; i < messages->size() && fields.ok(); ++i) {
    out.push_back(
        ReadMessage((*messages)[i], fields.PathOf("messages") + "[" + std::to_string(i) + "]", fields));
  }
  return out;
}

}  // namespace epic
