#include "services/engine/prompt_job.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "common/base/check.h"

namespace epic {
namespace {

// `rows` and all covered rows that are not exact in place, ascending.
std::vector<uint32_t> RowsNotExact(const PromptView& prompt, const std::vector<uint32_t>& rows) {
  std::vector<uint32_t> stale;
  for (const CoveredRun& run : prompt.covered) {
    for (uint32_t row = 0; row < run.rows && !run.exact; ++row) stale.push_back(run.begin + row);
  }
  std::vector<uint32_t> out;
  std::set_union(rows.begin(), rows.end(), stale.begin(), stale.end(), std::back_inserter(out));
  return out;
}

// A phase through at most this part of the layers costs a step little, however many rows it has.
constexpr uint32_t kShallowShare = 8;

// A block of the first `layers` layers.
KvShape FirstLayers(const KvShape& shape, uint32_t layers) {
  KvShape first = shape;
  first.layers = layers;
  return first;
}

}  // namespace

PromptJob::PromptJob(const JobContext& context, std::string tenant, CancelToken cancel,
                     std::vector<PromptPiece> pieces, const LinkStrategy& strategy,
                     std::span<const TokenId> appended)
    : Job(std::move(cancel), context.clock->SteadyNs()),
      tenant_(std::move(tenant)),
      policy_(LinkPolicy::Make(strategy)),
      pieces_(std::move(pieces)),
      view_(pieces_),
      appended_(appended.begin(), appended.end()) {
  // The prefix cache belongs to the engine's thread; without it the plan computes at least as many rows.
  plan_ = policy_->Before(view_, 0);
  if (plan_.picks > 0) scout_phase_ = policy_->Scout(view_, context.config->layers);
  stats_.decide_ns = context.clock->SteadyNs() - submitted_ns_;
  bytes_ = MostBytes(context);
  for (const PromptPiece& piece : pieces_) objects_ += piece.object != nullptr ? 1 : 0;
}

uint64_t PromptJob::MostBytes(const JobContext& context) const {
  const uint64_t link_rows = plan_.rows.size() + plan_.picks + appended_.size();
  uint64_t bytes = context.shape.RowBytes() * link_rows;
  uint64_t kept_rows = 0;
  if (scout_phase_.has_value()) {
    const KvShape shape = FirstLayers(context.shape, scout_phase_->last_layer + 1);
    bytes += shape.RowBytes() * scout_phase_->rows.size();
    bytes += Scout::Bytes(*scout_phase_, view_.rows(), *context.config);
    kept_rows = link_rows;
  }
  const auto is_on_its_way = [](const PromptPiece& piece) {
    return piece.object != nullptr && piece.object->ReadyLayers() < piece.object->layout().layers;
  };
  if (std::any_of(pieces_.begin(), pieces_.end(), is_on_its_way)) {
    kept_rows = std::max<uint64_t>(link_rows, scout_phase_.has_value() ? scout_phase_->rows.size() : 0);
  }
  return bytes + kept_rows * PanelRun::KeptBytes(context.config->hidden);
}

void PromptJob::Plan(const JobContext& context) {
  const int64_t begin = context.clock->SteadyNs();
  hit_ = context.prefix_cache->Find(tenant_, plan_.tokens);
  plan_ = policy_->Before(view_, hit_.rows);
  stats_.decide_ns += context.clock->SteadyNs() - begin;
}

void PromptJob::Admit(const JobContext& context) {
  admitted_ns_ = context.clock->SteadyNs();
  stats_.queue_ns = admitted_ns_ - submitted_ns_;
  if (policy_->reads_prefix_cache() && !tenant_.empty()) Plan(context);
  if (scout_phase_.has_value()) {
    BeginScout(context);
  } else {
    link_began_ns_ = admitted_ns_;
    BeginLink(context);
  }
}

void PromptJob::OnPanel(const JobContext& context) {
  if (!status_.ok() || panels_.remaining() > 0) return;
  if (scout_ != nullptr) {
    EndScout(context);
    return;
  }
  panels_.DropKept();
  Publish(context);
}

void PromptJob::BeginScout(const JobContext& context) {
  const ScoutPhase& phase = *scout_phase_;
  PanelRun run;
  for (const uint32_t row : phase.rows) run.tokens.push_back(view_.tokens[row]);
  run.block = std::make_shared<KvBlock>(FirstLayers(context.shape, phase.last_layer + 1), phase.rows);
  run.bands[0].shared = SegmentsOf(PlanReading(view_, phase.rows));
  if (phase.first_reading > 0) {
    // What is not read need not be there yet.
    LayerBand blind;
    blind.end_layer = phase.first_reading;
    blind.shared = SegmentsOf(PlanReading(view_, RowsNotExact(view_, phase.rows)));
    run.bands.insert(run.bands.begin(), std::move(blind));
  }
  run.last_layer = phase.last_layer;
  run.kind = phase.quantized ? RowKind::kProbe : RowKind::kPrompt;
  run.is_shallow = (phase.last_layer + 1) * kShallowShare <= context.config->layers;
  const std::vector<SharedSegment> stored = StoredSegments();
  scout_ =
      std::make_unique<Scout>(phase, view_.rows(), *context.config, context.shape, stored, run.block.get());
  run.observer = scout_.get();
  WaitForBands(&run);
  if (phase.reads_stored()) {
    for (const SharedSegment& segment : stored)
      run.gate.Add(PieceOf(segment), segment.object, phase.last_layer);
  }
  panels_ = std::move(run);
}

void PromptJob::EndScout(const JobContext& context) {
  const std::shared_ptr<KvBlock> scouted = panels_.block;
  const uint32_t layers = scout_phase_->last_layer + 1;
  const std::vector<double> scores = scout_->Scores();
  if (scores.empty() ||
      !AreRowsFinite(FirstLayers(context.shape, layers), *scouted, 0, scouted->capacity())) {
    return FailNotFinite(
        "the values by which rows are chosen are not numbers for this prompt, and nothing of it was kept: "
        "check the model file if this happens again");
  }
  plan_ = PlanReading(view_, policy_->Pick(view_, scores));
  if (scout_phase_->keeps) {
    kept_ = scouted;
    kept_layers_ = layers;
  }
  BeginLink(context);
  ResumeRows(context, *scouted);
  scout_.reset();
  scout_phase_.reset();
  link_began_ns_ = context.clock->SteadyNs();
  scout_suspended_ns_ = suspended_ns(*context.clock);
  stats_.decide_ns += link_began_ns_ - admitted_ns_ - scout_suspended_ns_;
}

void PromptJob::BeginLink(const JobContext& context) {
  const auto prompt_tokens = static_cast<uint32_t>(plan_.tokens.size());
  stats_.prompt_tokens = prompt_tokens;
  stats_.cached_tokens = plan_.cached;
  stats_.recomputed_tokens = plan_.recomputed;
  stats_.fresh_tokens = plan_.fresh;
  stats_.read_rows = RowsRead(plan_, pieces_.size());
  PanelRun run;
  for (const uint32_t row : plan_.rows) run.tokens.push_back(plan_.tokens[row]);
  std::vector<uint32_t> positions = plan_.rows;
  for (uint32_t i = 0; i < appended_.size(); ++i) {
    run.tokens.push_back(appended_[i]);
    positions.push_back(prompt_tokens + i);
  }
  run.block = std::make_shared<KvBlock>(context.shape, std::move(positions));
  run.logits_rows = 1 + static_cast<uint32_t>(appended_.size());
  run.bands[0].shared = SegmentsOf(plan_);
  if (kept_ != nullptr) {
    LayerBand kept;
    kept.end_layer = kept_layers_;
    kept.before = kept_;
    kept.own_first_row = static_cast<uint32_t>(plan_.rows.size());
    run.bands.insert(run.bands.begin(), std::move(kept));
  }
  WaitForBands(&run);
  prompt_bands_ = run.bands;
  for (LayerBand& band : prompt_bands_) {
    if (band.before == nullptr) band.before = run.block;
    band.own_first_row = 0;
  }
  panels_ = std::move(run);
}

void PromptJob::ResumeRows(const JobContext& context, const KvBlock& scouted) {
  if (scout_->resume_layer() == 0) return;
  // The rows from `first` on went through the scout: the last of them, so that there are two runs at most.
  const std::vector<uint32_t>& known = scouted.positions();
  auto first = static_cast<uint32_t>(plan_.rows.size());
  while (first > 0 && std::binary_search(known.begin(), known.end(), plan_.rows[first - 1])) --first;
  for (uint32_t row = first; row < plan_.rows.size(); ++row) {
    const auto at =
        static_cast<uint32_t>(std::lower_bound(known.begin(), known.end(), plan_.rows[row]) - known.begin());
    panels_.Resume(row, scout_->resume_layer(), scout_->HiddenOf(at));
    for (uint32_t layer = 0; layer < scout_->resume_layer(); ++layer) {
      CopyRow(context.shape, scouted, at, layer, row, panels_.block.get());
    }
  }
}

void PromptJob::WaitForBands(PanelRun* run) const {
  uint32_t first_layer = 0;
  for (const LayerBand& band : run->bands) {
    for (const SharedSegment& segment : band.shared) {
      if (segment.object != nullptr) run->gate.Add(PieceOf(segment), segment.object, first_layer);
    }
    first_layer = band.end_layer;
  }
}

size_t PromptJob::PieceOf(const SharedSegment& segment) const {
  const auto reads = [&](const PromptPiece& piece) { return piece.object == segment.object; };
  return static_cast<size_t>(std::find_if(pieces_.begin(), pieces_.end(), reads) - pieces_.begin());
}

std::vector<SharedSegment> PromptJob::SegmentsOf(const RowPlan& plan) const {
  std::vector<SharedSegment> segments;
  for (const PlannedSegment& planned : plan.segments) {
    SharedSegment segment;
    segment.position = planned.position;
    segment.rows = planned.rows;
    segment.first_row = planned.first_row;
    segment.replaced = planned.replaced;
    if (planned.piece == PlannedSegment::kCachedPrefix) {
      segment.block = hit_.block;
    } else {
      segment.object = pieces_[planned.piece].object;
      segment.stored_position = segment.object->layout().first_position;
    }
    segments.push_back(std::move(segment));
  }
  return segments;
}

std::vector<SharedSegment> PromptJob::StoredSegments() const {
  std::vector<SharedSegment> segments;
  for (const CoveredRun& run : view_.covered) {
    SharedSegment segment;
    segment.object = pieces_[run.piece].object;
    segment.stored_position = segment.object->layout().first_position;
    segment.position = run.begin;
    segment.rows = run.rows;
    segments.push_back(std::move(segment));
  }
  return segments;
}

bool PromptJob::CheckPanel(const JobContext& context, std::span<const float> logits) {
  const uint32_t first = checked_rows_;
  checked_rows_ = panels_.through();
  return CheckFinite(context.shape, *panels_.block, first, checked_rows_ - first, logits);
}

void PromptJob::MarkLinked(const JobContext& context) {
  stats_.suspended_ns = suspended_ns(*context.clock);
  stats_.link_ns = context.clock->SteadyNs() - link_began_ns_ - (stats_.suspended_ns - scout_suspended_ns_);
}

void PromptJob::Publish(const JobContext& context) {
  const uint64_t rows = plan_.tokens.size() + appended_.size();
  if (tenant_.empty() || !plan_.exact || !policy_->publishes()) return;
  if (!context.prefix_cache->Takes(rows * context.shape.RowBytes())) return;
  std::vector<TokenId> tokens = plan_.tokens;
  tokens.insert(tokens.end(), appended_.begin(), appended_.end());
  const std::vector<SharedSegment>& shared = panels_.bands[0].shared;
  if (shared.empty()) {
    context.prefix_cache->Insert(tenant_, std::move(tokens), panels_.block);
    return;
  }
  std::vector<uint32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0u);
  auto whole = std::make_shared<KvBlock>(context.shape, std::move(positions));
  for (const SharedSegment& segment : shared) CopyRows(context.shape, segment, whole.get());
  CopyRows(context.shape, *panels_.block, panels_.block->capacity(), whole.get());
  context.prefix_cache->Insert(tenant_, std::move(tokens), std::move(whole));
}

uint64_t PromptJob::held_rows() const {
  return Job::held_rows() + (kept_ == nullptr ? 0 : kept_->capacity());
}

uint64_t PromptJob::held_bytes() const {
  return Job::held_bytes() + (kept_ == nullptr ? 0 : kept_->bytes()) +
         (scout_ == nullptr ? 0 : scout_->bytes());
}

void PromptJob::Release() {
  Job::Release();
  scout_.reset();
  kept_.reset();
  prompt_bands_.clear();
  pieces_.clear();
  hit_ = {};
}

}  // namespace epic
