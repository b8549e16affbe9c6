#include "services/router/http/json_parse.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/status/error.h"

namespace epic {
namespace {

using Json = nlohmann::json;

// Builds the tree and stops at the first thing that is not taken.
class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  explicit TreeBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return Add(Json(nullptr)); }
  bool boolean(bool value) override { return Add(Json(value)); }
  bool number_integer(number_integer_t value) override { return Add(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Add(Json(value)); }
  bool number_float(number_float_t value, const string_t&) override { return Add(Json(value)); }
  bool string(string_t& value) override { return Add(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }

  bool key(string_t& value) override {
    if (open_.back()->contains(value)) {
      return Refuse("the key \"" + value.substr(0, 64) + "\" stands twice in one object");
    }
    key_ = std::move(value);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    // The library's text begins with an id in brackets and a position; what follows is for people.
    std::string text = error.what();
    if (const size_t cut = text.find(": "); cut != std::string::npos) text = text.substr(cut + 2);
    return Refuse("malformed JSON at byte " + std::to_string(position) + ": " + text.substr(0, 200));
  }

  Json& root() { return root_; }
  const std::string& error() const { return error_; }

 private:
  bool Refuse(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }

  Json* Place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }

  bool Add(Json value) {
    if (++values_ > limits_.max_values) {
      return Refuse("the JSON has more than " + std::to_string(limits_.max_values) + " values");
    }
    Place(std::move(value));
    return true;
  }

  bool Open(Json value) {
    if (open_.size() >= limits_.max_depth) {
      return Refuse("the JSON is nested deeper than " + std::to_string(limits_.max_depth) + " levels");
    }
    if (++values_ > limits_.max_values) {
      return Refuse("the JSON has more than " + std::to_string(limits_.max_values) + " values");
    }
    open_.push_back(Place(std::move(value)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  Json root_;
  std::vector<Json*> open_;  // a parent does not move while a child is open
  std::string key_;
  uint64_t values_ = 0;
  std::string error_;
};

std::string_view TypeName(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "true or false";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return "a number with a fraction or exponent";
    default:
      return "something else";
  }
}

std::optional<int64_t> AsInteger(const Json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return Error(ErrorCode::kInvalidRequest, "the body is empty; send a JSON object");
  }
  TreeBuilder builder(limits);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return Error(ErrorCode::kInvalidRequest,
                 builder.error().empty() ? std::string("malformed JSON") : builder.error());
  }
  return std::move(builder.root());
}

absl::StatusOr<Json> ParseJsonObject(std::string_view text, const JsonLimits& limits) {
  absl::StatusOr<Json> json = ParseJson(text, limits);
  if (json.ok() && !json->is_object()) {
    return Error(ErrorCode::kInvalidRequest,
                 "the body must be a JSON object, not " + std::string(TypeName(*json)));
  }
  return json;
}

std::string JsonFields::PathOf(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

void JsonFields::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void JsonFields::FailType(std::string_view key, std::string_view expected) {
  const std::string path = PathOf(key);
  std::string got = "nothing";
  if (const auto it = object_.find(std::string(key)); it != object_.end()) got = TypeName(*it);
  Fail(Error(ErrorCode::kInvalidRequest, path + " must be " + std::string(expected) + ", not " + got, path));
}

const Json* JsonFields::Any(const char* key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::optional<std::string> JsonFields::String(const char* key) {
  const Json* value = Any(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get_ref<const std::string&>();
  FailType(key, "a string");
  return std::nullopt;
}

std::optional<bool> JsonFields::Bool(const char* key) {
  const Json* value = Any(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  FailType(key, "true or false");
  return std::nullopt;
}

std::optional<int64_t> JsonFields::Integer(const char* key) {
  const Json* value = Any(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = AsInteger(*value);
  if (!number.has_value()) FailType(key, "an integer of at most 64 bits");
  return number;
}

std::optional<double> JsonFields::Number(const char* key) {
  const Json* value = Any(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) return value->get<double>();
  FailType(key, "a number");
  return std::nullopt;
}

std::optional<std::vector<std::string>> JsonFields::Strings(const char* key) {
  const Json* array = Array(key);
  if (array == nullptr) return std::nullopt;
  std::vector<std::string> out;
  out.reserve(array->size());
  for (size_t i = 0; i < array->size(); ++i) {
    const Json& item = (*array)[i];
    if (!item.is_string()) {
      const std::string path = PathOf(key) + "[" + std::to_string(i) + "]";
      Fail(Error(ErrorCode::kInvalidRequest, path + " must be a string, not " + std::string(TypeName(item)),
                 path));
      return std::nullopt;
    }
    out.push_back(item.get_ref<const std::string&>());
  }
  return out;
}

std::optional<std::vector<int64_t>> JsonFields::Integers(const char* key) {
  const Json* array = Array(key);
  if (array == nullptr) return std::nullopt;
  std::vector<int64_t> out;
  out.reserve(array->size());
  for (size_t i = 0; i < array->size(); ++i) {
    const std::optional<int64_t> number = AsInteger((*array)[i]);
    if (!number.has_value()) {
      const std::string path = PathOf(key) + "[" + std::to_string(i) + "]";
      Fail(Error(ErrorCode::kInvalidRequest,
                 path + " must be an integer of at most 64 bits, not " + std::string(TypeName((*array)[i])),
                 path));
      return std::nullopt;
    }
    out.push_back(*number);
  }
  return out;
}

const Json* JsonFields::Array(const char* key) {
  const Json* value = Any(key);
  if (value == nullptr || value->is_array()) return value;
  FailType(key, "a list");
  return nullptr;
}

const Json* JsonFields::Object(const char* key) {
  const Json* value = Any(key);
  if (value == nullptr || value->is_object()) return value;
  FailType(key, "an object");
  return nullptr;
}

void JsonFields::OnlyKeys(std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string path = PathOf(key.substr(0, 64));
    Fail(Error(ErrorCode::kInvalidRequest, path + " is not a known field here; remove it", path));
  }
}

}  // namespace epic
