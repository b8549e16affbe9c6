#include "services/engine/scout.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/attention_mass/attention_mass.h"
#include "kernels/value_distance/value_distance.h"

namespace epic {
namespace {

using Measure = ScoutPhase::Measure;

// Behind layer 0 a row of the scout is what it is in the link: keys and values of layer 0 depend on nothing
// but a row's own token, whoever computed them.
uint32_t ResumeLayerOf(const ScoutPhase& phase) { return phase.keeps && phase.last_layer > 0 ? 1 : 0; }

size_t SumsOf(const ScoutPhase& phase, uint32_t prompt_rows, const ModelConfig& config) {
  switch (phase.measure) {
    case Measure::kValueDistance:
      return 0;
    case Measure::kAttentionChange:
      return prompt_rows;
    case Measure::kAttentionMass:
      break;
  }
  return size_t{(phase.last_layer - phase.first_measured) / phase.measured_step + 1} * config.heads *
         prompt_rows;
}

size_t HiddenOfPhase(const ScoutPhase& phase, const ModelConfig& config) {
  return ResumeLayerOf(phase) > 0 ? phase.rows.size() * config.hidden : 0;
}

// The values of a layer of a segment or block, from its first row.
ValueRows ValuesOf(const KvSegment& view) { return {.data = view.v, .head_stride = view.head_stride}; }

// Squared distances of a segment's values from those of the block at the same positions, or from zero where
// `block` is null. Shape: [kv_heads][segment.rows].
std::vector<float> Distances(const KvShape& shape, const SharedSegment& segment, uint32_t layer,
                             const KvBlock* block) {
  std::vector<float> out(size_t{shape.kv_heads} * segment.rows);
  SquaredDistanceArgs args;
  args.a = ValuesOf(segment.View(shape, layer));
  if (block != nullptr) {
    const KvSegment own = block->PrivateView(layer, block->capacity());
    args.b = ValuesOf(own);
    const size_t skipped = size_t{segment.position} * shape.head_dim * SizeOf(shape.dtype);
    args.b.data = static_cast<const std::byte*>(own.v) + skipped;
  }
  args.dtype = DTypeOf(shape.dtype);
  args.rows = segment.rows;
  args.kv_heads = shape.kv_heads;
  args.head_dim = shape.head_dim;
  args.out = out.data();
  args.out_stride = segment.rows;
  SquaredDistance(args);
  return out;
}

}  // namespace

Scout::Scout(const ScoutPhase& phase, uint32_t prompt_rows, const ModelConfig& config, const KvShape& shape,
             std::vector<SharedSegment> stored, const KvBlock* block)
    : phase_(phase),
      prompt_rows_(prompt_rows),
      config_(config),
      shape_(shape),
      stored_(std::move(stored)),
      block_(block),
      resume_layer_(ResumeLayerOf(phase)),
      hidden_(HiddenOfPhase(phase, config)),
      sums_(SumsOf(phase, prompt_rows, config)) {
  if (phase_.measure != Measure::kAttentionChange) return;
  for (const SharedSegment& segment : stored_) {
    for (uint32_t row = 0; row < segment.rows; ++row) covered_rows_.push_back(segment.position + row);
  }
}

uint64_t Scout::Bytes(const ScoutPhase& phase, uint32_t prompt_rows, const ModelConfig& config) {
  return sizeof(float) * HiddenOfPhase(phase, config) +
         sizeof(uint64_t) * SumsOf(phase, prompt_rows, config) +
         sizeof(uint32_t) * (phase.rows.size() + uint64_t{prompt_rows}) + sizeof(double) * prompt_rows;
}

uint64_t Scout::bytes() const { return Bytes(phase_, prompt_rows_, config_); }

void Scout::OnEnter(uint32_t layer, uint32_t first_row, std::span<const float> x) {
  if (layer != resume_layer_ || hidden_.empty()) return;
  std::copy(x.begin(), x.end(), hidden_.begin() + static_cast<ptrdiff_t>(size_t{first_row} * config_.hidden));
}

bool Scout::WantsQueries(uint32_t layer) const {
  switch (phase_.measure) {
    case Measure::kValueDistance:
      return false;
    case Measure::kAttentionChange:
      return layer == phase_.last_layer;
    case Measure::kAttentionMass:
      break;
  }
  return layer >= phase_.first_measured && layer <= phase_.last_layer &&
         (phase_.last_layer - layer) % phase_.measured_step == 0;
}

void Scout::OnQueries(uint32_t layer, const SegmentAttentionArgs& args, ThreadPool* pool) {
  if (phase_.measure == Measure::kAttentionMass) {
    AttentionMassArgs mass;
    mass.attention = args;
    const auto skipped = static_cast<size_t>(
        std::lower_bound(args.q_positions, args.q_positions + args.rows, phase_.first_asking) -
        args.q_positions);
    if (skipped == args.rows) return;
    mass.attention.q += skipped * args.q_stride;
    mass.attention.q_positions += skipped;
    mass.attention.rows -= skipped;
    mass.mass = sums_.data() + MassOffset(layer, 0);
    mass.mass_stride = prompt_rows_;
    finite_ = AttentionMass(mass, pool) && finite_;
    return;
  }
  std::vector<KvSegment> stored;
  for (const SharedSegment& segment : stored_) stored.push_back(segment.View(shape_, layer));
  stored.push_back(args.segments[0]);  // own text, from the rows of this phase
  stored.back().replaced = covered_rows_.data();
  stored.back().replaced_count = static_cast<uint32_t>(covered_rows_.size());
  AttentionChangeArgs change;
  change.fresh = args;
  change.stored = stored;
  change.change = sums_.data();
  finite_ = AttentionChange(change, pool) && finite_;
}

std::vector<double> Scout::Scores() const {
  if (!finite_) return {};
  std::vector<double> scores(prompt_rows_, 0.0);
  switch (phase_.measure) {
    case Measure::kValueDistance:
      AddDistances(&scores);
      break;
    case Measure::kAttentionChange:
      for (uint32_t row = 0; row < prompt_rows_; ++row) scores[row] = static_cast<double>(sums_[row]);
      break;
    case Measure::kAttentionMass:
      AddMass(&scores);
      break;
  }
  for (const double score : scores) {
    if (!std::isfinite(score)) return {};
  }
  return scores;
}

std::span<const float> Scout::HiddenOf(size_t i) const {
  return std::span<const float>(hidden_).subspan(i * config_.hidden, config_.hidden);
}

void Scout::AddDistances(std::vector<double>* scores) const {
  for (const SharedSegment& segment : stored_) {
    const std::vector<float> distances = Distances(shape_, segment, phase_.last_layer, block_);
    for (size_t i = 0; i < distances.size(); ++i) {
      (*scores)[segment.position + i % segment.rows] += distances[i];
    }
  }
}

void Scout::AddMass(std::vector<double>* scores) const {
  for (const SharedSegment& segment : stored_) {
    for (uint32_t layer = phase_.first_measured; layer <= phase_.last_layer; ++layer) {
      if (WantsQueries(layer)) AddMassOf(segment, layer, scores);
    }
  }
}

void Scout::AddMassOf(const SharedSegment& segment, uint32_t layer, std::vector<double>* scores) const {
  std::vector<float> squares;
  if (phase_.value_norm) squares = Distances(shape_, segment, layer, nullptr);
  const uint32_t group = config_.heads / config_.kv_heads;
  for (uint32_t row = 0; row < segment.rows; ++row) {
    double sum = 0, highest = 0;
    for (uint32_t head = 0; head < config_.heads; ++head) {
      auto mass = static_cast<double>(sums_[MassOffset(layer, head) + segment.position + row]);
      if (phase_.value_norm) mass *= std::sqrt(double{squares[size_t{head / group} * segment.rows + row]});
      sum += mass;
      highest = std::max(highest, mass);
    }
    // std::max drops a NaN, a sum does not.
    (*scores)[segment.position + row] += phase_.max_of_heads && std::isfinite(sum) ? highest : sum;
  }
}

size_t Scout::MassOffset(uint32_t layer, uint32_t head) const {
  return (size_t{phase_.last_layer - layer} / phase_.measured_step * config_.heads + head) * prompt_rows_;
}

}  // namespace epic
