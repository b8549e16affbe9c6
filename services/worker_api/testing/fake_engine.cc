#include "services/worker_api/testing/fake_engine.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "common/status/error.h"
#include "services/engine/link_policy.h"

namespace epic::testing {
namespace {

LinkStats StatsOf(const LinkRequest& request) {
  const RowPlan plan = PlanRows(request.pieces, request.strategy, 0);
  LinkStats stats;
  stats.prompt_tokens = static_cast<uint32_t>(plan.tokens.size());
  stats.cached_tokens = plan.cached;
  stats.recomputed_tokens = plan.recomputed;
  stats.fresh_tokens = plan.fresh;
  stats.read_rows = RowsRead(plan, request.pieces.size());
  return stats;
}

}  // namespace

FakeEngine::FakeEngine(const Options& options) : options_(options) {
  config_.layers = options.layers;
  config_.hidden = 8;
  config_.heads = 2;
  config_.kv_heads = 1;
  config_.head_dim = 4;
  config_.vocab = options.vocab;
  config_.context_length = options.context_length;
}

KvLayout FakeEngine::LayoutOf(uint32_t tokens, uint32_t first_position) const {
  return {.layers = config_.layers,
          .kv_heads = config_.kv_heads,
          .head_dim = config_.head_dim,
          .tokens = tokens,
          .dtype = KvDtype::kF32,
          .first_position = first_position};
}

absl::Status FakeEngine::SubmitLink(LinkRequest request, std::shared_ptr<LinkSink> sink) {
  MutexLock lock(&mu_);
  if (stopped_) return Error(ErrorCode::kDraining, "stopping");
  if (!submit_status_.ok()) return submit_status_;
  if (links_.size() + compiles_.size() >= options_.max_queue) {
    return RetryLater(ErrorCode::kQueueFull, "the engine's queue is full", 1000);
  }
  for (const PromptPiece& piece : request.pieces) {
    if (piece.object != nullptr &&
        piece.object->layout() != LayoutOf(static_cast<uint32_t>(piece.tokens.size()),
                                           static_cast<uint32_t>(piece.prefix_tokens.size()))) {
      return Error(ErrorCode::kInvalidRequest, "an object of another layout");
    }
  }
  LinkRequest copy = request;
  for (PromptPiece& piece : copy.pieces) piece.object = nullptr;
  seen_.push_back(std::move(copy));
  const uint32_t choices = request.choices;
  links_.push_back({.request = std::move(request),
                    .sink = std::move(sink),
                    .linked = false,
                    .position = 0,
                    .finished = std::vector<bool>(choices, false)});
  return absl::OkStatus();
}

absl::Status FakeEngine::SubmitCompile(CompileRequest request, std::shared_ptr<CompileSink> sink) {
  MutexLock lock(&mu_);
  if (stopped_) return Error(ErrorCode::kDraining, "stopping");
  if (!submit_status_.ok()) return submit_status_;
  if (links_.size() + compiles_.size() >= options_.max_queue) {
    return RetryLater(ErrorCode::kQueueFull, "the engine's queue is full", 1000);
  }
  ++compiles_started_;
  compiles_.push_back({.request = std::move(request), .sink = std::move(sink), .layer = 0});
  return absl::OkStatus();
}

absl::Status FakeEngine::SubmitScore(ScoreRequest, std::shared_ptr<ScoreSink>) {
  return Error(ErrorCode::kInternal, "the fake engine does not score");
}

EngineGauges FakeEngine::Gauges() const {
  MutexLock lock(&mu_);
  EngineGauges gauges;
  gauges.running = static_cast<uint32_t>(links_.size() + compiles_.size());
  for (const Link& link : links_) {
    for (const PromptPiece& piece : link.request.pieces) gauges.held_objects += piece.object != nullptr;
  }
  gauges.steps = steps_;
  gauges.busy = gauges.running > 0;
  gauges.last_progress_steady_ns = last_progress_ns_;
  return gauges;
}

void FakeEngine::Stop() {
  std::list<Link> links;
  std::list<Compile> compiles;
  {
    MutexLock lock(&mu_);
    stopped_ = true;
    links.swap(links_);
    compiles.swap(compiles_);
  }
  for (Link& link : links) link.sink->OnDone(absl::CancelledError("stopped"));
  for (Compile& compile : compiles) compile.sink->OnDone(absl::CancelledError("stopped"));
}

bool FakeEngine::Step() {
  // Taken out while they are stepped, so that sinks may submit and a Stop meanwhile finds only whole
  // requests.
  std::list<Link> links;
  std::list<Compile> compiles;
  {
    MutexLock lock(&mu_);
    links.swap(links_);
    compiles.swap(compiles_);
    ++steps_;
  }
  const bool worked = !links.empty() || !compiles.empty();
  links.remove_if([this](Link& link) { return StepLink(link); });
  compiles.remove_if([this](Compile& compile) { return StepCompile(compile); });
  MutexLock lock(&mu_);
  links_.splice(links_.begin(), links);
  compiles_.splice(compiles_.begin(), compiles);
  return worked;
}

bool FakeEngine::StepLink(Link& link) {
  absl::Status end;
  std::vector<TokenId> answer;
  bool is_lost = false;
  size_t lost_piece = 0;
  {
    MutexLock lock(&mu_);
    end = link_status_;
    answer = answer_;
    lost_piece = lost_piece_;
    is_lost = !link.linked && times_lost_ > 0;
    times_lost_ -= is_lost ? 1 : 0;
  }
  if (link.request.cancel.cancelled()) {
    link.request.pieces.clear();
    link.sink->OnDone(absl::CancelledError("cancelled"));
    return true;
  }
  if (is_lost) {
    link.request.pieces.clear();
    link.sink->OnObjectLost(lost_piece);
    for (uint32_t i = 0; i < link.request.choices; ++i) link.sink->OnFinish(i, FinishReason::kError);
    link.sink->OnDone(Error(ErrorCode::kLayerDamaged, "a layer came damaged"));
    return true;
  }
  if (!link.linked) {
    link.linked = true;
    link.sink->OnLinked(StatsOf(link.request));
    if (end.ok()) return false;
    link.request.pieces.clear();
    link.sink->OnDone(end);
    return true;
  }
  bool all = true;
  for (uint32_t choice = 0; choice < link.request.choices; ++choice) {
    if (link.finished[choice]) continue;
    const std::vector<TokenId>& stops = link.request.stop_tokens;
    if (link.position == answer.size() ||
        std::find(stops.begin(), stops.end(), answer[link.position]) != stops.end()) {
      link.finished[choice] = true;
      link.sink->OnFinish(choice, FinishReason::kStop);
      continue;
    }
    GeneratedToken token;
    token.choice = choice;
    token.token = answer[link.position];
    token.logprob = -0.5f;
    if (link.request.sampling.top_logprobs > 0) token.top_logprobs = {{token.token, -0.5f}};
    if (!link.sink->OnToken(token)) {
      link.finished[choice] = true;
      link.sink->OnFinish(choice, FinishReason::kStop);
    } else if (link.position + 1 == link.request.max_tokens) {
      link.finished[choice] = true;
      link.sink->OnFinish(choice, FinishReason::kLength);
    } else {
      all = false;
    }
  }
  ++link.position;
  if (!all) return false;
  link.request.pieces.clear();
  link.sink->OnDone(absl::OkStatus());
  return true;
}

bool FakeEngine::StepCompile(Compile& compile) {
  absl::Status end;
  {
    MutexLock lock(&mu_);
    end = compile_status_;
  }
  if (compile.request.cancel.cancelled()) end = absl::CancelledError("cancelled");
  if (end.ok()) {
    const KvLayout layout = LayoutOf(static_cast<uint32_t>(compile.request.tokens.size()),
                                     static_cast<uint32_t>(compile.request.prefix_tokens.size()));
    std::vector<std::byte> slab(layout.LayerBytes());
    for (size_t i = 0; i < slab.size(); ++i) {
      slab[i] =
          static_cast<std::byte>(compile.request.tokens[i % compile.request.tokens.size()] + compile.layer);
    }
    end = compile.sink->OnLayer(compile.layer, slab);
    if (end.ok() && ++compile.layer < layout.layers) return false;
  }
  if (end.ok()) {
    MutexLock lock(&mu_);
    ++compiles_finished_;
  }
  compile.sink->OnDone(end);
  return true;
}

void FakeEngine::set_answer(std::vector<TokenId> answer) {
  MutexLock lock(&mu_);
  answer_ = std::move(answer);
}
void FakeEngine::set_link_status(absl::Status status) {
  MutexLock lock(&mu_);
  link_status_ = std::move(status);
}
void FakeEngine::LoseObject(size_t piece, uint32_t times) {
  MutexLock lock(&mu_);
  lost_piece_ = piece;
  times_lost_ = times;
}
void FakeEngine::set_compile_status(absl::Status status) {
  MutexLock lock(&mu_);
  compile_status_ = std::move(status);
}
void FakeEngine::set_submit_status(absl::Status status) {
  MutexLock lock(&mu_);
  submit_status_ = std::move(status);
}
void FakeEngine::set_last_progress_ns(int64_t ns) {
  MutexLock lock(&mu_);
  last_progress_ns_ = ns;
}
uint64_t FakeEngine::compiles_started() const {
  MutexLock lock(&mu_);
  return compiles_started_;
}
uint64_t FakeEngine::compiles_finished() const {
  MutexLock lock(&mu_);
  return compiles_finished_;
}
uint64_t FakeEngine::links_started() const {
  MutexLock lock(&mu_);
  return seen_.size();
}
std::vector<LinkRequest> FakeEngine::links() const {
  MutexLock lock(&mu_);
  return seen_;
}

}  // namespace epic::testing
