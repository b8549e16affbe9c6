#include "services/worker_api/opened_model.h"

#include <cctype>
#include <filesystem>
#include <utility>

#include "common/status/status_macros.h"

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

absl::StatusOr<OpenedModel> OpenModel(const ModelSettings& settings) {
  std::error_code error;
  if (!std::filesystem::exists(settings.path, error)) {
    return absl::NotFoundError(
        "there is no model at " + settings.path +
        "; name one with --model, or fetch the default one with deploy/fetch_model.sh");
  }
  OpenedModel opened;
  EPIC_ASSIGN_OR_RETURN(opened.model, Model::Load(settings.path));
  const TokenizerSpec& spec = opened.model->tokenizer_spec();
  opened.alias = settings.alias.empty() ? AliasOf(FileNameOf(settings.path)) : settings.alias;
  opened.identity = opened.model->identity();
  opened.architecture = NameOf(opened.model->config().architecture);
  opened.parameters = opened.model->parameter_count();
  EPIC_ASSIGN_OR_RETURN(opened.tokenizer, Tokenizer::Create(spec));
  EPIC_ASSIGN_OR_RETURN(opened.chat_template,
                        ChatTemplate::Create(opened.model->chat_template_source(), TokenText(spec, spec.bos),
                                             TokenText(spec, spec.eos)));
  return opened;
}

absl::StatusOr<std::unique_ptr<Engine>> StartEngine(const EngineSettings& settings,
                                                    std::shared_ptr<const Model> model, const Clock* clock,
                                                    PackProgress* progress) {
  return Engine::Create(std::move(model), OptionsOf(settings), clock, progress);
}

void ShowEngine(const EngineGauges& gauges, Metrics* metrics) {
  metrics->GetGauge(MetricId::kRequestsRunning).Set(gauges.running);
  metrics->GetGauge(MetricId::kRequestsWaiting).Set(gauges.waiting);
  metrics->GetGauge(MetricId::kEngineRowsInFlight).Set(static_cast<double>(gauges.private_rows));
  metrics->GetGauge(MetricId::kEnginePrivateSegmentBytes).Set(static_cast<double>(gauges.private_bytes));
  metrics->GetGauge(MetricId::kEngineRequestsSuspended).Set(gauges.suspended);
  metrics->GetCounter(MetricId::kNotFiniteTotal, {"output"}).CatchUp(gauges.not_finite_outputs);
  metrics->GetCounter(MetricId::kNotFiniteTotal, {"compile"}).CatchUp(gauges.not_finite_compiles);
}

std::optional<std::string> StuckCause(const EngineGauges& gauges, int64_t now_steady_ns,
                                      int64_t stuck_after_ms) {
  const int64_t still_ms = (now_steady_ns - gauges.last_progress_steady_ns) / 1'000'000;
  if (!gauges.busy || still_ms <= stuck_after_ms) return std::nullopt;
  return "the engine has stood still for " + std::to_string(still_ms / 1000) + " s with " +
         std::to_string(gauges.running) + " requests running and " + std::to_string(gauges.waiting) +
         " waiting: restart the server if it stays so";
}

}  // namespace epic
