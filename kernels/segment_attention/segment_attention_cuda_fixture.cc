#include "kernels/segment_attention/segment_attention_cuda_fixture.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/segment_attention/segment_attention_internal.h"

namespace epic {
namespace {

std::vector<double> Frequencies(size_t half) {
  std::vector<double> out(half);
  for (size_t j = 0; j < half; ++j)
    out[j] = std::pow(10000.0, -static_cast<double>(j) / static_cast<double>(half));
  return out;
}

bool IsHidden(const KvSegment& segment, uint32_t row, uint32_t position) {
  const uint32_t* end = segment.replaced + segment.replaced_count;
  if (row < segment.first_row) return true;
  if (segment.replaced != nullptr && std::binary_search(segment.replaced, end, row)) return true;
  const uint32_t at = segment.row_positions != nullptr ? segment.row_positions[row] : segment.position + row;
  return at > position;
}

}  // namespace

std::vector<uint32_t> PositionRange(uint32_t begin, uint32_t end) {
  std::vector<uint32_t> out;
  for (uint32_t i = begin; i < end; ++i) out.push_back(i);
  return out;
}

SegmentFixture::SegmentFixture(const Shape& shape, uint32_t kv_heads, uint32_t head_dim, Rng* rng)
    : shape_(shape),
      memory_(std::make_shared<Memory>()),
      device_replaced_(shape.replaced),
      device_positions_(shape.positions) {
  memory_->kv_heads = kv_heads;
  memory_->head_dim = head_dim;
  memory_->capacity = shape.rows + 3;
  memory_->offset = shape.misaligned_by;
  const size_t count = memory_->offset + size_t{kv_heads} * memory_->capacity * head_dim;
  const Bf16 nan = ToBf16(std::numeric_limits<float>::quiet_NaN());
  memory_->k.assign(count, nan);
  memory_->v.assign(count, nan);
  for (uint32_t g = 0; g < kv_heads; ++g) {
    for (uint32_t row = shape.first_row; row < shape.rows; ++row) {
      if (std::binary_search(shape.replaced.begin(), shape.replaced.end(), row)) continue;
      const size_t at = memory_->offset + (size_t{g} * memory_->capacity + row) * head_dim;
      for (uint32_t d = 0; d < head_dim; ++d) {
        memory_->k[at + d] = ToBf16(static_cast<float>(rng->Gaussian()));
        memory_->v[at + d] = ToBf16(static_cast<float>(rng->Gaussian()));
      }
    }
  }
  memory_->device_k.Assign(memory_->k);
  memory_->device_v.Assign(memory_->v);
}

SegmentFixture::SegmentFixture(const SegmentFixture& object, const Shape& shape)
    : shape_(shape),
      memory_(object.memory_),
      device_replaced_(shape.replaced),
      device_positions_(shape.positions) {}

void SegmentFixture::SetRow(uint32_t row, float k, float v) {
  for (uint32_t g = 0; g < memory_->kv_heads; ++g) {
    const size_t at = memory_->offset + (size_t{g} * memory_->capacity + row) * memory_->head_dim;
    std::fill_n(memory_->k.begin() + static_cast<ptrdiff_t>(at), memory_->head_dim, ToBf16(k));
    std::fill_n(memory_->v.begin() + static_cast<ptrdiff_t>(at), memory_->head_dim, ToBf16(v));
  }
  memory_->device_k.Assign(memory_->k);
  memory_->device_v.Assign(memory_->v);
}

KvSegment SegmentFixture::View() const {
  KvSegment view;
  view.head_stride = size_t{memory_->capacity} * memory_->head_dim;
  view.rows = shape_.rows;
  view.first_row = shape_.first_row;
  view.replaced_count = static_cast<uint32_t>(shape_.replaced.size());
  view.position = shape_.position;
  view.stored_position = shape_.stored_position;
  return view;
}

KvSegment SegmentFixture::Host() const {
  KvSegment view = View();
  view.k = memory_->k.data() + memory_->offset;
  view.v = memory_->v.data() + memory_->offset;
  view.replaced = shape_.replaced.empty() ? nullptr : shape_.replaced.data();
  view.row_positions = shape_.positions.empty() ? nullptr : shape_.positions.data();
  return view;
}

KvSegment SegmentFixture::Device() const {
  KvSegment view = View();
  view.k = memory_->device_k.data() + memory_->offset;
  view.v = memory_->device_v.data() + memory_->offset;
  view.replaced = device_replaced_.data();
  view.row_positions = device_positions_.data();
  return view;
}

AttentionFixture::AttentionFixture(uint32_t heads, uint32_t kv_heads, uint32_t head_dim, RopePairs pairs)
    : heads_(heads),
      kv_heads_(kv_heads),
      head_dim_(head_dim),
      table_(pairs, Frequencies(head_dim / 2), kFixturePositions, 1.0),
      cos_(std::span<const float>(table_.cos(0), size_t{kFixturePositions} * head_dim / 2)),
      sin_(std::span<const float>(table_.sin(0), size_t{kFixturePositions} * head_dim / 2)) {}

void AttentionFixture::SetQueries(std::vector<uint32_t> positions, Rng* rng, float scale) {
  positions_ = std::move(positions);
  q_.resize(positions_.size() * width());
  for (float& value : q_) value = scale * static_cast<float>(rng->Gaussian());
}

GpuAttentionArgs AttentionFixture::Upload(const std::vector<SegmentFixture>& segments, size_t first,
                                          size_t count, DeviceInputs* inputs) const {
  std::vector<KvSegment> views;
  for (const SegmentFixture& segment : segments) views.push_back(segment.Device());
  inputs->segments.Assign(views);
  inputs->q.Assign(std::span<const float>(q_.data() + first * width(), count * width()));
  inputs->positions.Assign(std::span<const uint32_t>(positions_.data() + first, count));
  inputs->out.Assign(std::vector<float>(count * width(), -7.0f));
  GpuAttentionArgs args;
  args.q = inputs->q.data();
  args.q_stride = width();
  args.q_positions = inputs->positions.data();
  args.rows = count;
  args.heads = heads_;
  args.kv_heads = kv_heads_;
  args.head_dim = head_dim_;
  args.scale = 1.0f / std::sqrt(static_cast<float>(head_dim_));
  args.segments = inputs->segments.data();
  args.rope = {.cos = cos_.data(),
               .sin = sin_.data(),
               .half_dim = head_dim_ / 2,
               .max_position = kFixturePositions,
               .pairs = table_.pairs()};
  args.out = inputs->out.data();
  args.out_stride = width();
  return args;
}

AttentionFixture::LinkLaunch AttentionFixture::MakeLink(const std::vector<SegmentFixture>& segments,
                                                        const LinkRun& run) const {
  std::vector<KvSegment> views;
  for (const SegmentFixture& segment : segments) views.push_back(segment.Host());
  LinkLaunch launch;
  const size_t count = std::min(run.count, positions_.size() - run.first);
  launch.splits.Assign(PlanLinkAttention(views));
  launch.args.common = Upload(segments, run.first, count, &launch.inputs);
  launch.args.splits = launch.splits.data();
  launch.args.split_count = static_cast<uint32_t>(launch.splits.size());
  launch.args.mode = run.mode;
  size_t bytes = LinkAttentionWorkspaceBytes(launch.args);
  if (run.workspace_rows < count) bytes = bytes / count * run.workspace_rows;
  launch.inputs.workspace.Assign(std::vector<uint8_t>(bytes, 0xff));
  launch.args.common.workspace = launch.inputs.workspace.data();
  launch.args.common.workspace_bytes = bytes;
  return launch;
}

AttentionFixture::DecodeLaunch AttentionFixture::MakeDecode(
    const std::vector<SegmentFixture>& segments,
    const std::vector<std::vector<uint32_t>>& row_segments) const {
  DecodeLaunch launch;
  launch.args.common = Upload(segments, 0, positions_.size(), &launch.inputs);
  std::vector<KvSegment> views;
  for (const SegmentFixture& segment : segments) views.push_back(segment.Device());
  const DecodeAttentionPlan plan = PlanDecodeAttention(views, row_segments, heads_ / kv_heads_);
  launch.readers.Assign(plan.readers);
  launch.groups.Assign(plan.groups);
  launch.row_slots.Assign(plan.row_slots);
  launch.args.readers = launch.readers.data();
  launch.args.groups = launch.groups.data();
  launch.args.row_slots = launch.row_slots.data();
  launch.args.group_count = static_cast<uint32_t>(plan.groups.size());
  launch.args.slot_count = plan.row_slots.back();
  launch.inputs.workspace.Assign(std::vector<uint8_t>(DecodeAttentionWorkspaceBytes(launch.args), 0xff));
  launch.args.common.workspace = launch.inputs.workspace.data();
  launch.args.common.workspace_bytes = launch.inputs.workspace.size();
  return launch;
}

GpuStatus AttentionFixture::Link(const std::vector<SegmentFixture>& segments, const LinkRun& run,
                                 std::vector<float>* out) const {
  const LinkLaunch launch = MakeLink(segments, run);
  if (const GpuStatus status = LinkAttentionCuda(launch.args, nullptr); !status.ok()) return status;
  const GpuStatus ended = simt::SynchronizeDevice();
  *out = launch.inputs.out.Download();
  return ended;
}

GpuStatus AttentionFixture::Decode(const std::vector<SegmentFixture>& segments,
                                   const std::vector<std::vector<uint32_t>>& row_segments,
                                   std::vector<float>* out) const {
  const DecodeLaunch launch = MakeDecode(segments, row_segments);
  if (const GpuStatus status = DecodeAttentionCuda(launch.args, nullptr); !status.ok()) return status;
  const GpuStatus ended = simt::SynchronizeDevice();
  *out = launch.inputs.out.Download();
  return ended;
}

std::vector<float> AttentionFixture::Reference(const std::vector<SegmentFixture>& segments,
                                               const std::vector<uint32_t>& reads, size_t row) const {
  std::vector<KvSegment> views;
  for (const uint32_t s : reads) views.push_back(segments[s].Host());
  std::vector<float> out(width());
  SegmentAttentionArgs args;
  args.q = q_.data() + row * width();
  args.q_stride = width();
  args.q_positions = positions_.data() + row;
  args.rows = 1;
  args.heads = heads_;
  args.kv_heads = kv_heads_;
  args.head_dim = head_dim_;
  args.scale = 1.0f / std::sqrt(static_cast<float>(head_dim_));
  args.segments = views;
  args.rope = &table_;
  args.out = out.data();
  args.out_stride = width();
  internal::SegmentAttentionReference(args, nullptr);
  return out;
}

std::vector<float> AttentionFixture::RotatedQuery(size_t row, uint32_t head, uint32_t turn) const {
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim_)) * 1.44269504088896340736f;
  const bool norm = table_.pairs() == RopePairs::kNorm;
  const uint32_t half = head_dim_ / 2;
  const float* from = q_.data() + row * width() + size_t{head} * head_dim_;
  std::vector<float> q(head_dim_);
  for (uint32_t j = 0; j < half; ++j) {
    const uint32_t first = norm ? 2 * j : j, second = norm ? 2 * j + 1 : j + half;
    const float a = from[first], b = from[second], cosine = table_.cos(turn)[j], sine = table_.sin(turn)[j];
    q[first] = ToF32(ToBf16(scale * std::fma(-b, sine, a * cosine)));
    q[second] = ToF32(ToBf16(scale * std::fma(b, cosine, a * sine)));
  }
  return q;
}

std::vector<float> AttentionFixture::RoundedModel(const std::vector<SegmentFixture>& segments,
                                                  const std::vector<uint32_t>& reads, size_t row,
                                                  std::vector<float>* weighted) const {
  const uint32_t position = positions_[row];
  std::vector<float> out(width());
  weighted->assign(width(), 0.0f);
  for (uint32_t head = 0; head < heads_; ++head) {
    std::vector<double> scores;
    std::vector<const Bf16*> values;
    for (const uint32_t s : reads) {
      const KvSegment segment = segments[s].Host();
      if (segment.row_positions == nullptr && segment.position > position) continue;
      const uint32_t turn =
          segment.row_positions != nullptr ? position : position - segment.position + segment.stored_position;
      const std::vector<float> q = RotatedQuery(row, head, turn);
      for (uint32_t key = 0; key < segment.rows; ++key) {
        if (IsHidden(segment, key, position)) continue;
        const size_t at = head / (heads_ / kv_heads_) * segment.head_stride + size_t{key} * head_dim_;
        double score = 0;
        for (uint32_t d = 0; d < head_dim_; ++d) {
          score += double{q[d]} * ToF32(static_cast<const Bf16*>(segment.k)[at + d]);
        }
        scores.push_back(score);
        values.push_back(static_cast<const Bf16*>(segment.v) + at);
      }
    }
    if (scores.empty()) continue;
    const double highest = *std::max_element(scores.begin(), scores.end());
    double total = 0;
    std::vector<double> sums(head_dim_, 0.0), sizes(head_dim_, 0.0);
    for (size_t i = 0; i < scores.size(); ++i) {
      const double weight = std::exp2(scores[i] - highest);
      total += weight;
      for (uint32_t d = 0; d < head_dim_; ++d) {
        sums[d] += weight * ToF32(values[i][d]);
        sizes[d] += weight * std::abs(ToF32(values[i][d]));
      }
    }
    for (uint32_t d = 0; d < head_dim_; ++d) {
      out[head * head_dim_ + d] = static_cast<float>(sums[d] / total);
      (*weighted)[head * head_dim_ + d] = static_cast<float>(sizes[d] / total);
    }
  }
  return out;
}

}  // namespace epic
