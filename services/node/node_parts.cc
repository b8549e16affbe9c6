#include "services/node/node_parts.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "common/status/status_macros.h"
#include "services/kv_store/config/store_config.h"
#include "services/kv_store/embedded_store.h"
#include "services/model/model.h"

namespace epic {
namespace {

std::string_view NameOf(Architecture architecture) {
  switch (architecture) {
    case Architecture::kLlama:
      return "llama";
    case Architecture::kMistral:
      return "mistral";
    case Architecture::kQwen2:
      return "qwen2";
    case Architecture::kQwen3:
      break;
  }
  return "qwen3";
}

// A name as clients can type it: "SmolLM2 135M Instruct" becomes smollm2-135m-instruct.
std::string AliasOf(const std::string& name) {
  std::string alias;
  for (const char c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_';
    if (plain) {
      alias += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!alias.empty() && alias.back() != '-') {
      alias += '-';
    }
  }
  while (alias.ends_with('-')) alias.pop_back();
  return alias.empty() ? "default" : alias;
}

// The name of the model's file without .gguf, or of its folder.
std::string FileNameOf(const std::string& path) {
  std::filesystem::path file(path);
  if (!file.has_filename()) file = file.parent_path();
  return file.extension() == ".gguf" ? file.stem().string() : file.filename().string();
}

EngineOptions OptionsOf(const EngineSettings& settings) {
  EngineOptions options;
  options.threads = static_cast<uint32_t>(settings.threads);
  if (settings.compute == "f32") options.compute = ComputeFormat::kF32;
  if (settings.compute == "bf16") options.compute = ComputeFormat::kBf16;
  if (settings.decode_weights == "same_as_prompt") options.decode_weights = DecodeWeights::kSameAsPrompt;
  options.kv_dtype = settings.kv_dtype == "f32" ? KvDtype::kF32 : KvDtype::kBf16;
  options.panel_tokens = static_cast<uint32_t>(settings.panel_tokens);
  options.max_sequences = static_cast<uint32_t>(settings.max_sequences);
  options.max_queue = static_cast<uint32_t>(settings.max_queue);
  options.memory_bytes = static_cast<uint64_t>(settings.memory_bytes);
  options.prefix_cache_bytes = static_cast<uint64_t>(settings.prefix_cache_bytes);
  return options;
}

std::string TokenText(const TokenizerSpec& spec, std::optional<uint32_t> id) {
  return id.has_value() && *id < spec.tokens.size() ? spec.tokens[*id] : std::string();
}

}  // namespace

absl::StatusOr<NodeParts> LoadParts(const Config& config, const Clock* clock, PackProgress* progress) {
  std::error_code error;
  if (!std::filesystem::exists(config.model.path, error)) {
    return absl::NotFoundError(
        "there is no model at " + config.model.path +
        "; name one with --model, or fetch the default one with deploy/fetch_model.sh");
  }
  EPIC_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, Model::Load(config.model.path));
  const TokenizerSpec& spec = model->tokenizer_spec();
  NodeParts parts;
  parts.alias = config.model.alias.empty() ? AliasOf(FileNameOf(config.model.path)) : config.model.alias;
  parts.identity = model->identity();
  parts.architecture = NameOf(model->config().architecture);
  parts.parameters = model->parameter_count();
  EPIC_ASSIGN_OR_RETURN(parts.tokenizer, Tokenizer::Create(spec));
  EPIC_ASSIGN_OR_RETURN(parts.chat_template,
                        ChatTemplate::Create(model->chat_template_source(), TokenText(spec, spec.bos),
                                             TokenText(spec, spec.eos)));
  EPIC_ASSIGN_OR_RETURN(parts.store,
                        kv_store::EmbeddedStore::Open(kv_store::StoreOptionsOf(config.store, clock)));
  EPIC_ASSIGN_OR_RETURN(parts.engine, Engine::Create(model, OptionsOf(config.engine), clock, progress));
  return parts;
}

}  // namespace epic
