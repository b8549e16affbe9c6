#include "services/link_worker/core/link_call.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/check.h"
#include "common/status/context_place.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/engine/link_policy.h"

namespace epic {

// What the engine holds of the call.
class LinkCallImpl::EngineSink final : public LinkSink {
 public:
  explicit EngineSink(std::shared_ptr<LinkCallImpl> call) : call_(std::move(call)) {}
  void OnLinked(const LinkStats& stats) override { call_->OnLinked(stats); }
  bool OnToken(const GeneratedToken& token) override { return call_->OnToken(token); }
  void OnFinish(uint32_t choice, FinishReason reason) override { call_->OnFinish(choice, reason); }
  void OnObjectLost(size_t piece) override { call_->OnObjectLost(piece); }
  void OnDone(const absl::Status& status) override { call_->OnEngineDone(status); }

 private:
  const std::shared_ptr<LinkCallImpl> call_;
};

LinkCallImpl::LinkCallImpl(std::shared_ptr<LinkService::Shared> shared, LinkJob job,
                           std::shared_ptr<LinkEvents> events)
    : shared_(std::move(shared)), events_(std::move(events)), job_(std::move(job)) {
  ++shared_->calls;
  ++shared_->active;
}

LinkCallImpl::~LinkCallImpl() = default;

void LinkCallImpl::Start() {
  EPIC_CHECK(!job_.pieces.empty() && job_.choices > 0);
  fetch_started_ns_ = shared_->clock->SteadyNs();
  const bool has_context = std::any_of(job_.pieces.begin(), job_.pieces.end(), [](const LinkPiece& piece) {
    return piece.kind == LinkPiece::Kind::kContext;
  });
  reads_objects_ = has_context && LinkPolicy::Make(job_.strategy)->reads_objects();
  {
    MutexLock lock(&mu_);
    pieces_.resize(job_.pieces.size());
  }
  if (reads_objects_) {
    if (const absl::Status status = LeaseAll(); !status.ok()) return EndFrom(Phase::kFetch, status);
  }
  PieceDone();
}

absl::Status LinkCallImpl::LeaseAll() {
  std::map<ObjectKey, size_t> first_of;
  for (size_t i = 0; i < job_.pieces.size(); ++i) {
    const LinkPiece& piece = job_.pieces[i];
    if (piece.kind == LinkPiece::Kind::kText) continue;
    if (EndIfCancelled()) return absl::CancelledError("the request was cancelled");
    ObjectKey key{piece.context, piece.variant};
    if (piece.kind == LinkPiece::Kind::kHead) {
      if (piece.tokens.size() > shared_->heads.limits().max_tokens) continue;
      const absl::StatusOr<CacheId> head = shared_->heads.Use(job_.tenant, piece.tokens);
      if (!head.ok()) continue;  // own text then
      key = {*head, VariantOf(*shared_->model->engine, CompilePrefixKind::kNone, {})};
    }
    const auto [found, is_first] = first_of.emplace(key, i);
    {
      MutexLock lock(&mu_);
      if (phase_ != Phase::kFetch) return absl::CancelledError("the request was cancelled");
      pieces_[i].key = key;
      if (!is_first) pieces_[i].same = found->second;
    }
    if (!is_first) continue;
    EPIC_ASSIGN_OR_RETURN(const bool leased, Lease(i));
    if (!leased) EPIC_RETURN_IF_ERROR(CompileMissing(i));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> LinkCallImpl::Lease(size_t index) {
  ObjectKey key;
  {
    MutexLock lock(&mu_);
    if (phase_ != Phase::kFetch) return absl::CancelledError("the request was cancelled");
    key = pieces_[index].key;
  }
  const LinkPiece& piece = job_.pieces[index];
  const KvLayout layout = shared_->model->engine->LayoutOf(static_cast<uint32_t>(piece.tokens.size()),
                                                           static_cast<uint32_t>(piece.prefix_tokens.size()));
  EPIC_ASSIGN_OR_RETURN(AcquireResult result, shared_->store->AcquireStreaming(job_.tenant, key, layout));
  shared_->store->Touch(job_.tenant, key.id);
  shared_->CountLookup(result);
  if (result.object == nullptr) return false;
  MutexLock lock(&mu_);
  if (phase_ == Phase::kFetch) pieces_[index].object = std::move(result.object);
  return true;
}

absl::Status LinkCallImpl::CompileMissing(size_t index) {
  const LinkPiece& piece = job_.pieces[index];
  const bool is_context = piece.kind == LinkPiece::Kind::kContext;
  CompileJob job;
  if (is_context) {
    ++shared_->objects_missing;
    if (piece.on_missing == OnMissing::kError) {
      return Error(ErrorCode::kContextObjectMissing,
                   "the compiled object of " + piece.context.text() +
                       " is not stored: send on_missing \"recompile\", or create the context again",
                   piece.place);
    }
  }
  {
    MutexLock lock(&mu_);
    if (phase_ != Phase::kFetch) return absl::CancelledError("the request was cancelled");
    ++waiting_;
    pieces_[index].compiling = true;
    job.key = pieces_[index].key;
  }
  job.tenant = job_.tenant;
  job.tokens = piece.tokens;
  job.prefix_tokens = piece.prefix_tokens;
  job.sets_state = piece.sets_state || !is_context;
  absl::StatusOr<CompileTicket> ticket = shared_->compiler->Ensure(
      std::move(job), [self = shared_from_this(), index](absl::StatusOr<CompileOutcome> outcome) {
        self->OnCompiled(index, std::move(outcome));
      });
  if (!ticket.ok()) {
    if (is_context) return ticket.status();
    OnCompiled(index, ticket.status());
    return absl::OkStatus();
  }
  {
    MutexLock lock(&mu_);
    if (phase_ == Phase::kFetch) {
      tickets_.insert(*ticket);
      return absl::OkStatus();
    }
  }
  shared_->compiler->Abandon(*ticket);
  return absl::OkStatus();
}

void LinkCallImpl::OnCompiled(size_t index, absl::StatusOr<CompileOutcome> outcome) {
  const LinkPiece& piece = job_.pieces[index];
  const bool is_context = piece.kind == LinkPiece::Kind::kContext;
  if (!outcome.ok() && is_context) return EndFrom(Phase::kFetch, AtPlace(outcome.status(), piece.place));
  CacheId lost_head;
  {
    MutexLock lock(&mu_);
    if (phase_ != Phase::kFetch) return;
    pieces_[index].compiling = false;
    if (outcome.ok()) {
      pieces_[index].object = std::move(outcome->object);
      pieces_[index].computed_now = outcome->computed_for_caller;
    } else {
      lost_head = pieces_[index].key.id;  // the head becomes own text
    }
  }
  if (!lost_head.empty()) shared_->heads.Forget(job_.tenant, lost_head);
  PieceDone();
}

void LinkCallImpl::ReplaceLost(size_t index) {
  const LinkPiece& piece = job_.pieces[index];
  const bool may_recompile =
      piece.kind != LinkPiece::Kind::kContext || piece.on_missing == OnMissing::kRecompile;
  bool was_lost = false;
  {
    MutexLock lock(&mu_);
    if (phase_ != Phase::kFetch) return;
    PieceState& state = pieces_[index];
    state.object = nullptr;
    was_lost = std::exchange(state.was_lost, true);
    // Whatever brings it fails again and again: its rows are computed for this call.
    state.as_text = was_lost && may_recompile;
  }
  if (!was_lost || !may_recompile) {
    absl::StatusOr<bool> leased = was_lost ? absl::StatusOr<bool>(false) : Lease(index);
    absl::Status status = leased.status();
    if (leased.ok() && !*leased) status = CompileMissing(index);
    if (!status.ok()) return EndFrom(Phase::kFetch, status);
  }
  PieceDone();
}

void LinkCallImpl::PieceDone() {
  {
    MutexLock lock(&mu_);
    if (phase_ != Phase::kFetch || --waiting_ > 0) return;
  }
  Submit();
}

bool LinkCallImpl::EndIfCancelled() {
  if (!job_.cancel.cancelled()) return false;
  Cancel();
  return true;
}

std::string LinkCallImpl::PlaceWaitedFor() {
  MutexLock lock(&mu_);
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].compiling && job_.pieces[i].kind == LinkPiece::Kind::kContext) return job_.pieces[i].place;
  }
  return {};
}

void LinkCallImpl::Submit() {
  if (EndIfCancelled()) return;
  {
    MutexLock lock(&mu_);
    if (phase_ != Phase::kFetch) return;
    phase_ = Phase::kEngine;
    tickets_.clear();
  }
  timings_.fetch_ns = shared_->clock->SteadyNs() - fetch_started_ns_;
  LinkRequest request = MakeRequest();
  choices_.clear();
  choices_.reserve(job_.choices);
  for (uint32_t i = 0; i < job_.choices; ++i) choices_.emplace_back(job_.stop);
  const absl::Status status = shared_->model->engine->SubmitLink(
      std::move(request), std::make_shared<EngineSink>(shared_from_this()));
  if (!status.ok()) return EndFrom(Phase::kEngine, status);
  Admit();
}

LinkRequest LinkCallImpl::MakeRequest() {
  LinkRequest request;
  request.tenant = job_.tenant;
  request.strategy = job_.strategy;
  request.sampling = job_.sampling;
  request.choices = job_.choices;
  request.max_tokens = job_.max_tokens;
  request.stop_tokens = job_.stop_tokens;
  if (!job_.ignore_eos) {
    const std::vector<TokenId>& ends = shared_->end_tokens;
    request.stop_tokens.insert(request.stop_tokens.end(), ends.begin(), ends.end());
  }
  request.cancel = cancel_.token();
  std::vector<PieceState> states;
  {
    MutexLock lock(&mu_);
    states = pieces_;
  }
  accounts_.clear();
  read_.clear();
  timings_.fetched_bytes = 0;
  timings_.recompiled_objects = 0;
  for (size_t i = 0; i < job_.pieces.size(); ++i) {
    const LinkPiece& piece = job_.pieces[i];
    const PieceState& state = states[i];
    const PieceState& leased = state.same.has_value() ? states[*state.same] : state;
    const std::shared_ptr<const KvObject>& object = leased.object;
    accounts_.push_back({.kind = piece.kind,
                         .tokens = static_cast<uint32_t>(piece.tokens.size()),
                         .read_rows = 0,
                         .computed_now = state.computed_now,
                         .as_text = leased.as_text});
    if (object != nullptr && !state.same.has_value()) {
      timings_.fetched_bytes += object->layout().TotalBytes();
      read_.push_back({state.key, object->layout()});
    }
    timings_.recompiled_objects += state.computed_now && piece.kind == LinkPiece::Kind::kContext;
    request.pieces.push_back({.tokens = piece.tokens,
                              .object = object,
                              .prefix_tokens = piece.prefix_tokens,
                              .is_context = piece.kind == LinkPiece::Kind::kContext});
  }
  planned_recomputed_ = PlannedRecomputed(request.pieces, job_.strategy, accounts_, reads_objects_);
  return request;
}

void LinkCallImpl::Admit() {
  MutexLock lock(&admit_mu_);
  if (std::exchange(admitted_, true)) return;
  events_->OnAdmitted(planned_recomputed_);
}

void LinkCallImpl::OnLinked(const LinkStats& stats) {
  Admit();
  std::vector<PieceState> leases;  // the engine has its own, and loses none any more
  {
    MutexLock lock(&mu_);
    leases.swap(pieces_);
  }
  shared_->CountLink(job_.strategy);
  for (size_t i = 0; i < stats.read_rows.size(); ++i) accounts_[i].read_rows = stats.read_rows[i];
  const PromptUsage usage = AccountFor(stats, accounts_, reads_objects_);
  usage_.prompt_tokens = usage.prompt;
  usage_.cached_tokens = usage.cached;
  usage_.recomputed_tokens = usage.recomputed;
  usage_.fresh_tokens = usage.fresh;
  timings_.queue_ns = stats.queue_ns;
  timings_.fetch_ns += stats.suspended_ns;
  if (stats.suspended_ns > 0 && shared_->series.has_value()) {
    shared_->series->suspended.Observe(static_cast<double>(stats.suspended_ns) / 1e9);
  }
  timings_.decide_ns = stats.decide_ns;
  timings_.link_ns = stats.link_ns;
}

bool LinkCallImpl::OnToken(const GeneratedToken& token) {
  const int64_t now_ns = shared_->clock->SteadyNs();
  if (first_token_ns_ == 0) {
    first_token_ns_ = now_ns;
    timings_.ttft_ns = first_token_ns_ - job_.received_steady_ns;
  }
  if (last_token_ns_.empty()) last_token_ns_.resize(job_.choices, 0);
  const int64_t last_ns = std::exchange(last_token_ns_[token.choice], now_ns);
  if (last_ns > 0 && shared_->series.has_value()) {
    shared_->series->inter_token.Observe(static_cast<double>(now_ns - last_ns) / 1e9);
  }
  ++usage_.completion_tokens;
  ChoiceText& text = choices_[token.choice];
  if (text.stopped()) return false;
  const std::string bytes = shared_->model->tokenizer->TokenBytes(token.token, /*with_special=*/false);
  if (!Deliver(token.choice, text.Push(bytes, LogprobOf(token)))) return false;
  return !text.stopped();
}

std::optional<LinkLogprob> LinkCallImpl::LogprobOf(const GeneratedToken& token) const {
  if (!job_.sampling.logprobs) return std::nullopt;
  const Tokenizer& tokenizer = *shared_->model->tokenizer;
  LinkLogprob logprob{.bytes = tokenizer.TokenBytes(token.token), .logprob = token.logprob, .top = {}};
  for (const TokenLogprob& top : token.top_logprobs) {
    logprob.top.emplace_back(tokenizer.TokenBytes(top.token, /*with_special=*/true), top.logprob);
  }
  return logprob;
}

bool LinkCallImpl::Deliver(uint32_t choice, ChoiceText::Piece piece) {
  if (piece.empty()) return true;
  if (events_->OnDelta(
          {.choice = choice, .text = std::move(piece.text), .logprobs = std::move(piece.logprobs)})) {
    return true;
  }
  reader_gone_ = true;
  cancel_.Cancel();
  return false;
}

void LinkCallImpl::OnFinish(uint32_t choice, FinishReason reason) {
  if (reader_gone_ || lost_.has_value()) return;
  ChoiceText& text = choices_[choice];
  const bool complete = reason == FinishReason::kStop || reason == FinishReason::kLength;
  if (complete && !text.stopped()) {
    ChoiceText::Piece piece = text.Flush();
    const bool matched = text.stopped();
    if (!Deliver(choice, std::move(piece))) return;
    if (matched) reason = FinishReason::kStop;
  }
  events_->OnFinish(choice, reason);
}

void LinkCallImpl::OnEngineDone(const absl::Status& status) {
  Admit();
  const std::optional<size_t> lost = std::exchange(lost_, std::nullopt);
  if (lost.has_value() && FetchAgain(*lost)) return;
  const int64_t now_ns = shared_->clock->SteadyNs();
  if (first_token_ns_ == 0) {
    timings_.ttft_ns = now_ns - job_.received_steady_ns;
  } else {
    timings_.decode_ns = now_ns - first_token_ns_;
  }
  // The engine may have ended every choice before it saw the cancellation.
  const bool is_cancelled = lost.has_value() || (reader_gone_ && status.ok());
  EndAfterEngine(is_cancelled ? absl::CancelledError("the reader is gone") : status);
}

bool LinkCallImpl::FetchAgain(size_t lost) {
  ++shared_->objects_lost;
  if (shared_->series.has_value()) shared_->series->lost.Add();
  {
    MutexLock lock(&mu_);
    if (cancel_.token().cancelled()) return false;
    phase_ = Phase::kFetch;
    waiting_ = 1;
  }
  // It may block on the disk.
  shared_->executor->Submit([self = shared_from_this(), lost] { self->ReplaceLost(lost); });
  return true;
}

void LinkCallImpl::EndAfterEngine(const absl::Status& status) {
  if (read_.empty() || !UnsoundObjects::MayBeBehind(status)) return EndFrom(Phase::kEngine, status);
  // Before the report, so that a client which sends its request again finds the objects gone.
  shared_->executor->Submit([self = shared_from_this(), status] {
    self->EndFrom(Phase::kEngine, self->shared_->unsound.DropBehind(status, self->job_.tenant, self->read_));
  });
}

void LinkCallImpl::Cancel() {
  // From phase kEngine on the engine sees the token and ends the call within a step.
  cancel_.Cancel();
  EndFrom(Phase::kFetch, Error(ErrorCode::kClientGone, "the request was cancelled", PlaceWaitedFor()));
}

void LinkCallImpl::EndFrom(Phase phase, const absl::Status& status) {
  std::set<CompileTicket> tickets;
  std::vector<PieceState> leases;  // freed before the report
  {
    MutexLock lock(&mu_);
    if (phase_ != phase) return;
    phase_ = Phase::kOver;
    tickets.swap(tickets_);
    leases.swap(pieces_);
  }
  for (const CompileTicket ticket : tickets) shared_->compiler->Abandon(ticket);
  leases.clear();
  --shared_->active;
  events_->OnDone(status, usage_, timings_);
}

}  // namespace epic
