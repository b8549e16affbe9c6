// The engine: one model, one loop, one thread pool. It compiles chunks, links prompts, decodes and scores.
//
// Submissions never block: work is queued, admitted when its memory fits, and run in steps that mix decode
// rows of all running sequences with panels of prompt rows. Sinks are called on the engine's thread and must
// not block; they are called until OnDone, which is the last call and always comes (unless Submit returned an
// error). Cancellation is looked at before every layer of every step; a cancelled request's rows and segments
// are free within the time of one layer, whoever shares its step. A request whose next layer is not there yet
// is suspended: no thread waits for it, and the steps of the others go on.
#ifndef EPIC_SERVICES_ENGINE_ENGINE_H_
#define EPIC_SERVICES_ENGINE_ENGINE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/cancel.h"
#include "common/base/clock.h"
#include "common/storage/cache_id.h"
#include "common/storage/kv_object.h"
#include "services/engine/strategy.h"
#include "services/model/model.h"

namespace epic {

// What decode rows are multiplied with.
enum class DecodeWeights : uint8_t {
  kQuantized,     // the levels of the model's own file, 8 bits in groups of 32 where it has none
  kSameAsPrompt,  // what prompt rows are multiplied with: slower, and exact in f32
};

struct EngineOptions {
  uint32_t threads = 0;                  // 0: one per core
  std::optional<ComputeFormat> compute;  // unset: bf16 where the CPU has it, else f32
  DecodeWeights decode_weights = DecodeWeights::kQuantized;
  KvDtype kv_dtype = KvDtype::kBf16;  // of objects and private segments alike
  uint32_t panel_tokens = 512;        // rows of a step's prompt panel
  // Links and scores running at once, choices counted. As many compiles run beside them, and more of them
  // while their rows are not above panel_tokens in all.
  uint32_t max_sequences = 32;
  uint32_t max_queue = 256;                    // waiting requests; beyond it kQueueFull
  uint64_t memory_bytes = 2ull << 30;          // private segments, scratch, and the rotary table
  uint64_t prefix_cache_bytes = 256ull << 20;  // exactly computed prompts kept for `prefix`; 0 turns it off
};

// A run of the prompt: own text, or a context covered by an object.
struct PromptPiece {
  std::vector<TokenId> tokens;
  // nullptr: own text. Else KV of exactly these tokens (object->layout().tokens == tokens.size()). It may be
  // on its way: each layer computes once that layer of all objects is there. One that ends ends the request.
  std::shared_ptr<const KvObject> object;
  // The compile prefix of the object, token for token; empty in plain mode. Decides whether it is exact in
  // place.
  std::vector<TokenId> prefix_tokens;
  // False for the template's head and the like: covered, but not a chunk of the user's (nothing changes but
  // reports).
  bool is_context = true;
};

struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy
  float top_p = 1.0f;
  int32_t top_k = 0;  // 0: off
  float min_p = 0.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  float repetition_penalty = 1.0f;
  uint64_t seed = 0;  // choice i uses seed + i
  std::vector<std::pair<TokenId, float>> logit_bias;
  uint32_t top_logprobs = 0;  // 0..20
  bool logprobs = false;
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;  // natural logarithm, of the model's distribution before temperature and truncation
};

struct GeneratedToken {
  uint32_t choice = 0;
  TokenId token = 0;
  float logprob = 0;  // when logprobs were asked for
  std::vector<TokenLogprob> top_logprobs;
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kError };

// What the engine really did for a prompt. cached + recomputed + fresh == prompt tokens.
struct LinkStats {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;      // covered rows whose KV was read
  uint32_t recomputed_tokens = 0;  // covered rows that were computed
  uint32_t fresh_tokens = 0;       // rows that nothing covered
  // Of each piece, the rows of its object that were read.
  std::vector<uint32_t> read_rows;
  int64_t queue_ns = 0;   // submitted to admitted
  int64_t decide_ns = 0;  // choosing rows: planning, and the whole phase that a strategy runs before its link
  int64_t link_ns = 0;    // from there to the first logits
  // Of both it is left out how long no row could run for want of a layer.
  int64_t suspended_ns = 0;
};

// Receives one request's output. Called on the engine's thread only.
class LinkSink {
 public:
  virtual ~LinkSink() = default;
  // Once, when the prompt's rows are computed and before its first token.
  virtual void OnLinked(const LinkStats& stats) = 0;
  // Returns false to end this choice now (a stop string matched): it finishes with kStop.
  virtual bool OnToken(const GeneratedToken& token) = 0;
  // Once per choice, after its last token.
  virtual void OnFinish(uint32_t choice, FinishReason reason) = 0;
  // The object of this piece ended with an error before its last layer, and the request with it: nothing was
  // reported of it yet, and OnFinish and OnDone follow with that error. Sent again with another object it may
  // go well.
  virtual void OnObjectLost(size_t /*piece*/) {}
  // The last call. OK when every choice finished; kCancelled, or the error of the request.
  virtual void OnDone(const absl::Status& status) = 0;
};

struct LinkRequest {
  // Whose rows of the prefix cache this request may read, and whose it leaves there. Empty: neither.
  std::string tenant;
  std::vector<PromptPiece> pieces;
  LinkStrategy strategy;
  SamplingParams sampling;
  uint32_t choices = 1;     // n; all first tokens come from one row of logits
  uint32_t max_tokens = 0;  // per choice, >= 1; prompt + max_tokens <= context_length
  // End a choice with kStop; the stop token itself is not reported. The engine has no tokenizer: the model's
  // end tokens stop a choice when the caller lists them here, and are ignored when it leaves them out.
  std::vector<TokenId> stop_tokens;
  CancelToken cancel;
};

class CompileSink {
 public:
  virtual ~CompileSink() = default;
  // Layers in ascending order, each once. slab: [2][kv_heads][tokens][head_dim] in the engine's KV dtype,
  // valid during the call. An error ends the compile.
  virtual absl::Status OnLayer(uint32_t layer, ByteSpan slab) = 0;
  virtual void OnDone(const absl::Status& status) = 0;
};

struct CompileRequest {
  std::vector<TokenId> prefix_tokens;  // computed first, rows dropped
  std::vector<TokenId> tokens;         // not empty
  CancelToken cancel;
};

class ScoreSink {
 public:
  virtual ~ScoreSink() = default;
  // Row i of the continuation: the logits that predict continuation[i]. Shape: [vocab].
  virtual void OnLogits(uint32_t index, std::span<const float> logits) = 0;
  virtual void OnDone(const absl::Status& status, const LinkStats& stats) = 0;
};

// Links the prompt by the strategy, then runs `continuation` teacher-forced.
struct ScoreRequest {
  std::string tenant;  // as in LinkRequest
  std::vector<PromptPiece> pieces;
  LinkStrategy strategy;
  std::vector<TokenId> continuation;  // not empty
  CancelToken cancel;
};

struct EngineGauges {
  uint32_t running = 0;       // requests admitted
  uint32_t waiting = 0;       // requests queued
  uint32_t suspended = 0;     // of the running ones, those that wait for a layer of an object
  uint64_t private_rows = 0;  // rows held in private segments
  uint64_t private_bytes = 0;
  uint64_t prefix_cache_bytes = 0;
  uint64_t held_objects = 0;        // objects held by running and waiting requests
  uint64_t steps = 0;               // since the start
  uint64_t not_finite_outputs = 0;  // links and scores that failed for NaN or infinity, since the start
  uint64_t not_finite_compiles = 0;
  // The loop has work in hand, or requests wait for it.
  bool busy = false;
  // When the loop last moved: found work, began a layer, passed on logits, came back from a sink. However
  // long a step is, this grows within it: a busy loop that has stood still for long is stuck.
  int64_t last_progress_steady_ns = 0;
};

struct PackProgress {
  virtual ~PackProgress() = default;
  virtual void OnProgress(uint32_t layers_done, uint32_t layers_total) = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  // Packs the weights (progress may be null) and starts the loop. Clock must outlive the engine; the model
  // is not used once this returns.
  // Errors: kInvalidRequest (an option out of range, or memory_bytes below what scratch and the model's
  // context length take), InvalidArgument (a tensor or rotary parameter that does not fit the configuration),
  // Unimplemented (a compute format that this CPU lacks), ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(std::shared_ptr<const Model> model,
                                                        const EngineOptions& options, const Clock* clock,
                                                        PackProgress* progress = nullptr);

  virtual const ModelConfig& config() const = 0;
  virtual ComputeFormat compute() const = 0;
  virtual KvDtype kv_dtype() const = 0;
  // The layout of an object for `tokens` rows compiled behind a prefix of `first_position` tokens.
  virtual KvLayout LayoutOf(uint32_t tokens, uint32_t first_position) const = 0;

  // Errors, at once and without a call to the sink: kQueueFull, kContextLengthExceeded (with both numbers),
  // kInvalidRequest (token ids outside the vocabulary, an object of another layout, a strategy that names
  // layers the model has not), kDraining after Stop.
  virtual absl::Status SubmitLink(LinkRequest request, std::shared_ptr<LinkSink> sink) = 0;
  virtual absl::Status SubmitCompile(CompileRequest request, std::shared_ptr<CompileSink> sink) = 0;
  virtual absl::Status SubmitScore(ScoreRequest request, std::shared_ptr<ScoreSink> sink) = 0;

  virtual EngineGauges Gauges() const = 0;
  // Refuses new work, cancels what is left, waits for the loop to end. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_ENGINE_H_
