// Reading the JSON of model folders with bounds: size, depth, duplicate keys; typed fields with errors that
// name the file and the field. The JSON library's exceptions end here.
#ifndef EPIC_SERVICES_MODEL_JSON_FILE_H_
#define EPIC_SERVICES_MODEL_JSON_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"

namespace epic {

// A JSON object of a file, or inside one. A view: the document must outlive it. Keys whose value is null
// count as absent. Errors: InvalidArgument naming file and field where a value has another type or range.
class JsonObject {
 public:
  // `where` is the prefix of its fields in messages: empty for the root, "rope_scaling." inside it.
  JsonObject(std::string_view file, std::string where, const nlohmann::json& json)
      : file_(file), where_(std::move(where)), json_(&json) {}

  // The value of a key; null when it is absent.
  const nlohmann::json& Get(std::string_view key) const;
  bool Has(std::string_view key) const { return !Get(key).is_null(); }

  absl::StatusOr<std::optional<uint64_t>> Uint(std::string_view key) const;
  // A finite number, integers included.
  absl::StatusOr<std::optional<double>> Number(std::string_view key) const;
  absl::StatusOr<std::optional<bool>> Bool(std::string_view key) const;
  absl::StatusOr<std::optional<std::string>> String(std::string_view key) const;
  absl::StatusOr<std::optional<JsonObject>> Object(std::string_view key) const;

  std::string FieldOf(std::string_view key) const { return where_ + std::string(key); }
  absl::Status Bad(std::string_view key, std::string_view what) const;

 private:
  std::string_view file_;
  std::string where_;
  const nlohmann::json* json_;
};

// Parses `text`, which must be a JSON object of at most `max_bytes`, nested at most 64 deep, without
// duplicate keys. Errors: InvalidArgument naming `file` and `field`.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view file, std::string_view field,
                                               std::string_view text, uint64_t max_bytes);

// The same for a whole file. nullopt when there is no such file.
absl::StatusOr<std::optional<nlohmann::json>> ReadJsonFile(const std::string& path, uint64_t max_bytes);

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_JSON_FILE_H_
