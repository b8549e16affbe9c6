#include "loadgen/quality/quality_run.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "loadgen/answers/squad_metric.h"
#include "loadgen/quality/engine_calls.h"
#include "services/engine/logits_difference.h"
#include "services/model/prompt_tokens.h"

namespace epic::loadgen {
namespace {

// Each holds its rows of logits (32 times the vocabulary) until it is compared.
constexpr size_t kAtOnce = 4;
// Whose rows of the prefix cache the answer of `full` and its score share. Compared strategies share
// nobody's: `prefix` would find its whole prompt there.
constexpr char kReferenceCache[] = "reference";
constexpr char kNoCache[] = "";

std::vector<uint32_t> InOrder(size_t count) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

}  // namespace

std::string WhyUnusable(const Workbench& bench, const Question& question, const ChatPrompt& prompt,
                        uint32_t max_tokens) {
  if (!question.unusable.empty()) return question.unusable;
  const uint32_t window = bench.model->config().context_length;
  if (uint64_t{prompt.tokens()} + max_tokens <= window) return {};
  return "the prompt has " + std::to_string(prompt.tokens()) + " tokens, and with an answer of " +
         std::to_string(max_tokens) + " it passes the model's " + std::to_string(window);
}

absl::StatusOr<PromptObjects> ObjectsFor(const Workbench& bench, ObjectCache* objects,
                                         const ChatPrompt& prompt, CompilePrefixKind prefix) {
  PromptObjects found;
  found.prefix_tokens = CompilePrefixTokens(*bench.tokenizer, prefix, prompt.head);
  if (prefix != CompilePrefixKind::kNone && found.prefix_tokens.empty()) {
    return Error(ErrorCode::kUnsupportedParameter,
                 "this model has no token for the compile prefix of a strategy");
  }
  std::vector<ObjectWish> wishes;
  if (!prompt.head.empty()) wishes.push_back({prompt.head, {}});
  for (const std::vector<TokenId>& chunk : prompt.chunks) wishes.push_back({chunk, found.prefix_tokens});
  EPIC_ASSIGN_OR_RETURN(found.chunks, objects->Get(wishes));
  if (!prompt.head.empty()) {
    found.head = std::move(found.chunks.front());
    found.chunks.erase(found.chunks.begin());
  }
  return found;
}

absl::StatusOr<std::vector<uint64_t>> QualityRun::Run(
    Dataset* dataset, const std::function<void(const QualityProgress&)>& progress) {
  std::vector<uint64_t> asked;
  const uint64_t end = options_->skip + options_->questions;
  while (true) {
    EPIC_ASSIGN_OR_RETURN(const std::optional<Question> question, dataset->Next());
    if (!question.has_value() || question->index >= end) break;
    if (question->index < options_->skip) continue;
    EPIC_ASSIGN_OR_RETURN(const uint32_t tokens, Ask(*question));
    asked.push_back(question->index);
    progress({asked.size(), options_->questions, tokens});
    if (question->index + 1 == end) break;
  }
  return asked;
}

std::vector<const NamedStrategy*> QualityRun::Missing(uint64_t question) const {
  std::vector<const NamedStrategy*> missing;
  for (const NamedStrategy& strategy : options_->strategies) {
    if (strategy.name != kReference && log_->Find(question, strategy.name) == nullptr)
      missing.push_back(&strategy);
  }
  return missing;
}

// The tokens of the prompt.
absl::StatusOr<uint32_t> QualityRun::Ask(const Question& question) {
  if (log_->FindSkipped(question.index) != nullptr) return 0u;
  const std::vector<const NamedStrategy*> missing = Missing(question.index);
  const PromptResult* const known = log_->Find(question.index, kReference);
  if (known != nullptr && missing.empty()) return known->prompt_tokens;
  ChatPrompt prompt;
  if (question.unusable.empty()) {
    EPIC_ASSIGN_OR_RETURN(prompt, MakePrompt(*bench_->tokenizer, *bench_->chat_template, question));
  }
  std::string unusable = WhyUnusable(*bench_, question, prompt, options_->max_tokens);
  if (!unusable.empty()) {
    EPIC_RETURN_IF_ERROR(log_->AddSkipped(question.index, std::move(unusable)));
    return prompt.tokens();
  }
  EPIC_ASSIGN_OR_RETURN(const Reference reference, ComputeReference(question, prompt));
  const std::span<const NamedStrategy* const> all(missing);
  for (size_t first = 0; first < all.size(); first += kAtOnce) {
    EPIC_RETURN_IF_ERROR(
        Compare(question, prompt, reference, all.subspan(first, std::min(kAtOnce, all.size() - first))));
  }
  return prompt.tokens();
}

PromptResult QualityRun::ResultOf(const Question& question, const std::string& strategy,
                                  const std::vector<TokenId>& answer, const LinkStats& stats) const {
  PromptResult result;
  result.question = question.index;
  result.strategy = strategy;
  result.prompt_tokens = stats.prompt_tokens;
  result.cached = stats.cached_tokens;
  result.recomputed = stats.recomputed_tokens;
  result.fresh = stats.fresh_tokens;
  result.answer_tokens = answer;
  result.answer = bench_->tokenizer->Decode(answer);
  const AnswerScore score = ScoreAnswer(result.answer, question.answers);
  result.f1 = score.f1;
  result.exact_match = score.exact_match;
  result.contained = score.contained;
  return result;
}

absl::StatusOr<QualityRun::Reference> QualityRun::ComputeReference(const Question& question,
                                                                   const ChatPrompt& prompt) {
  EPIC_ASSIGN_OR_RETURN(const PromptObjects objects,
                        ObjectsFor(*bench_, objects_, prompt, CompilePrefixKind::kNone));
  const std::vector<PromptPiece> pieces = PiecesOf(prompt, InOrder(prompt.chunks.size()), objects);
  AnswerRequest request;
  request.cache = kReferenceCache;
  request.pieces = pieces;
  request.strategy.kind = StrategyKind::kFull;
  request.max_tokens = options_->max_tokens;
  request.stop_tokens = bench_->end_tokens;
  EPIC_ASSIGN_OR_RETURN(const std::shared_ptr<PendingAnswer> pending,
                        BeginAnswer(bench_->engine.get(), bench_->clock, std::move(request)));
  EPIC_ASSIGN_OR_RETURN(const Answer answer, pending->Wait());
  Reference reference;
  reference.continuation = answer.tokens;
  // Which token ended it does not matter: the last one of a continuation is only predicted, never read.
  if (answer.stopped && !bench_->end_tokens.empty()) {
    reference.continuation.push_back(bench_->end_tokens.front());
  }
  if (reference.continuation.empty()) return absl::InternalError("the model gave no answer to compare with");
  // `prefix` is exact as `full` is, and reads the rows that the answer has just left in the cache.
  LinkStrategy exact;
  exact.kind = StrategyKind::kPrefix;
  EPIC_ASSIGN_OR_RETURN(
      const std::shared_ptr<PendingScore> score,
      BeginScore(bench_->engine.get(), kReferenceCache, pieces, exact, reference.continuation));
  EPIC_ASSIGN_OR_RETURN(Scored scored, score->Wait());
  reference.logits = std::move(scored.logits);
  PromptResult result = ResultOf(question, kReference, answer.tokens, answer.stats);
  result.kl.assign(reference.continuation.size(), 0.0);
  result.same_likeliest = static_cast<uint32_t>(reference.continuation.size());
  const PromptResult* const known = log_->Find(question.index, kReference);
  if (known == nullptr) {
    EPIC_RETURN_IF_ERROR(log_->Add(std::move(result)));
  } else if (known->answer_tokens != result.answer_tokens) {
    return absl::FailedPreconditionError("question " + std::to_string(question.index) +
                                         " has another exact answer than in the results file: the arithmetic "
                                         "has changed since, so start a new file");
  }
  return reference;
}

absl::Status QualityRun::Compare(const Question& question, const ChatPrompt& prompt,
                                 const Reference& reference,
                                 std::span<const NamedStrategy* const> strategies) {
  struct Running {
    const NamedStrategy* strategy;
    std::shared_ptr<PendingScore> score;
    std::shared_ptr<PendingAnswer> answer;
  };
  std::vector<Running> running;
  // Objects first: then scores and answers share steps with each other and not with compiles.
  std::vector<std::vector<PromptPiece>> pieces;
  for (const NamedStrategy* const strategy : strategies) {
    EPIC_ASSIGN_OR_RETURN(const PromptObjects objects,
                          ObjectsFor(*bench_, objects_, prompt, strategy->link.compile_prefix));
    pieces.push_back(PiecesOf(prompt, InOrder(prompt.chunks.size()), objects));
  }
  for (size_t i = 0; i < strategies.size(); ++i) {
    Running run{strategies[i], nullptr, nullptr};
    const LinkStrategy& link = strategies[i]->link;
    EPIC_ASSIGN_OR_RETURN(
        run.score, BeginScore(bench_->engine.get(), kNoCache, pieces[i], link, reference.continuation));
    if (options_->answers) {
      AnswerRequest request;
      request.cache = kNoCache;
      request.pieces = std::move(pieces[i]);
      request.strategy = link;
      request.max_tokens = options_->max_tokens;
      request.stop_tokens = bench_->end_tokens;
      EPIC_ASSIGN_OR_RETURN(run.answer, BeginAnswer(bench_->engine.get(), bench_->clock, std::move(request)));
    }
    running.push_back(std::move(run));
  }
  for (const Running& run : running) {
    EPIC_ASSIGN_OR_RETURN(const Scored scored, run.score->Wait());
    Answer answer;
    if (run.answer != nullptr) {
      EPIC_ASSIGN_OR_RETURN(answer, run.answer->Wait());
    }
    if (scored.logits.size() != reference.logits.size()) {
      return absl::InternalError("the two sides of a comparison were scored on different rows");
    }
    const LogitsDifference difference = CompareRuns(reference.logits, scored.logits);
    PromptResult result = ResultOf(question, run.strategy->name, answer.tokens, scored.stats);
    result.kl = difference.kl;
    result.same_likeliest = difference.same_likeliest;
    EPIC_RETURN_IF_ERROR(log_->Add(std::move(result)));
  }
  return absl::OkStatus();
}

}  // namespace epic::loadgen
