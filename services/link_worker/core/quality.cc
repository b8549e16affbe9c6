#include "services/link_worker/core/quality.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/status/ending.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/engine/logits_difference.h"
#include "services/model/prompt_tokens.h"

namespace epic {
namespace {

// Collects the tokens of one greedy answer. Read after Wait.
class AnswerSink final : public LinkSink {
 public:
  void OnLinked(const LinkStats&) override {}
  bool OnToken(const GeneratedToken& token) override {
    tokens.push_back(token.token);
    return true;
  }
  void OnFinish(uint32_t, FinishReason reason) override { stopped = reason == FinishReason::kStop; }
  void OnDone(const absl::Status& status) override { ending.Set(status); }

  std::vector<TokenId> tokens;
  bool stopped = false;
  Ending ending;
};

// Collects rows of logits. Read after Wait.
class LogitsSink final : public ScoreSink {
 public:
  void OnLogits(uint32_t, std::span<const float> logits) override {
    rows.emplace_back(logits.begin(), logits.end());
  }
  void OnDone(const absl::Status& status, const LinkStats& linked) override {
    stats = linked;
    ending.Set(status);
  }

  std::vector<std::vector<float>> rows;
  LinkStats stats;
  Ending ending;
};

std::vector<PromptPiece> WithoutObjects(const LinkJob& job) {
  std::vector<PromptPiece> pieces;
  for (const LinkPiece& piece : job.pieces) {
    PromptPiece own;
    own.tokens = piece.tokens;
    pieces.push_back(std::move(own));
  }
  return pieces;
}

ObjectKey KeyOf(const LinkPiece& piece) { return {piece.context, piece.variant}; }

absl::StatusOr<std::shared_ptr<const KvObject>> Fetch(Compiler* compiler, const LinkJob& job,
                                                      const LinkPiece& piece, const CancelToken& cancel) {
  Ending ending;
  std::shared_ptr<const KvObject> object;
  CompileJob compile{job.tenant, KeyOf(piece), piece.tokens, piece.prefix_tokens, piece.sets_state};
  EPIC_ASSIGN_OR_RETURN(const CompileTicket ticket,
                        compiler->Ensure(std::move(compile), [&](absl::StatusOr<CompileOutcome> outcome) {
                          if (outcome.ok()) object = std::move(outcome->object);
                          ending.Set(outcome.status());
                        }));
  if (!ending.WaitUnless(cancel)) compiler->Abandon(ticket);  // then it ends soon, and as cancelled
  EPIC_RETURN_IF_ERROR(ending.Wait());
  return object;
}

absl::StatusOr<std::vector<PromptPiece>> WithObjects(Compiler* compiler, const LinkJob& job,
                                                     const CancelToken& cancel) {
  std::vector<PromptPiece> pieces = WithoutObjects(job);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (job.pieces[i].kind != LinkPiece::Kind::kContext) continue;
    EPIC_ASSIGN_OR_RETURN(pieces[i].object, Fetch(compiler, job, job.pieces[i], cancel));
    pieces[i].prefix_tokens = job.pieces[i].prefix_tokens;
  }
  return pieces;
}

std::vector<StoredObject> ObjectsOf(const LinkJob& job, std::span<const PromptPiece> pieces) {
  std::vector<StoredObject> objects;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].object != nullptr) objects.push_back({KeyOf(job.pieces[i]), pieces[i].object->layout()});
  }
  return objects;
}

}  // namespace

QualityReport CompareLogits(const std::vector<std::vector<float>>& full,
                            const std::vector<std::vector<float>>& linked) {
  const LogitsDifference difference = CompareRuns(full, linked);
  QualityReport report;
  report.tokens = static_cast<uint32_t>(difference.kl.size());
  report.kl_mean = difference.KlMean();
  report.kl_median = difference.KlMedian();
  report.kl_first = difference.kl.front();
  report.top1 = difference.Top1();
  return report;
}

absl::StatusOr<QualityReport> EngineQualityProbe::Compare(const LinkJob& job, const CancelToken& cancel) {
  if (busy_.exchange(true)) {
    return RetryLater(ErrorCode::kQueueFull,
                      "another comparison of quality is running; try again when it is over", 5000);
  }
  absl::StatusOr<QualityReport> report = CompareAlone(job, cancel);
  busy_.store(false);
  return report;
}

absl::StatusOr<QualityReport> EngineQualityProbe::CompareAlone(const LinkJob& job,
                                                               const CancelToken& cancel) {
  Engine& engine = *model_->engine;
  const std::vector<TokenId> ends = EndTokens(*model_->tokenizer);
  LinkRequest greedy;
  greedy.tenant = job.tenant;
  greedy.pieces = WithoutObjects(job);
  greedy.strategy = {.kind = StrategyKind::kFull};
  greedy.sampling.temperature = 0;
  greedy.max_tokens = std::clamp(job.max_tokens, 1u, kMaxTokens);
  greedy.stop_tokens = ends;
  greedy.cancel = cancel;
  const auto answer = std::make_shared<AnswerSink>();
  EPIC_RETURN_IF_ERROR(engine.SubmitLink(std::move(greedy), answer));
  EPIC_RETURN_IF_ERROR(answer->ending.Wait());
  // An answer that ended by itself is scored on its end too.
  if (answer->stopped && !ends.empty()) answer->tokens.push_back(ends.front());
  if (answer->tokens.empty()) return absl::InternalError("the model gave no answer to compare");

  const auto score = [&](std::vector<PromptPiece> pieces, const LinkStrategy& strategy,
                         const std::shared_ptr<LogitsSink>& sink) -> absl::Status {
    EPIC_RETURN_IF_ERROR(engine.SubmitScore({.tenant = job.tenant,
                                             .pieces = std::move(pieces),
                                             .strategy = strategy,
                                             .continuation = answer->tokens,
                                             .cancel = cancel},
                                            sink));
    return sink->ending.Wait();
  };
  // `prefix` is exact as `full` is, and reads the rows that the answer's run has just computed.
  const auto full = std::make_shared<LogitsSink>();
  EPIC_RETURN_IF_ERROR(score(WithoutObjects(job), {.kind = StrategyKind::kPrefix}, full));
  EPIC_ASSIGN_OR_RETURN(std::vector<PromptPiece> pieces, WithObjects(compiler_, job, cancel));
  const std::vector<StoredObject> objects = ObjectsOf(job, pieces);
  const auto linked = std::make_shared<LogitsSink>();
  absl::Status scored = score(std::move(pieces), job.strategy, linked);
  if (UnsoundObjects::MayBeBehind(scored)) scored = unsound_.DropBehind(scored, job.tenant, objects);
  EPIC_RETURN_IF_ERROR(scored);
  if (full->rows.size() != linked->rows.size() || full->rows.empty()) {
    return absl::InternalError("the two sides were scored on different rows");
  }
  QualityReport report = CompareLogits(full->rows, linked->rows);
  report.prompt_tokens = linked->stats.prompt_tokens;
  report.recomputed_tokens = linked->stats.recomputed_tokens;
  report.cached_tokens = linked->stats.cached_tokens;
  return report;
}

}  // namespace epic
