#include "loadgen/quality/workbench.h"

#include <algorithm>
#include <thread>

#include "common/status/status_macros.h"
#include "services/model/prompt_tokens.h"

namespace epic::loadgen {
namespace {

// Of exactly computed prompts: the answer of `full` leaves its rows there, and its score reads them. One is
// enough; a longer prompt is computed twice.
constexpr uint64_t kPrefixCacheMost = 1ull << 30;

// All contexts of a prompt compile at the same time.
constexpr uint32_t kMostWaiting = 8192;

class Progress final : public PackProgress {
 public:
  explicit Progress(std::ostream* out) : out_(out) {}
  void OnProgress(uint32_t layers_done, uint32_t layers_total) override {
    if (layers_done == layers_total) *out_ << "  " << layers_total << " layers packed" << std::endl;
  }

 private:
  std::ostream* const out_;
};

std::string TokenText(const TokenizerSpec& spec, const std::optional<uint32_t>& id) {
  return id.has_value() && *id < spec.tokens.size() ? spec.tokens[*id] : std::string();
}

// As if in f32, which bounds bf16 too.
uint64_t PrefixCacheBytes(const ModelConfig& config) {
  const uint64_t row = uint64_t{2} * config.layers * config.kv_heads * config.head_dim * sizeof(float);
  return std::min<uint64_t>(kPrefixCacheMost, row * config.context_length);
}

}  // namespace

Workbench::~Workbench() {
  if (engine != nullptr) engine->Stop();
}

absl::StatusOr<std::unique_ptr<Workbench>> Workbench::Open(const WorkbenchOptions& options,
                                                           const Clock* clock, std::ostream* progress) {
  auto bench = std::make_unique<Workbench>();
  bench->clock = clock;
  if (progress != nullptr) *progress << "loading " << options.model_path << std::endl;
  EPIC_ASSIGN_OR_RETURN(bench->model, Model::Load(options.model_path));
  const TokenizerSpec& spec = bench->model->tokenizer_spec();
  EPIC_ASSIGN_OR_RETURN(bench->tokenizer, Tokenizer::Create(spec));
  EPIC_ASSIGN_OR_RETURN(bench->chat_template,
                        ChatTemplate::Create(bench->model->chat_template_source(), TokenText(spec, spec.bos),
                                             TokenText(spec, spec.eos)));
  bench->end_tokens = EndTokens(*bench->tokenizer);
  EngineOptions& engine = bench->options;
  engine.threads = options.threads > 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  engine.compute = options.compute;
  if (options.compute == ComputeFormat::kF32) engine.kv_dtype = KvDtype::kF32;
  engine.max_queue = kMostWaiting;
  engine.prefix_cache_bytes = PrefixCacheBytes(bench->model->config());
  Progress layers(progress);
  EPIC_ASSIGN_OR_RETURN(bench->engine,
                        Engine::Create(bench->model, engine, clock, progress == nullptr ? nullptr : &layers));
  return bench;
}

}  // namespace epic::loadgen
