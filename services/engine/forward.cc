#include "services/engine/forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/segment_attention/segment_attention.h"
#include "kernels/swiglu/swiglu.h"

namespace epic {
namespace {

// Rows whose logits are held at once; scoring may need many more than that in a step.
constexpr size_t kHeadRows = 32;

size_t QWidth(const ModelConfig& config) { return size_t{config.heads} * config.head_dim; }
size_t KvWidth(const ModelConfig& config) { return size_t{config.kv_heads} * config.head_dim; }
size_t QkvWidth(const ModelConfig& config) { return QWidth(config) + 2 * KvWidth(config); }

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

bool Forward::Run(std::span<const RowGroup> groups, const LeaveFunction& leave,
                  const LogitsFunction& on_logits) {
  placed_.clear();
  left_.assign(groups.size(), false);
  rows_ = 0;
  decode_rows_ = 0;
  for (const RowGroup& group : groups) {
    EPIC_CHECK(group.logits_rows <= group.tokens.size());
    EPIC_CHECK(group.first_row + group.tokens.size() <= group.block->capacity());
    placed_.push_back({rows_, group.tokens.size()});
    rows_ += group.tokens.size();
    if (group.kind == RowKind::kDecode) {
      decode_rows_ += group.tokens.size();
      EPIC_CHECK(decode_rows_ == rows_);
    }
  }
  EPIC_CHECK(rows_ <= max_rows_);
  Embed(groups);
  for (uint32_t layer = 0; layer + 1 < config_.layers; ++layer) {
    if (!DropRows(groups, leave)) return false;
    Layer(groups, layer);
  }
  if (!DropRows(groups, leave)) return false;
  LastLayer(groups);
  Head(groups, on_logits);
  return true;
}

// Moves the rows of the groups that stay to the front of x_. False when none stays.
bool Forward::DropRows(std::span<const RowGroup> groups, const LeaveFunction& leave) {
  leave(&left_);
  const size_t hidden = config_.hidden;
  size_t kept = 0;
  decode_rows_ = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const size_t rows = left_[g] ? 0 : placed_[g].rows;
    if (groups[g].kind == RowKind::kDecode) decode_rows_ += rows;
    const size_t from = placed_[g].begin;
    placed_[g] = {kept, rows};
    if (rows > 0 && from != kept)
      std::memmove(&x_[kept * hidden], &x_[from * hidden], rows * hidden * sizeof(float));
    kept += rows;
  }
  rows_ = kept;
  return std::find(left_.begin(), left_.end(), false) != left_.end();
}

void Forward::Embed(std::span<const RowGroup> groups) {
  const Tensor& table = weights_->embedding;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t i = 0; i < groups[g].tokens.size(); ++i) {
      float* row = x_.data() + (placed_[g].begin + i) * config_.hidden;
      DequantizeRow(table, groups[g].tokens[i], {row, config_.hidden});
    }
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
  Attend(groups, layer, qkv_.data(), stride);
  OutputAndMlp(weights, rows_);
}

// Every row leaves its keys and values; only rows whose logits are wanted go on.
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
  KeepLogitsRows(groups);
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
  Attend(groups, layer, qkv_.data(), q_stride);
  OutputAndMlp(weights, rows_);
}

void Forward::WriteKv(std::span<const RowGroup> groups, uint32_t layer, float* k, float* v, size_t stride) {
  for (size_t g = 0; g < groups.size(); ++g) {
    if (placed_[g].rows == 0) continue;
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
    KvWrite(args, pool_);
    args.in = v + placed_[g].begin * stride;
    args.rope = nullptr;
    args.positions = nullptr;
    args.out = group.block->v(layer);
    KvWrite(args, pool_);
  }
}

void Forward::Attend(std::span<const RowGroup> groups, uint32_t layer, const float* q, size_t q_stride) {
  std::vector<KvSegment> segments;
  for (size_t g = 0; g < groups.size(); ++g) {
    const RowGroup& group = groups[g];
    const size_t rows = placed_[g].rows;
    if (rows == 0) continue;
    const auto end = group.first_row + static_cast<uint32_t>(group.tokens.size());
    const uint32_t* positions = group.block->positions().data() + end - rows;
    segments.clear();
    for (const SharedSegment& segment : group.shared) {
      if (segment.position > positions[rows - 1]) break;
      segments.push_back(segment.View(shape_, layer));
    }
    if (group.before != nullptr)
      segments.push_back(group.before->PrivateView(layer, group.before->capacity()));
    segments.push_back(group.block->PrivateView(layer, end));
    SegmentAttentionArgs args;
    args.q = q + placed_[g].begin * q_stride;
    args.q_stride = q_stride;
    args.q_positions = positions;
    args.rows = rows;
    args.heads = config_.heads;
    args.kv_heads = config_.kv_heads;
    args.head_dim = config_.head_dim;
    args.scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
    args.segments = segments;
    args.rope = rope_;
    args.out_stride = QWidth(config_);
    args.out = mixed_.data() + placed_[g].begin * args.out_stride;
    SegmentAttention(args, pool_);
  }
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
  Product({.x = normed_.data(), .x_stride = hidden, .rows = rows, .out = gates_.data(), .out_stride = stride},
          weights.gate_up);
  SwiGluArgs gate;
  gate.gate = gates_.data();
  gate.up = gates_.data() + config_.ffn;
  gate.in_stride = stride;
  gate.rows = rows;
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

// Moves the rows with logits to the front of x_ and normed_, and drops the others from the step.
void Forward::KeepLogitsRows(std::span<const RowGroup> groups) {
  const size_t hidden = config_.hidden;
  size_t kept = 0;
  decode_rows_ = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const size_t rows = left_[g] ? 0 : groups[g].logits_rows;
    if (groups[g].kind == RowKind::kDecode) decode_rows_ += rows;
    const size_t from = placed_[g].begin + placed_[g].rows - rows;
    placed_[g] = {kept, rows};
    if (rows > 0 && from != kept) {
      std::memmove(&x_[kept * hidden], &x_[from * hidden], rows * hidden * sizeof(float));
      std::memmove(&normed_[kept * hidden], &normed_[from * hidden], rows * hidden * sizeof(float));
    }
    kept += rows;
  }
  rows_ = kept;
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
  size_t decode = 0;
  if (matrix.decode != nullptr && decode_rows_ > rows.first) {
    decode = std::min(rows.rows, decode_rows_ - rows.first);
    QuantizedMatMulArgs args;
    args.x = rows.x;
    args.rows = decode;
    args.x_stride = rows.x_stride;
    args.weights = matrix.decode.get();
    args.bias = rows.bias;
    args.out = rows.out;
    args.out_stride = rows.out_stride;
    args.accumulate = rows.accumulate;
    QuantizedMatMul(args, pool_);
  }
  MatMulArgs args;
  args.x = rows.x + decode * rows.x_stride;
  args.rows = rows.rows - decode;
  args.x_stride = rows.x_stride;
  args.weights = matrix.prompt.get();
  args.bias = rows.bias;
  args.out = rows.out + decode * rows.out_stride;
  args.out_stride = rows.out_stride;
  args.accumulate = rows.accumulate;
  MatMul(args, pool_);
}

void Forward::Head(std::span<const RowGroup> groups, const LogitsFunction& on_logits) {
  if (rows_ == 0) return;
  Norm(weights_->output_norm, rows_);
  size_t group = 0;
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
      while (row >= placed_[group].begin + placed_[group].rows) ++group;
      on_logits(group, static_cast<uint32_t>(row - placed_[group].begin),
                {logits_.data() + r * config_.vocab, config_.vocab});
    }
  }
}

}  // namespace epic
