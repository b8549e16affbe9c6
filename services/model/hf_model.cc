#include "services/model/hf_model.h"

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/status/status_macros.h"
#include "services/model/hf_config.h"
#include "services/model/hf_tokenizer.h"
#include "services/model/json_file.h"
#include "services/model/model_error.h"
#include "services/model/model_file.h"
#include "services/model/safetensors.h"

namespace epic {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxConfigBytes = 1ull << 20;
constexpr uint64_t kMaxTokenizerConfigBytes = 16ull << 20;
constexpr uint64_t kMaxTokenizerBytes = 128ull << 20;
constexpr uint64_t kMaxIndexBytes = 16ull << 20;
constexpr uint64_t kMaxTemplateBytes = 4ull << 20;
constexpr size_t kMaxShards = 1024;

constexpr TensorNames kHfNames = {
    .embedding = "model.embed_tokens.weight",
    .output_norm = "model.norm.weight",
    .head = "lm_head.weight",
    .layer_prefix = "model.layers.",
    .attention_norm = "input_layernorm.weight",
    .q = "self_attn.q_proj.weight",
    .k = "self_attn.k_proj.weight",
    .v = "self_attn.v_proj.weight",
    .q_bias = "self_attn.q_proj.bias",
    .k_bias = "self_attn.k_proj.bias",
    .v_bias = "self_attn.v_proj.bias",
    .q_norm = "self_attn.q_norm.weight",
    .k_norm = "self_attn.k_norm.weight",
    .output = "self_attn.o_proj.weight",
    .ffn_norm = "post_attention_layernorm.weight",
    .gate = "mlp.gate_proj.weight",
    .up = "mlp.up_proj.weight",
    .down = "mlp.down_proj.weight",
};
// Rotary frequencies that old files store beside the configuration that they follow from.
constexpr std::string_view kInverseFrequencies = "rotary_emb.inv_freq";

class FolderReader {
 public:
  FolderReader(const std::string& folder, ModelParts* parts) : folder_(folder), parts_(*parts) {}

  absl::Status Run() {
    EPIC_ASSIGN_OR_RETURN(const json config, Required("config.json", kMaxConfigBytes));
    EPIC_ASSIGN_OR_RETURN(HfConfig read, ReadHfConfig(PathOf("config.json"), config));
    parts_.config = std::move(read.config);
    parts_.config.name = std::filesystem::path(folder_).lexically_normal().filename().string();
    if (parts_.config.name.empty()) {
      parts_.config.name =
          std::filesystem::path(folder_).lexically_normal().parent_path().filename().string();
    }
    parts_.rope_identity = std::move(read.rope_identity);
    // The weights first: a vocabulary that no embedding backs is never filled up.
    EPIC_RETURN_IF_ERROR(ReadWeights());
    uint64_t embedding_rows = 0;
    for (const NamedTensor& tensor : parts_.tensors) {
      if (tensor.name.ends_with(kHfNames.q_bias)) parts_.config.qkv_bias = true;
      if (tensor.name == kHfNames.embedding && !tensor.dims.empty()) embedding_rows = tensor.dims[0];
    }
    if (embedding_rows != parts_.config.vocab) {
      return BadModelFile(PathOf("config.json"), "vocab_size",
                          absl::StrCat("is ", parts_.config.vocab, " and the tensor ",
                                       ToAbsl(kHfNames.embedding), " has ", embedding_rows, " rows"));
    }
    return ReadTokenizerFiles(config);
  }

 private:
  std::string PathOf(std::string_view name) const { return absl::StrCat(folder_, "/", ToAbsl(name)); }

  absl::StatusOr<json> Required(std::string_view name, uint64_t max_bytes) const {
    EPIC_ASSIGN_OR_RETURN(std::optional<json> parsed, ReadJsonFile(PathOf(name), max_bytes));
    if (!parsed.has_value()) return BadModelFile(folder_, name, "is missing from the folder");
    return *std::move(parsed);
  }

  absl::Status ReadWeights() {
    const absl::StatusOr<std::shared_ptr<const ModelFile>> single =
        ModelFile::Read(PathOf("model.safetensors"));
    if (single.ok()) return ReadShard(*single, nullptr);
    if (!absl::IsNotFound(single.status())) return single.status();
    constexpr std::string_view kIndex = "model.safetensors.index.json";
    EPIC_ASSIGN_OR_RETURN(const std::optional<json> index, ReadJsonFile(PathOf(kIndex), kMaxIndexBytes));
    if (!index.has_value()) {
      return BadModelFile(folder_, "model.safetensors", "is missing from the folder, and so is its index");
    }
    const std::string path = PathOf(kIndex);
    return ReadShards(JsonObject(path, "", *index));
  }

  absl::Status ReadShards(const JsonObject& index) {
    const json& map = index.Get("weight_map");
    if (!map.is_object()) return index.Bad("weight_map", "must be an object");
    std::map<std::string, std::set<std::string>> shards;
    for (const auto& [tensor, file] : map.items()) {
      const std::string name = file.is_string() ? file.get<std::string>() : "";
      if (name.empty() || name.find('/') != std::string::npos || name.find('\0') != std::string::npos ||
          !name.ends_with(".safetensors")) {
        return index.Bad("weight_map", absl::StrCat("gives ", Quoted(name), " for ", Quoted(tensor),
                                                    ", not a .safetensors file of the folder"));
      }
      shards[name].insert(tensor);
    }
    if (shards.size() > kMaxShards) return index.Bad("weight_map", "names more than 1024 files");
    for (const auto& [name, tensors] : shards) {
      absl::StatusOr<std::shared_ptr<const ModelFile>> file = ModelFile::Read(PathOf(name));
      if (absl::IsNotFound(file.status()))
        return index.Bad("weight_map", absl::StrCat("names ", Quoted(name), ", which is missing"));
      EPIC_RETURN_IF_ERROR(file.status());
      EPIC_RETURN_IF_ERROR(ReadShard(*std::move(file), &tensors));
    }
    return absl::OkStatus();
  }

  // `expected`: the tensors that the index places in this file; null without an index.
  absl::Status ReadShard(std::shared_ptr<const ModelFile> file, const std::set<std::string>* expected) {
    EPIC_ASSIGN_OR_RETURN(std::vector<NamedTensor> tensors,
                          ParseSafetensors(file->path(), file->bytes(), {kInverseFrequencies}));
    for (NamedTensor& tensor : tensors) {
      if (expected != nullptr && !expected->contains(tensor.name)) {
        return BadModelFile(file->path(), absl::StrCat("tensor ", Quoted(tensor.name)),
                            "is not in the index");
      }
      parts_.tensors.push_back(std::move(tensor));
    }
    parts_.files.push_back(std::move(file));
    return absl::OkStatus();
  }

  // The ids under eos_token_id: a number or an array of numbers.
  absl::Status AppendEosIds(const JsonObject& object, std::vector<uint32_t>* ids) const {
    constexpr std::string_view kKey = "eos_token_id";
    const json& value = object.Get(kKey);
    if (value.is_null()) return absl::OkStatus();
    const json list = value.is_array() ? value : json::array({value});
    for (const json& id : list) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() >= parts_.config.vocab) {
        return object.Bad(kKey, "must be ids within the vocabulary");
      }
      ids->push_back(id.get<uint32_t>());
    }
    return absl::OkStatus();
  }

  absl::Status ReadTokenizerFiles(const json& config) {
    HfTokenizerFiles files;
    files.tokenizer_path = PathOf("tokenizer.json");
    files.config_path = PathOf("tokenizer_config.json");
    files.vocab = parts_.config.vocab;
    EPIC_ASSIGN_OR_RETURN(files.tokenizer, Required("tokenizer.json", kMaxTokenizerBytes));
    EPIC_ASSIGN_OR_RETURN(std::optional<json> tokenizer_config,
                          ReadJsonFile(files.config_path, kMaxTokenizerConfigBytes));
    files.config = tokenizer_config.has_value() ? *std::move(tokenizer_config) : json::object();
    const std::string generation_path = PathOf("generation_config.json");
    EPIC_ASSIGN_OR_RETURN(const std::optional<json> generation,
                          ReadJsonFile(generation_path, kMaxConfigBytes));
    if (generation.has_value()) {
      EPIC_RETURN_IF_ERROR(AppendEosIds(JsonObject(generation_path, "", *generation), &files.eos_ids));
    }
    const std::string config_path = PathOf("config.json");
    EPIC_RETURN_IF_ERROR(AppendEosIds(JsonObject(config_path, "", config), &files.eos_ids));
    EPIC_ASSIGN_OR_RETURN(parts_.tokenizer, ReadHfTokenizer(files));
    return ReadChatTemplate(JsonObject(files.config_path, "", files.config));
  }

  // chat_template.jinja if it exists, else chat_template of tokenizer_config.json: a string, or a list of
  // named ones of which "default" is taken.
  absl::Status ReadChatTemplate(const JsonObject& config) {
    const absl::StatusOr<std::shared_ptr<const ModelFile>> file =
        ModelFile::Read(PathOf("chat_template.jinja"), kMaxTemplateBytes);
    if (file.ok()) {
      parts_.chat_template = std::string(AsText((*file)->bytes()));
      return absl::OkStatus();
    }
    if (!absl::IsNotFound(file.status())) return file.status();
    const json& value = config.Get("chat_template");
    if (value.is_null()) return absl::OkStatus();
    if (value.is_string()) {
      parts_.chat_template = value.get<std::string>();
      return absl::OkStatus();
    }
    if (!value.is_array())
      return config.Bad("chat_template", "must be a string or a list of named templates");
    const std::string path = PathOf("tokenizer_config.json");
    for (const json& each : value) {
      if (!each.is_object()) return config.Bad("chat_template", "must hold objects with name and template");
      const JsonObject entry(path, "chat_template.", each);
      EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> name, entry.String("name"));
      EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> text, entry.String("template"));
      if (name.value_or("") == "default") parts_.chat_template = text.value_or("");
    }
    return absl::OkStatus();
  }

  const std::string& folder_;
  ModelParts& parts_;
};

}  // namespace

absl::StatusOr<ModelParts> ReadHfModel(const std::string& folder) {
  ModelParts parts;
  parts.path = folder;
  parts.names = kHfNames;
  parts.ignorable = {kInverseFrequencies};
  EPIC_RETURN_IF_ERROR(FolderReader(folder, &parts).Run());
  return parts;
}

}  // namespace epic
