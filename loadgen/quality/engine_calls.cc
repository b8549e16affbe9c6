#include "loadgen/quality/engine_calls.h"

#include <utility>

#include "common/status/ending.h"
#include "common/status/status_macros.h"

namespace epic::loadgen {
namespace {

// The engine's thread writes until OnDone, the waiter reads after it.
class AnswerSink final : public LinkSink, public PendingAnswer {
 public:
  explicit AnswerSink(const Clock* clock) : clock_(clock), begin_ns_(clock->SteadyNs()) {}

  void OnLinked(const LinkStats& stats) override { answer_.stats = stats; }
  bool OnToken(const GeneratedToken& token) override {
    NoteFirst();
    answer_.tokens.push_back(token.token);
    return true;
  }
  void OnFinish(uint32_t, FinishReason reason) override {
    NoteFirst();
    answer_.stopped = reason == FinishReason::kStop;
  }
  void OnDone(const absl::Status& status) override { ending_.Set(status); }

  absl::StatusOr<Answer> Wait() override {
    EPIC_RETURN_IF_ERROR(ending_.Wait());
    answer_.ttft_seconds = static_cast<double>(first_ns_ - begin_ns_) * 1e-9;
    return std::move(answer_);
  }

 private:
  void NoteFirst() {
    if (first_ns_ == 0) first_ns_ = clock_->SteadyNs();
  }

  const Clock* const clock_;
  const int64_t begin_ns_;
  int64_t first_ns_ = 0;
  Answer answer_;
  Ending ending_;
};

class LogitsSink final : public ScoreSink, public PendingScore {
 public:
  void OnLogits(uint32_t, std::span<const float> logits) override {
    scored_.logits.emplace_back(logits.begin(), logits.end());
  }
  void OnDone(const absl::Status& status, const LinkStats& stats) override {
    scored_.stats = stats;
    ending_.Set(status);
  }

  absl::StatusOr<Scored> Wait() override {
    EPIC_RETURN_IF_ERROR(ending_.Wait());
    return std::move(scored_);
  }

 private:
  Scored scored_;
  Ending ending_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<PendingAnswer>> BeginAnswer(Engine* engine, const Clock* clock,
                                                           AnswerRequest request) {
  LinkRequest link;
  link.tenant = std::move(request.cache);
  link.pieces = std::move(request.pieces);
  link.strategy = request.strategy;
  link.sampling.temperature = 0;
  link.max_tokens = request.max_tokens;
  link.stop_tokens = std::move(request.stop_tokens);
  const auto sink = std::make_shared<AnswerSink>(clock);
  EPIC_RETURN_IF_ERROR(engine->SubmitLink(std::move(link), sink));
  return std::shared_ptr<PendingAnswer>(sink);
}

absl::StatusOr<std::shared_ptr<PendingScore>> BeginScore(Engine* engine, const std::string& cache,
                                                         std::vector<PromptPiece> pieces,
                                                         const LinkStrategy& strategy,
                                                         std::vector<TokenId> continuation) {
  ScoreRequest score;
  score.tenant = cache;
  score.pieces = std::move(pieces);
  score.strategy = strategy;
  score.continuation = std::move(continuation);
  const auto sink = std::make_shared<LogitsSink>();
  EPIC_RETURN_IF_ERROR(engine->SubmitScore(std::move(score), sink));
  return std::shared_ptr<PendingScore>(sink);
}

}  // namespace epic::loadgen
