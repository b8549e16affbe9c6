// Untrusted JSON text into a tree, strictly: depth and size bounded, no duplicate keys, no NaN, no broken
// UTF-8, no lone surrogates. And a reader of typed fields that remembers the first error with its path.
// Only .cc files of this folder include this header; it brings in the JSON library.
#ifndef EPIC_SERVICES_ROUTER_HTTP_JSON_PARSE_H_
#define EPIC_SERVICES_ROUTER_HTTP_JSON_PARSE_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace epic {

struct JsonLimits {
  uint32_t max_depth = 64;
  uint32_t max_values = 2'000'000;
};

// Errors: InvalidArgument (kInvalidRequest) with what is wrong and where.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, const JsonLimits& limits);
// The same, and the top must be an object.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text, const JsonLimits& limits);

// Reads fields of one object. A field that is absent or null gives nullopt; one of a wrong type too, and the
// first such error is kept with the field's path. One thread; lives shorter than the tree.
class JsonFields {
 public:
  // `path` names the object in messages, as in "messages[0]"; empty for the top.
  JsonFields(const nlohmann::json& object, std::string path) : object_(object), path_(std::move(path)) {}

  std::optional<std::string> String(const char* key);
  std::optional<bool> Bool(const char* key);
  std::optional<int64_t> Integer(const char* key);
  std::optional<double> Number(const char* key);
  std::optional<std::vector<std::string>> Strings(const char* key);
  std::optional<std::vector<int64_t>> Integers(const char* key);
  // The field itself when it is an array (an object); nullptr when absent or null.
  const nlohmann::json* Array(const char* key);
  const nlohmann::json* Object(const char* key);
  // The field itself when present and not null.
  const nlohmann::json* Any(const char* key) const;
  // Whether the key is there at all, null or not.
  bool Has(const char* key) const { return object_.contains(key); }

  // Refuses keys outside `known`.
  void OnlyKeys(std::initializer_list<std::string_view> known);
  void Fail(absl::Status status);
  void FailType(std::string_view key, std::string_view expected);
  // Takes over the error of a nested reader.
  void Join(const JsonFields& nested) { Fail(nested.status()); }

  std::string PathOf(std::string_view key) const;
  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }

 private:
  const nlohmann::json& object_;
  const std::string path_;
  absl::Status status_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_HTTP_JSON_PARSE_H_
