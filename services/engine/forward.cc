#include "services/engine/forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "kernels/decode_attention/decode_attention.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/segment_attention/segment_attention.h"
#include "kernels/swiglu/swiglu.h"

namespace epic {
namespace {

// Rows whose logits are held at once; scoring may need many more than that in a step.
constexpr size_t kHeadRows = 32;

// From so many groups and rows on, threads take groups whole.
constexpr size_t kGroupsPerThread = 2;
constexpr size_t kRowsPerThread = 64;

size_t QWidth(const ModelConfig& config) { return size_t{config.heads} * config.head_dim; }
size_t KvWidth(const ModelConfig& config) { return size_t{config.kv_heads} * config.head_dim; }
size_t QkvWidth(const ModelConfig& config) { return QWidth(config) + 2 * KvWidth(config); }

float AttentionScale(const ModelConfig& config) {
  return 1.0f / std::sqrt(static_cast<float>(config.head_dim));
}

const float* BiasAt(const LayerWeights& weights, size_t offset) {
  return weights.qkv_bias.empty() ? nullptr : weights.qkv_bias.data() + offset;
}

}  // namespace

Forward::Forward(const ModelConfig* config, const Weights* weights, const RopeTable* rope,
                 const KvShape& shape, uint32_t max_rows, ThreadPool* pool)
    : config_(*config),
      weights_(weights),
      rope_(rope),
      shape_(shape),
      max_rows_(max_rows),
      pool_(pool),
      x_(size_t{max_rows} * config_.hidden),
      normed_(size_t{max_rows} * config_.hidden),
      qkv_(size_t{max_rows} * QkvWidth(config_)),
      mixed_(size_t{max_rows} * QWidth(config_)),
      gates_(size_t{max_rows} * 2 * config_.ffn),
      logits_(kHeadRows * config_.vocab) {}

uint64_t Forward::ScratchBytes(const ModelConfig& config, uint32_t max_rows) {
  const uint64_t row =
      2 * uint64_t{config.hidden} + QkvWidth(config) + QWidth(config) + 2 * uint64_t{config.ffn};
  return sizeof(float) * (max_rows * row + kHeadRows * uint64_t{config.vocab});
}

const LayerBand& RowGroup::BandAt(uint32_t layer) const {
  static const LayerBand nothing;
  if (bands.empty()) return nothing;
  size_t band = 0;
  while (bands[band].end_layer <= layer) ++band;
  return bands[band];
}

uint32_t Forward::LastLayerOf(const RowGroup& group) const {
  return std::min(group.last_layer, config_.layers - 1);
}

bool Forward::Run(std::span<const RowGroup> groups, const LeaveFunction& leave,
                  const LogitsFunction& on_logits) {
  placed_.assign(groups.size(), {});
  left_.assign(groups.size(), false);
  order_.clear();
  rows_ = 0;
  quantized_rows_ = 0;
  size_t all_rows = 0;
  uint32_t first_layer = config_.layers;
  uint32_t layers = 0;
  for (const RowGroup& group : groups) {
    EPIC_CHECK(group.logits_rows <= group.tokens.size());
    EPIC_CHECK(group.first_row + group.tokens.size() <= group.block->capacity());
    EPIC_CHECK(group.first_layer <= LastLayerOf(group));
    all_rows += group.tokens.size();
    first_layer = std::min(first_layer, group.first_layer);
    layers = std::max(layers, LastLayerOf(group) + 1);
  }
  EPIC_CHECK(all_rows <= max_rows_);
  for (uint32_t layer = first_layer; layer < layers; ++layer) {
    if (!DropGroups(groups, layer, leave)) return false;
    Enter(groups, layer);
    if (rows_ == 0) continue;
    if (layer + 1 < config_.layers) {
      Layer(groups, layer);
    } else {
      LastLayer(groups);
    }
  }
  Head(on_logits);
  return true;
}

// False when every group has been made to leave.
bool Forward::DropGroups(std::span<const RowGroup> groups, uint32_t layer, const LeaveFunction& leave) {
  const auto residual = [&](size_t group) {
    return std::span<const float>(x_).subspan(placed_[group].begin * config_.hidden,
                                              placed_[group].rows * config_.hidden);
  };
  leave(layer, residual, &left_);
  const RowBuffer buffers[] = {{x_.data(), config_.hidden}};
  KeepRows(
      groups, [&](size_t group) { return left_[group] ? 0 : placed_[group].rows; }, buffers);
  return std::find(left_.begin(), left_.end(), false) != left_.end() || groups.empty();
}

// Keeps the last rows_of(group) rows of each group in work, and moves them to the front of the buffers.
template <typename RowsOf>
void Forward::KeepRows(std::span<const RowGroup> groups, const RowsOf& rows_of,
                       std::span<const RowBuffer> buffers) {
  size_t kept = 0;
  size_t staying = 0;
  quantized_rows_ = 0;
  for (const size_t group : order_) {
    const size_t rows = rows_of(group);
    if (groups[group].kind != RowKind::kPrompt) quantized_rows_ += rows;
    const size_t from = placed_[group].begin + placed_[group].rows - rows;
    placed_[group] = {kept, rows};
    if (rows == 0) continue;
    for (const RowBuffer& buffer : buffers) {
      if (from == kept) break;
      std::memmove(buffer.data + kept * buffer.stride, buffer.data + from * buffer.stride,
                   rows * buffer.stride * sizeof(float));
    }
    kept += rows;
    order_[staying++] = group;
  }
  order_.resize(staying);
  rows_ = kept;
}

// Puts the rows of groups that begin with `layer` among those in work, which stay in the order of their
// groups.
void Forward::Enter(std::span<const RowGroup> groups, uint32_t layer) {
  const size_t hidden = config_.hidden;
  const auto enters = [&](size_t g) { return !left_[g] && groups[g].first_layer == layer; };
  size_t end = rows_;
  for (size_t g = 0; g < groups.size(); ++g) end += enters(g) ? groups[g].tokens.size() : 0;
  const bool is_changed = end > rows_;
  rows_ = end;
  // From the last to the first: rows move back only.
  for (size_t g = groups.size(); g-- > 0 && is_changed;) {
    const size_t rows = enters(g) ? groups[g].tokens.size() : placed_[g].rows;
    const size_t from = placed_[g].begin;
    end -= rows;
    placed_[g] = {end, rows};
    if (enters(g)) {
      EnterGroup(groups[g], x_.data() + end * hidden);
    } else if (rows > 0 && from != end) {
      std::memmove(&x_[end * hidden], &x_[from * hidden], rows * hidden * sizeof(float));
    }
  }
  if (is_changed) OrderGroups(groups);
  for (const size_t g : order_) {
    if (groups[g].observer == nullptr) continue;
    groups[g].observer->OnEnter(layer, groups[g].first_row,
                                {x_.data() + placed_[g].begin * hidden, placed_[g].rows * hidden});
  }
}

// Writes a group's residual stream at its first layer.
void Forward::EnterGroup(const RowGroup& group, float* x) {
  if (group.first_layer > 0) {
    std::copy_n(group.hidden, group.tokens.size() * config_.hidden, x);
    return;
  }
  for (const TokenId token : group.tokens) {
    DequantizeRow(weights_->embedding, token, {x, config_.hidden});
    x += config_.hidden;
  }
}

void Forward::OrderGroups(std::span<const RowGroup> groups) {
  order_.clear();
  quantized_rows_ = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (placed_[g].rows == 0) continue;
    order_.push_back(g);
    if (groups[g].kind == RowKind::kPrompt) continue;
    EPIC_CHECK(placed_[g].begin == quantized_rows_);
    quantized_rows_ += placed_[g].rows;
  }
}

void Forward::Layer(std::span<const RowGroup> groups, uint32_t layer) {
  const LayerWeights& weights = weights_->layers[layer];
  const size_t stride = QkvWidth(config_);
  Norm(weights.attention_norm, rows_);
  Product({.x = normed_.data(),
           .x_stride = config_.hidden,
           .rows = rows_,
           .out = qkv_.data(),
           .out_stride = stride,
           .bias = BiasAt(weights, 0)},
          weights.qkv);
  float* k = qkv_.data() + QWidth(config_);
  NormHeads(weights.q_norm, config_.heads, rows_, qkv_.data(), stride);
  NormHeads(weights.k_norm, config_.kv_heads, rows_, k, stride);
  WriteKv(groups, layer, k, k + KvWidth(config_), stride);
  Observe(groups, layer, qkv_.data(), stride);
  const RowBuffer buffers[] = {{x_.data(), config_.hidden}, {qkv_.data(), stride}};
  KeepRows(
      groups, [&](size_t g) { return LastLayerOf(groups[g]) == layer ? 0 : placed_[g].rows; }, buffers);
  if (rows_ == 0) return;
  Attend(groups, layer, qkv_.data(), stride);
  OutputAndMlp(weights, rows_);
}

// Every row leaves its keys and values; only rows whose queries are observed or whose logits are wanted go
// on.
void Forward::LastLayer(std::span<const RowGroup> groups) {
  const uint32_t layer = config_.layers - 1;
  const LayerWeights& weights = weights_->layers[layer];
  const size_t kv_stride = 2 * KvWidth(config_);
  Norm(weights.attention_norm, rows_);
  Product({.x = normed_.data(),
           .x_stride = config_.hidden,
           .rows = rows_,
           .out = qkv_.data(),
           .out_stride = kv_stride,
           .bias = BiasAt(weights, QWidth(config_))},
          weights.kv);
  NormHeads(weights.k_norm, config_.kv_heads, rows_, qkv_.data(), kv_stride);
  WriteKv(groups, layer, qkv_.data(), qkv_.data() + KvWidth(config_), kv_stride);
  const auto observed = [&](size_t g) {
    return groups[g].observer != nullptr && groups[g].observer->WantsQueries(layer);
  };
  const RowBuffer queried[] = {{x_.data(), config_.hidden}, {normed_.data(), config_.hidden}};
  KeepRows(
      groups, [&](size_t g) { return observed(g) ? placed_[g].rows : size_t{groups[g].logits_rows}; },
      queried);
  if (rows_ == 0) return;
  const size_t q_stride = QWidth(config_);
  Product({.x = normed_.data(),
           .x_stride = config_.hidden,
           .rows = rows_,
           .out = qkv_.data(),
           .out_stride = q_stride,
           .bias = BiasAt(weights, 0)},
          weights.q);
  NormHeads(weights.q_norm, config_.heads, rows_, qkv_.data(), q_stride);
  Observe(groups, layer, qkv_.data(), q_stride);
  const RowBuffer wanted[] = {{x_.data(), config_.hidden}, {qkv_.data(), q_stride}};
  KeepRows(
      groups, [&](size_t g) { return std::min(placed_[g].rows, size_t{groups[g].logits_rows}); }, wanted);
  if (rows_ == 0) return;
  Attend(groups, layer, qkv_.data(), q_stride);
  OutputAndMlp(weights, rows_);
}

void Forward::WriteKv(std::span<const RowGroup> groups, uint32_t layer, float* k, float* v, size_t stride) {
  const auto write = [&](size_t g, ThreadPool* pool) {
    const RowGroup& group = groups[g];
    KvWriteArgs args;
    args.in = k + placed_[g].begin * stride;
    args.in_stride = stride;
    args.rows = placed_[g].rows;
    args.kv_heads = config_.kv_heads;
    args.head_dim = config_.head_dim;
    args.rope = rope_;
    args.positions = group.block->positions().data() + group.first_row;
    args.out = group.block->k(layer);
    args.dtype = DTypeOf(shape_.dtype);
    args.head_stride = group.block->head_stride();
    args.first_row = group.first_row;
    KvWrite(args, pool);
    args.in = v + placed_[g].begin * stride;
    args.rope = nullptr;
    args.positions = nullptr;
    args.out = group.block->v(layer);
    KvWrite(args, pool);
  };
  const size_t threads = pool_->threads();
  if (order_.size() >= kGroupsPerThread * threads && rows_ >= kRowsPerThread * threads) {
    pool_->ParallelFor(order_.size(), [&](size_t i, uint32_t /*worker*/) { write(order_[i], nullptr); });
    return;
  }
  for (const size_t g : order_) write(g, pool_);
}

// The attention of a group's rows in a layer, but for its output. Its segments are valid until the next call.
SegmentAttentionArgs Forward::AttentionOf(const RowGroup& group, const Placed& placed, uint32_t layer,
                                          const float* q, size_t q_stride) {
  const auto end = group.first_row + static_cast<uint32_t>(group.tokens.size());
  const uint32_t* positions = group.block->positions().data() + end - placed.rows;
  const LayerBand& band = group.BandAt(layer);
  segments_.clear();
  for (const SharedSegment& segment : band.shared) {
    if (segment.position > positions[placed.rows - 1]) break;
    segments_.push_back(segment.View(shape_, layer));
  }
  if (band.before != nullptr) segments_.push_back(band.before->PrivateView(layer, band.before->capacity()));
  if (band.own_first_row < end) {
    segments_.push_back(group.block->PrivateView(layer, end));
    segments_.back().first_row = band.own_first_row;
  }
  SegmentAttentionArgs args;
  args.q = q + placed.begin * q_stride;
  args.q_stride = q_stride;
  args.q_positions = positions;
  args.rows = placed.rows;
  args.heads = config_.heads;
  args.kv_heads = config_.kv_heads;
  args.head_dim = config_.head_dim;
  args.scale = AttentionScale(config_);
  args.segments = segments_;
  args.rope = rope_;
  args.arithmetic = weights_->layers.front().output.prompt->format();
  return args;
}

void Forward::Observe(std::span<const RowGroup> groups, uint32_t layer, const float* q, size_t q_stride) {
  for (const size_t g : order_) {
    GroupObserver* const observer = groups[g].observer;
    if (observer == nullptr || !observer->WantsQueries(layer)) continue;
    observer->OnQueries(layer, AttentionOf(groups[g], placed_[g], layer, q, q_stride), pool_);
  }
}

void Forward::Attend(std::span<const RowGroup> groups, uint32_t layer, const float* q, size_t q_stride) {
  group_segments_.clear();
  std::vector<DecodeRow> decode;
  std::vector<SegmentAttentionArgs> prompt;
  for (const size_t g : order_) {
    SegmentAttentionArgs args = AttentionOf(groups[g], placed_[g], layer, q, q_stride);
    group_segments_.push_back(std::move(segments_));
    args.segments = group_segments_.back();
    args.out_stride = QWidth(config_);
    args.out = mixed_.data() + placed_[g].begin * args.out_stride;
    if (groups[g].kind != RowKind::kDecode) {
      prompt.push_back(args);
      continue;
    }
    for (size_t r = 0; r < args.rows; ++r) {
      decode.push_back(
          {args.q + r * q_stride, args.q_positions[r], args.segments, args.out + r * args.out_stride});
    }
  }
  SegmentAttentionOfEach(prompt, pool_);
  // All at once: what several of them read is read once.
  DecodeAttention({.rows = decode,
                   .heads = config_.heads,
                   .kv_heads = config_.kv_heads,
                   .head_dim = config_.head_dim,
                   .scale = AttentionScale(config_),
                   .rope = rope_},
                  pool_);
}

void Forward::OutputAndMlp(const LayerWeights& weights, size_t rows) {
  const size_t hidden = config_.hidden;
  Product({.x = mixed_.data(),
           .x_stride = QWidth(config_),
           .rows = rows,
           .out = x_.data(),
           .out_stride = hidden,
           .accumulate = true},
          weights.output);
  Norm(weights.ffn_norm, rows);
  const size_t stride = 2 * size_t{config_.ffn};
  // Gated already, but for rows that are multiplied with the quantised form.
  Product({.x = normed_.data(), .x_stride = hidden, .rows = rows, .out = gates_.data(), .out_stride = stride},
          weights.gate_up);
  SwiGluArgs gate;
  gate.gate = gates_.data();
  gate.up = gates_.data() + config_.ffn;
  gate.in_stride = stride;
  gate.rows = weights.gate_up.decode == nullptr ? 0 : std::min(rows, quantized_rows_);
  gate.dim = config_.ffn;
  gate.out = gates_.data();
  gate.out_stride = stride;
  SwiGlu(gate, pool_);
  Product({.x = gates_.data(),
           .x_stride = stride,
           .rows = rows,
           .out = x_.data(),
           .out_stride = hidden,
           .accumulate = true},
          weights.down);
}

void Forward::Norm(const std::vector<float>& weight, size_t rows) {
  RmsNormArgs args;
  args.x = x_.data();
  args.x_stride = config_.hidden;
  args.rows = rows;
  args.dim = config_.hidden;
  args.weight = weight.data();
  args.epsilon = static_cast<float>(config_.rms_epsilon);
  args.out = normed_.data();
  args.out_stride = config_.hidden;
  RmsNorm(args, pool_);
}

void Forward::NormHeads(const std::vector<float>& weight, uint32_t heads, size_t rows, float* x,
                        size_t stride) {
  if (weight.empty()) return;
  RmsNormArgs args;
  args.x = x;
  args.x_stride = stride;
  args.rows = rows;
  args.groups = heads;
  args.dim = config_.head_dim;
  args.weight = weight.data();
  args.epsilon = static_cast<float>(config_.rms_epsilon);
  args.out = x;
  args.out_stride = stride;
  RmsNorm(args, pool_);
}

void Forward::Product(const ProductRows& rows, const Projection& matrix) {
  size_t quantized = 0;
  if (matrix.decode != nullptr && quantized_rows_ > rows.first) {
    quantized = std::min(rows.rows, quantized_rows_ - rows.first);
    QuantizedMatMulArgs args;
    args.x = rows.x;
    args.rows = quantized;
    args.x_stride = rows.x_stride;
    args.weights = matrix.decode.get();
    args.bias = rows.bias;
    args.out = rows.out;
    args.out_stride = rows.out_stride;
    args.accumulate = rows.accumulate;
    QuantizedMatMul(args, pool_);
  }
  MatMulArgs args;
  args.x = rows.x + quantized * rows.x_stride;
  args.rows = rows.rows - quantized;
  args.x_stride = rows.x_stride;
  args.weights = matrix.prompt.get();
  args.bias = rows.bias;
  args.out = rows.out + quantized * rows.out_stride;
  args.out_stride = rows.out_stride;
  args.accumulate = rows.accumulate;
  MatMul(args, pool_);
}

void Forward::Head(const LogitsFunction& on_logits) {
  if (rows_ == 0) return;
  Norm(weights_->output_norm, rows_);
  size_t next = 0;  // in order_
  for (size_t begin = 0; begin < rows_; begin += kHeadRows) {
    const size_t rows = std::min(kHeadRows, rows_ - begin);
    Product({.x = normed_.data() + begin * config_.hidden,
             .x_stride = config_.hidden,
             .first = begin,
             .rows = rows,
             .out = logits_.data(),
             .out_stride = config_.vocab},
            weights_->head);
    for (size_t r = 0; r < rows; ++r) {
      const size_t row = begin + r;
      while (row >= placed_[order_[next]].begin + placed_[order_[next]].rows) ++next;
      const size_t group = order_[next];
      on_logits(group, static_cast<uint32_t>(row - placed_[group].begin),
                {logits_.data() + r * config_.vocab, config_.vocab});
    }
  }
}

}  // namespace epic
