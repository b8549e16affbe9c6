#include "services/model/json_file.h"

#include <cmath>
#include <memory>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/status/status_macros.h"
#include "services/model/model_error.h"
#include "services/model/model_file.h"

namespace epic {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 64;

// Nesting of brackets outside strings; the text need not be well-formed.
int DepthOf(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

// Notes the first key that an object has twice, as the parser goes.
class DuplicateKeys {
 public:
  bool operator()(json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
        keys_.emplace_back();
        break;
      case json::parse_event_t::object_end:
        if (!keys_.empty()) keys_.pop_back();
        break;
      case json::parse_event_t::key: {
        const std::string& key = parsed.get_ref<const std::string&>();
        if (!keys_.empty() && !keys_.back().insert(key).second && !first_.has_value()) first_ = key;
        break;
      }
      default:
        break;
    }
    return true;
  }
  const std::optional<std::string>& first() const { return first_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::optional<std::string> first_;
};

absl::Status WrongType(const JsonObject& object, std::string_view key, std::string_view wanted) {
  return object.Bad(key, absl::StrCat("must be ", ToAbsl(wanted), " and is ", object.Get(key).type_name()));
}

}  // namespace

const json& JsonObject::Get(std::string_view key) const {
  static const json* const null = new json(nullptr);
  const auto it = json_->find(std::string(key));
  return it == json_->end() ? *null : *it;
}

absl::Status JsonObject::Bad(std::string_view key, std::string_view what) const {
  return BadModelFile(file_, FieldOf(key), what);
}

absl::StatusOr<std::optional<uint64_t>> JsonObject::Uint(std::string_view key) const {
  const json& value = Get(key);
  if (value.is_null()) return std::optional<uint64_t>();
  if (!value.is_number_unsigned()) return WrongType(*this, key, "an integer that is not negative");
  return std::optional<uint64_t>(value.get<uint64_t>());
}

absl::StatusOr<std::optional<double>> JsonObject::Number(std::string_view key) const {
  const json& value = Get(key);
  if (value.is_null()) return std::optional<double>();
  if (!value.is_number() || !std::isfinite(value.get<double>())) return WrongType(*this, key, "a number");
  return std::optional<double>(value.get<double>());
}

absl::StatusOr<std::optional<bool>> JsonObject::Bool(std::string_view key) const {
  const json& value = Get(key);
  if (value.is_null()) return std::optional<bool>();
  if (!value.is_boolean()) return WrongType(*this, key, "true or false");
  return std::optional<bool>(value.get<bool>());
}

absl::StatusOr<std::optional<std::string>> JsonObject::String(std::string_view key) const {
  const json& value = Get(key);
  if (value.is_null()) return std::optional<std::string>();
  if (!value.is_string()) return WrongType(*this, key, "a string");
  return std::optional<std::string>(value.get<std::string>());
}

absl::StatusOr<std::optional<JsonObject>> JsonObject::Object(std::string_view key) const {
  const json& value = Get(key);
  if (value.is_null()) return std::optional<JsonObject>();
  if (!value.is_object()) return WrongType(*this, key, "an object");
  return std::optional<JsonObject>(JsonObject(file_, FieldOf(key) + ".", value));
}

absl::StatusOr<json> ParseJsonObject(std::string_view file, std::string_view field, std::string_view text,
                                     uint64_t max_bytes) {
  if (text.size() > max_bytes) {
    return BadModelFile(file, field,
                        absl::StrCat("has ", text.size(), " bytes; at most ", max_bytes, " are read"));
  }
  if (DepthOf(text) > kMaxDepth) {
    return BadModelFile(file, field, absl::StrCat("is nested deeper than ", kMaxDepth));
  }
  DuplicateKeys duplicates;
  json parsed;
  try {
    parsed = json::parse(
        text.begin(), text.end(),
        [&duplicates](int, json::parse_event_t event, json& value) { return duplicates(event, value); });
  } catch (const json::exception& error) {
    return BadModelFile(file, field, absl::StrCat("is no valid JSON: ", error.what()));
  }
  if (duplicates.first().has_value()) {
    return BadModelFile(file, field, absl::StrCat("has the key ", Quoted(*duplicates.first()), " twice"));
  }
  if (!parsed.is_object()) return BadModelFile(file, field, "must be a JSON object");
  return parsed;
}

absl::StatusOr<std::optional<json>> ReadJsonFile(const std::string& path, uint64_t max_bytes) {
  const absl::StatusOr<std::shared_ptr<const ModelFile>> file = ModelFile::Read(path, max_bytes);
  if (absl::IsNotFound(file.status())) return std::optional<json>();
  EPIC_RETURN_IF_ERROR(file.status());
  EPIC_ASSIGN_OR_RETURN(json parsed, ParseJsonObject(path, "file", AsText((*file)->bytes()), max_bytes));
  return std::optional<json>(std::move(parsed));
}

}  // namespace epic
