#include "services/router/core/chat_service.h"

#include <algorithm>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/cancel.h"
#include "common/base/digest.h"
#include "common/status/context_place.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/router/core/chat_job.h"

namespace epic {
namespace {

double Ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }
double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

std::string AnswerId(uint64_t random) {
  std::string bytes;
  AppendLittle(&bytes, random);
  return "chatcmpl-" + Sha256Of(AsBytes(bytes)).Hex().substr(0, 24);
}

}  // namespace

// One request. Kept alive by whichever holds it: the executor's queue, the registry, or the link call.
class ChatService::ChatTask final : public LinkEvents, public std::enable_shared_from_this<ChatTask> {
 public:
  ChatTask(std::shared_ptr<Shared> shared, const RequestScope& scope, ChatRequest request,
           std::shared_ptr<ChatSink> sink)
      : shared_(std::move(shared)), scope_(scope), request_(std::move(request)), sink_(std::move(sink)) {}

  void Start() {
    const absl::StatusOr<RequestRegistry::Id> id = registry().Add(
        scope_, "chat", [self = shared_from_this()](const absl::Status& why) { self->Interrupt(why); });
    if (!id.ok()) return sink_->OnDone(id.status(), {}, {});
    registry_id_ = *id;
    if (shared_->parts.executor->TrySubmit([self = shared_from_this()] { self->Run(); })) return;
    Refuse(RetryLater(ErrorCode::kQueueFull, "too many requests wait: try again later", 1000));
  }

  // --- LinkEvents
  void OnAdmitted(std::optional<uint32_t> planned_recomputed) override {
    {
      MutexLock lock(&mu_);
      admitted_ = true;
    }
    registry().SetPhase(registry_id_, "answer");
    start_.planned_recomputed = planned_recomputed;
    sink_->OnStart(start_);
  }
  bool OnDelta(LinkDelta delta) override {
    if (scope_.cancel.cancelled()) return false;  // sooner than the registry's next look
    ChatDelta out{.choice = delta.choice, .text = std::move(delta.text), .logprobs = {}};
    for (LinkLogprob& logprob : delta.logprobs) {
      out.logprobs.push_back({std::move(logprob.bytes), logprob.logprob, std::move(logprob.top)});
    }
    return sink_->OnDelta(std::move(out));
  }
  void OnFinish(uint32_t choice, FinishReason reason) override {
    if (reason == FinishReason::kStop) sink_->OnFinish(choice, "stop");
    if (reason == FinishReason::kLength) sink_->OnFinish(choice, "length");
  }
  void OnDone(const absl::Status& status, const LinkUsage& usage, const LinkTimings& timings) override {
    absl::Status end = status;
    {
      MutexLock lock(&mu_);
      if (!end.ok() && !interrupted_.ok()) end = interrupted_;
      if (!end.ok() && CodeOf(end) == ErrorCode::kDeadline && !admitted_ && waits_for_compile_) {
        end = AtPlace(RetryLater(ErrorCode::kContextCompiling,
                                 "a context of the prompt is still being compiled: try again later", 1000),
                      ParamOf(status));
      }
    }
    const int64_t now_ns = shared_->parts.clock->SteadyNs();
    shared_->Observe(end, usage, timings, start_.choices, now_ns - scope_.received_steady_ns);
    const ChatUsage used{.prompt_tokens = usage.prompt_tokens,
                         .completion_tokens = usage.completion_tokens,
                         .cached_tokens = usage.cached_tokens,
                         .recomputed_tokens = usage.recomputed_tokens,
                         .fresh_tokens = usage.fresh_tokens};
    const ChatTimings took{.queue_ms = Ms(waited_ns_ + timings.queue_ns),
                           .fetch_ms = Ms(timings.fetch_ns),
                           .decide_ms = Ms(timings.decide_ns),
                           .link_ms = Ms(timings.link_ns),
                           .ttft_ms = Ms(timings.ttft_ns),
                           .decode_ms = Ms(timings.decode_ns),
                           .fetched_bytes = timings.fetched_bytes};
    Leave();
    sink_->OnDone(end, used, took);
  }

 private:
  RequestRegistry& registry() { return *shared_->parts.registry; }

  // On the executor.
  void Run() {
    waited_ns_ = shared_->parts.clock->SteadyNs() - scope_.received_steady_ns;
    if (const absl::Status why = InterruptedBy(); !why.ok()) return Refuse(why);
    registry().SetPhase(registry_id_, "prompt");
    absl::StatusOr<LinkJob> job = Prepare();
    if (!job.ok()) return Refuse(job.status());
    if (const absl::Status why = InterruptedBy(); !why.ok()) return Refuse(why);
    registry().SetPhase(registry_id_, "fetch");
    const std::shared_ptr<LinkCall> call = shared_->parts.linker->Link(*std::move(job), shared_from_this());
    bool cancel = false;
    {
      MutexLock lock(&mu_);
      if (over_) return;
      call_ = call;
      cancel = !interrupted_.ok();
    }
    if (cancel) call->Cancel();
  }

  absl::StatusOr<LinkJob> Prepare() {
    const RouterParts& parts = shared_->parts;
    EPIC_ASSIGN_OR_RETURN(ChatJob chat, MakeChatJob(parts, scope_.tenant, request_));
    {
      MutexLock lock(&mu_);
      waits_for_compile_ = chat.waits_for_compile;
    }
    if (!chat.has_seed) chat.link.sampling.seed = shared_->NextRandom();
    chat.link.received_steady_ns = scope_.received_steady_ns;
    chat.link.cancel = cancel_.token();
    start_ = {.id = AnswerId(shared_->NextRandom()),
              .created = parts.clock->UnixMs() / 1000,
              .model = parts.model->alias,
              .system_fingerprint = Fingerprint(parts, chat.link.strategy, chat.named_prefix),
              .linking = chat.link.strategy.Name(),
              .planned_recomputed = std::nullopt,
              .choices = chat.link.choices};
    return std::move(chat.link);
  }

  void Interrupt(const absl::Status& why) {
    std::shared_ptr<LinkCall> call;
    {
      MutexLock lock(&mu_);
      if (over_) return;
      interrupted_ = why;
      call = call_;
    }
    cancel_.Cancel();
    if (call != nullptr) call->Cancel();
  }

  absl::Status InterruptedBy() {
    MutexLock lock(&mu_);
    return interrupted_;
  }

  void Leave() {
    {
      MutexLock lock(&mu_);
      over_ = true;
      call_.reset();
    }
    registry().Remove(registry_id_);
  }

  void Refuse(const absl::Status& why) {
    Leave();
    sink_->OnDone(why, {}, {});
  }

  const std::shared_ptr<Shared> shared_;
  const RequestScope scope_;
  const ChatRequest request_;
  const std::shared_ptr<ChatSink> sink_;
  RequestRegistry::Id registry_id_ = 0;  // written by Start before anything else runs
  // Written on the executor before the linker knows the task.
  ChatStart start_;
  int64_t waited_ns_ = 0;
  CancelSource cancel_;  // synchronises itself; set after interrupted_

  Mutex mu_;
  absl::Status interrupted_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<LinkCall> call_ ABSL_GUARDED_BY(mu_);
  bool waits_for_compile_ ABSL_GUARDED_BY(mu_) = false;
  bool admitted_ ABSL_GUARDED_BY(mu_) = false;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
};

ChatService::Shared::Shared(const RouterParts& given, uint64_t seed) : parts(given), rng(seed) {
  if (parts.metrics == nullptr) return;
  Metrics& m = *parts.metrics;
  series.emplace(Series{
      .duration = m.GetHistogram(MetricId::kRequestDurationSeconds),
      .ttft = m.GetHistogram(MetricId::kTimeToFirstTokenSeconds),
      .tpot = m.GetHistogram(MetricId::kTimePerOutputTokenSeconds),
      .queue = m.GetHistogram(MetricId::kPhaseSeconds, {"queue"}),
      .fetch = m.GetHistogram(MetricId::kPhaseSeconds, {"fetch"}),
      .decide = m.GetHistogram(MetricId::kPhaseSeconds, {"decide"}),
      .link = m.GetHistogram(MetricId::kPhaseSeconds, {"link"}),
      .decode = m.GetHistogram(MetricId::kPhaseSeconds, {"decode"}),
      .cached = m.GetCounter(MetricId::kPromptTokensTotal, {"cached"}),
      .recomputed = m.GetCounter(MetricId::kPromptTokensTotal, {"recomputed"}),
      .fresh = m.GetCounter(MetricId::kPromptTokensTotal, {"fresh"}),
      .generated = m.GetCounter(MetricId::kGenerationTokensTotal),
  });
}

uint64_t ChatService::Shared::NextRandom() {
  MutexLock lock(&mu);
  return rng.Next();
}

void ChatService::Shared::Observe(const absl::Status& status, const LinkUsage& usage,
                                  const LinkTimings& timings, uint32_t choices, int64_t took_ns) const {
  if (!series.has_value()) return;
  // Tokens are counted by what was done, also where the request then failed.
  series->cached.Add(usage.cached_tokens);
  series->recomputed.Add(usage.recomputed_tokens);
  series->fresh.Add(usage.fresh_tokens);
  series->generated.Add(usage.completion_tokens);
  if (!status.ok()) return;
  series->duration.Observe(Seconds(took_ns));
  series->ttft.Observe(Seconds(timings.ttft_ns));
  const uint32_t each = usage.completion_tokens / std::max<uint32_t>(choices, 1);
  if (each >= 2) series->tpot.Observe(Seconds(timings.decode_ns) / (each - 1));
  series->queue.Observe(Seconds(timings.queue_ns));
  series->fetch.Observe(Seconds(timings.fetch_ns));
  series->decide.Observe(Seconds(timings.decide_ns));
  series->link.Observe(Seconds(timings.link_ns));
  series->decode.Observe(Seconds(timings.decode_ns));
}

ChatService::ChatService(const RouterParts& parts, uint64_t seed)
    : shared_(std::make_shared<Shared>(parts, seed)) {}

void ChatService::Complete(const RequestScope& scope, ChatRequest request, std::shared_ptr<ChatSink> sink) {
  std::make_shared<ChatTask>(shared_, scope, std::move(request), std::move(sink))->Start();
}

std::string ChatService::Fingerprint(const RouterParts& parts, const LinkStrategy& strategy,
                                     const Digest& named_prefix) {
  std::string fields;
  AppendField(&fields, "epic.fingerprint.v1");
  AppendField(&fields, parts.model->identity.view());
  AppendField(&fields, parts.build_version);
  AppendLittle(&fields, static_cast<uint8_t>(parts.model->engine->compute()));
  AppendLittle(&fields, static_cast<uint8_t>(parts.model->engine->kv_dtype()));
  AppendField(&fields, strategy.Name());
  AppendLittle(&fields, static_cast<uint8_t>(strategy.compile_prefix));
  AppendField(&fields, named_prefix.view());
  return "fp_" + Sha256Of(AsBytes(fields)).Hex().substr(0, 16);
}

}  // namespace epic
