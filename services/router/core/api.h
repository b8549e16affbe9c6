// The public interface as the doors see it: plain requests, results and sinks, with no JSON, HTTP or proto in
// them.
//
// services/router/http and services/router/rpc parse into these structs and print out of them; they decide
// nothing. Everything that can be wrong with a value is checked behind ContextApi, ChatApi and ModelApi, so
// both doors refuse alike. All calls are thread-safe. Callbacks and sinks may be called on any thread, one at
// a time per request, and must not block.
#ifndef EPIC_SERVICES_ROUTER_CORE_API_H_
#define EPIC_SERVICES_ROUTER_CORE_API_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/request_scope.h"
#include "common/storage/cache_id.h"
#include "common/storage/context_record.h"
#include "common/storage/kv_store.h"

namespace epic {

// One part of a message's content: text, or a context by Cache ID or by name.
struct ContentPart {
  enum class Kind : uint8_t { kText, kContextId, kContextName };
  Kind kind = Kind::kText;
  std::string value;
};

struct ChatMessage {
  std::string role;
  std::vector<ContentPart> content;
};

struct CompilePrefixRequest {
  std::string type = "none";              // none | bos | bos4 | system
  std::optional<std::string> text;        // system
  std::optional<std::string> context_id;  // system
};

struct CreateContextRequest {
  std::optional<std::string> model;
  // Exactly one of the three.
  std::optional<std::string> text;
  std::optional<std::vector<int64_t>> tokens;
  std::optional<std::vector<ChatMessage>> messages;
  std::optional<int64_t> ttl;        // seconds
  std::optional<std::string> pin;    // none | soft | hard
  std::optional<int64_t> pin_until;  // Unix seconds
  std::vector<std::string> tags;
  std::optional<std::string> name;
  std::optional<CompilePrefixRequest> compile_prefix;
  std::optional<std::string> durability;  // one | replicas | object
  std::optional<double> wait;             // seconds, 0..55; default 55
};

struct CreateContextResult {
  enum class Outcome : uint8_t { kCreated, kExisted, kAccepted };  // 201, 200, 202
  Outcome outcome = Outcome::kCreated;
  ContextRecord record;
};

struct ListContextsRequest {
  std::optional<int64_t> limit;  // 1..1000, default 20
  std::optional<std::string> after;
  std::optional<std::string> order;  // asc | desc
  std::optional<std::string> tag, model, state, name;
};

struct PatchContextRequest {
  std::optional<std::optional<int64_t>> ttl;  // inner nullopt: no expiry
  std::optional<std::string> pin;
  std::optional<std::optional<int64_t>> pin_until;
  std::optional<std::vector<std::string>> tags;
  std::optional<std::string> name;
};

class ContextApi {
 public:
  virtual ~ContextApi() = default;
  using CreateDone = std::function<void(absl::StatusOr<CreateContextResult>)>;
  // `done` is called exactly once: when the context is ready, failed, or `wait` is over.
  virtual void Create(const RequestScope& scope, CreateContextRequest request, CreateDone done) = 0;
  virtual absl::StatusOr<ContextRecord> Get(const RequestScope& scope, const std::string& id) = 0;
  virtual absl::StatusOr<ContextPage> List(const RequestScope& scope, const ListContextsRequest& request) = 0;
  virtual absl::StatusOr<ContextRecord> Patch(const RequestScope& scope, const std::string& id,
                                              const PatchContextRequest& request) = 0;
  virtual absl::Status Delete(const RequestScope& scope, const std::string& id) = 0;
  // The nodes whose disks may still hold bytes of it; none: they are gone.
  using EraseDone = std::function<void(absl::StatusOr<std::vector<std::string>> pending)>;
  // As Delete; `done` is called once, when the bytes are gone, after 55 s, or when the deadline is over.
  // Blocks for the deletion only.
  virtual void Erase(const RequestScope& scope, const std::string& id, EraseDone done) = 0;
};

struct LinkingRequest {
  std::optional<std::string> strategy;
  std::optional<int64_t> k;
  std::optional<double> ratio;    // of cacheblend
  std::optional<int64_t> budget;  // of query-guided
  // none | bos | bos4 | system: the head of this very prompt.
  std::optional<std::string> compile_prefix;
  // As in a create, instead of the word.
  std::optional<CompilePrefixRequest> compile_prefix_object;
  std::optional<std::string> on_missing;  // recompile | error
  std::optional<std::string> auto_mode;   // off | background | linked; only off is built
};

struct ChatRequest {
  std::optional<std::string> model;
  std::vector<ChatMessage> messages;
  std::vector<std::string> context_ids;  // put before the content of the last user message
  LinkingRequest linking;
  bool stream = false;
  std::optional<int64_t> max_tokens, max_completion_tokens;
  std::optional<double> temperature, top_p, min_p;
  std::optional<int64_t> top_k, seed, n, top_logprobs;
  std::optional<double> presence_penalty, frequency_penalty, repetition_penalty;
  std::vector<std::string> stop;
  std::vector<int64_t> stop_token_ids;
  std::vector<std::pair<std::string, double>> logit_bias;  // key as sent: a token id in decimal
  bool logprobs = false;
  bool ignore_eos = false;
  std::optional<std::string> user;
};

// What is known before the first row is computed. After it the answer can only fail inside the stream.
struct ChatStart {
  std::string id;       // chatcmpl-…
  int64_t created = 0;  // Unix seconds
  std::string model;
  std::string system_fingerprint;
  std::string linking;                         // legolink-16
  std::optional<uint32_t> planned_recomputed;  // rows; absent where only the run can tell
  uint32_t choices = 1;
};

struct ChatLogprob {
  std::string bytes;  // raw bytes of the token
  float logprob = 0;
  std::vector<std::pair<std::string, float>> top;
};

// Whole characters only. `logprobs` belongs to the tokens whose text ended here.
struct ChatDelta {
  uint32_t choice = 0;
  std::string text;
  std::vector<ChatLogprob> logprobs;
};

struct ChatUsage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t recomputed_tokens = 0;
  uint32_t fresh_tokens = 0;
};

struct ChatTimings {  // milliseconds
  double queue_ms = 0, fetch_ms = 0, decide_ms = 0, link_ms = 0, ttft_ms = 0, decode_ms = 0;
  uint64_t fetched_bytes = 0;
};

class ChatSink {
 public:
  virtual ~ChatSink() = default;
  virtual void OnStart(const ChatStart& start) = 0;
  // Returns false when the reader is gone or too slow: the request is cancelled.
  virtual bool OnDelta(ChatDelta delta) = 0;
  // reason: stop | length.
  virtual void OnFinish(uint32_t choice, const std::string& reason) = 0;
  // The last call, always. Without OnStart before it, it is a refusal.
  virtual void OnDone(const absl::Status& status, const ChatUsage& usage, const ChatTimings& timings) = 0;
};

class ChatApi {
 public:
  virtual ~ChatApi() = default;
  virtual void Complete(const RequestScope& scope, ChatRequest request, std::shared_ptr<ChatSink> sink) = 0;
};

// How far the chat's linked prompt is from the same prompt computed whole. KL in nats, over the rows that
// predict the greedy answer of `full` (at most 32 tokens).
struct ChatQuality {
  std::string linking;
  uint32_t tokens = 0;  // of the answer
  double kl_mean = 0, kl_median = 0, kl_first = 0;
  double top1 = 0;  // share of rows with the same likeliest token
  uint32_t prompt_tokens = 0, cached_tokens = 0, recomputed_tokens = 0;
};

class QualityApi {
 public:
  virtual ~QualityApi() = default;
  // Blocks for the seconds that it takes. `request` is refused where ChatApi would refuse it.
  virtual absl::StatusOr<ChatQuality> Compare(const RequestScope& scope, const ChatRequest& request) = 0;
};

struct ModelInfo {
  std::string id;       // alias
  int64_t created = 0;  // Unix seconds
  uint32_t max_model_len = 0;
  std::string identity;  // hexadecimal
  std::string architecture;
  uint64_t parameters = 0;
  uint32_t vocab = 0;
  std::string compute;  // f32 | bf16
  std::string default_linking;
};

struct TokenPiece {
  TokenId id = 0;
  std::string bytes;
};

class ModelApi {
 public:
  virtual ~ModelApi() = default;
  virtual std::vector<ModelInfo> List() const = 0;
  // Errors: kModelNotFound.
  virtual absl::StatusOr<ModelInfo> Get(const std::string& id) const = 0;
  virtual absl::StatusOr<std::vector<TokenPiece>> Tokenize(const std::optional<std::string>& model,
                                                           const std::string& content) const = 0;
  virtual absl::StatusOr<std::string> Detokenize(const std::optional<std::string>& model,
                                                 const std::vector<int64_t>& tokens) const = 0;
  virtual absl::StatusOr<std::string> ApplyTemplate(const std::optional<std::string>& model,
                                                    const std::vector<ChatMessage>& messages) const = 0;
};

struct HealthReport {
  bool able = false;   // false: 503
  std::string status;  // ok | degraded | loading | draining | stuck
  std::vector<std::string> causes;
};

struct InFlightRequest {
  std::string request_id, kind, phase;
  int64_t age_ms = 0;
};

class NodeApi {
 public:
  virtual ~NodeApi() = default;
  virtual HealthReport Health() const = 0;
  virtual std::vector<InFlightRequest> InFlight() const = 0;
  // The Prometheus text of all series.
  virtual std::string MetricsText() const = 0;
};

struct EffectiveSetting {
  std::string name, value, source;
};

class AdminApi {
 public:
  virtual ~AdminApi() = default;
  // Every setting once, with where its value came from.
  virtual std::vector<EffectiveSetting> Settings() const = 0;
  // trace | debug | info | warn | error; returns the level before. Errors: kInvalidRequest.
  virtual absl::StatusOr<std::string> SetLogLevel(const std::string& level) = 0;
  // New requests are refused with kDraining from now on, running ones go on. Returns at once, with the number
  // of requests in progress. Idempotent.
  virtual uint64_t Drain() = 0;
};

// Everything a door needs. Pointers outlive the door.
struct Apis {
  ContextApi* contexts = nullptr;
  ChatApi* chat = nullptr;
  ModelApi* models = nullptr;
  NodeApi* node = nullptr;
  QualityApi* quality = nullptr;  // of the admin door
};

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_CORE_API_H_
