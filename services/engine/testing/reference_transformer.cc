#include "services/engine/testing/reference_transformer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace epic::testing {
namespace {

// YaRN (arXiv 2309.00071) by counting turns: pair j turns base^(-2j/D) * L / 2 pi times within the original
// context. From the last pair that still turns beta_fast times to the first that turns at most beta_slow
// times, interpolation by the factor grows linearly.
std::vector<double> YarnTheta(const RopeConfig& rope, uint32_t head_dim) {
  const auto theta = [&](double j) { return std::pow(rope.base, -2.0 * j / head_dim); };
  const auto turns = [&](double j) {
    return theta(j) * rope.original_context_length / (2 * std::acos(-1.0));
  };
  uint32_t low = 0, high = 0;
  while (low + 1 < head_dim && turns(low + 1) >= rope.beta_fast) ++low;
  while (high + 1 < head_dim && turns(high) > rope.beta_slow) ++high;
  std::vector<double> out;
  for (uint32_t j = 0; j < head_dim / 2; ++j) {
    const double width = high > low ? high - low : 0.001;
    const double share = std::clamp((static_cast<double>(j) - low) / width, 0.0, 1.0);
    out.push_back(theta(j) * (1 - share) + theta(j) / rope.factor * share);
  }
  return out;
}

}  // namespace

ReferenceTransformer::Matrix ReferenceTransformer::Read(const Tensor& tensor) {
  Matrix matrix{tensor.rows, tensor.cols, std::vector<float>(tensor.rows * tensor.cols)};
  for (uint64_t row = 0; row < tensor.rows; ++row) {
    DequantizeRow(tensor, row, std::span<float>(matrix.values).subspan(row * tensor.cols, tensor.cols));
  }
  return matrix;
}

ReferenceTransformer::ReferenceTransformer(const Model& model, RopePairing pairing)
    : config_(model.config()),
      pairing_(pairing),
      embedding_(Read(model.embedding())),
      output_norm_(Read(model.output_norm())),
      head_(Read(model.head())) {
  for (uint32_t j = 0; j < config_.head_dim / 2; ++j) {
    double theta = std::pow(config_.rope.base, -2.0 * j / config_.head_dim);
    if (config_.rope.scaling == RopeScaling::kLinear) theta /= config_.rope.factor;
    if (config_.rope.scaling == RopeScaling::kLlama3) theta /= config_.rope.divisors[j];
    theta_.push_back(theta);
  }
  if (config_.rope.scaling == RopeScaling::kYarn) {
    theta_ = YarnTheta(config_.rope, config_.head_dim);
    rotated_length_ = config_.rope.attention_factor;
  }
  for (uint32_t l = 0; l < config_.layers; ++l) {
    const LayerTensors& in = model.layer(l);
    layers_.push_back({Read(in.attention_norm), Read(in.q), Read(in.k), Read(in.v), Read(in.q_bias),
                       Read(in.k_bias), Read(in.v_bias), Read(in.q_norm), Read(in.k_norm), Read(in.output),
                       Read(in.ffn_norm), Read(in.gate), Read(in.up), Read(in.down)});
  }
}

std::vector<double> ReferenceTransformer::Multiply(const Matrix& matrix, const std::vector<double>& x,
                                                   const Matrix* bias) const {
  std::vector<double> out(matrix.rows, 0.0);
  for (size_t r = 0; r < matrix.rows; ++r) {
    for (size_t c = 0; c < matrix.cols; ++c) out[r] += double{matrix.values[r * matrix.cols + c]} * x[c];
    if (bias != nullptr && !bias->values.empty()) out[r] += bias->values[r];
  }
  return out;
}

std::vector<double> ReferenceTransformer::Norm(const std::vector<double>& x, const Matrix& weight) const {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1.0 / std::sqrt(squares / x.size() + config_.rms_epsilon);
  std::vector<double> out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight.values[i];
  return out;
}

void ReferenceTransformer::NormHeads(std::vector<double>* x, const Matrix& weight) const {
  if (weight.values.empty()) return;
  for (size_t begin = 0; begin < x->size(); begin += config_.head_dim) {
    const std::vector<double> head(x->begin() + begin, x->begin() + begin + config_.head_dim);
    const std::vector<double> normed = Norm(head, weight);
    std::copy(normed.begin(), normed.end(), x->begin() + begin);
  }
}

std::vector<double> ReferenceTransformer::Rotate(const std::vector<double>& x, uint32_t position) const {
  const size_t half = config_.head_dim / 2;
  std::vector<double> out(x.size());
  for (size_t head = 0; head < x.size(); head += config_.head_dim) {
    for (size_t j = 0; j < half; ++j) {
      const size_t a = head + (pairing_ == RopePairing::kNorm ? 2 * j : j);
      const size_t b = head + (pairing_ == RopePairing::kNorm ? 2 * j + 1 : j + half);
      const double c = rotated_length_ * std::cos(position * theta_[j]);
      const double s = rotated_length_ * std::sin(position * theta_[j]);
      out[a] = x[a] * c - x[b] * s;
      out[b] = x[a] * s + x[b] * c;
    }
  }
  return out;
}

std::vector<double> ReferenceTransformer::Attend(uint32_t layer, const std::vector<uint32_t>& hidden,
                                                 const std::vector<double>& q, uint32_t position,
                                                 const std::vector<std::vector<double>>& rotated_k,
                                                 const std::vector<std::vector<double>>& v,
                                                 const ReferenceWeights& on_weights) const {
  const size_t dim = config_.head_dim;
  std::vector<double> out(q.size(), 0.0);
  for (uint32_t head = 0; head < config_.heads; ++head) {
    const size_t kv = head / (config_.heads / config_.kv_heads) * dim;
    std::vector<double> weights(position + 1, 0.0);
    for (uint32_t row = 0; row <= position; ++row) {
      for (size_t d = 0; d < dim; ++d) weights[row] += q[head * dim + d] * rotated_k[row][kv + d];
      weights[row] /= std::sqrt(static_cast<double>(dim));
      if (row < position && std::binary_search(hidden.begin(), hidden.end(), row)) {
        weights[row] = -std::numeric_limits<double>::infinity();
      }
    }
    const double highest = *std::max_element(weights.begin(), weights.end());
    double total = 0;
    for (double& weight : weights) total += weight = std::exp(weight - highest);
    for (double& weight : weights) weight /= total;
    for (uint32_t row = 0; row <= position; ++row) {
      for (size_t d = 0; d < dim; ++d) out[head * dim + d] += weights[row] * v[row][kv + d];
    }
    if (on_weights) on_weights(layer, position, head, weights);
  }
  return out;
}

ReferenceRun ReferenceTransformer::Prefill(std::span<const TokenId> tokens) const {
  std::vector<uint32_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0u);
  ReferenceKv empty;
  const std::vector<std::vector<double>> nothing(tokens.size());
  empty.k.assign(config_.layers, nothing);
  empty.v.assign(config_.layers, nothing);
  return Link(tokens, rows, empty);
}

ReferenceRun ReferenceTransformer::Link(std::span<const TokenId> tokens, std::span<const uint32_t> rows,
                                        const ReferenceKv& stored) const {
  const std::vector<uint32_t> same(rows.begin(), rows.end());
  const std::vector<ReferenceLayerRows> layers(config_.layers, {.keys = same, .through = same});
  return LinkByLayer(tokens, layers, stored);
}

ReferenceRun ReferenceTransformer::LinkByLayer(std::span<const TokenId> tokens,
                                               std::span<const ReferenceLayerRows> layers,
                                               const ReferenceKv& stored,
                                               const ReferenceWeights& on_weights) const {
  ReferenceRun run;
  run.kv = stored;
  std::map<uint32_t, std::vector<double>> hidden;
  for (const uint32_t row : layers[0].keys) {
    const float* begin = &embedding_.values[tokens[row] * embedding_.cols];
    hidden[row].assign(begin, begin + embedding_.cols);
  }
  for (uint32_t l = 0; l < config_.layers; ++l) {
    const LayerMatrices& layer = layers_[l];
    for (const uint32_t row : layers[l].keys) {
      const std::vector<double> x = Norm(hidden.at(row), layer.attention_norm);
      run.kv.k[l][row] = Multiply(layer.k, x, &layer.k_bias);
      NormHeads(&run.kv.k[l][row], layer.k_norm);
      run.kv.v[l][row] = Multiply(layer.v, x, &layer.v_bias);
    }
    std::vector<std::vector<double>> rotated;
    for (uint32_t row = 0; row < tokens.size(); ++row) rotated.push_back(Rotate(run.kv.k[l][row], row));
    for (const uint32_t row : layers[l].through) {
      std::vector<double>& h = hidden.at(row);
      std::vector<double> q = Multiply(layer.q, Norm(h, layer.attention_norm), &layer.q_bias);
      NormHeads(&q, layer.q_norm);
      const auto mixed = Multiply(
          layer.output, Attend(l, layers[l].hidden, Rotate(q, row), row, rotated, run.kv.v[l], on_weights));
      for (size_t d = 0; d < mixed.size(); ++d) h[d] += mixed[d];
      const std::vector<double> x = Norm(h, layer.ffn_norm);
      std::vector<double> gate = Multiply(layer.gate, x);
      const std::vector<double> up = Multiply(layer.up, x);
      for (size_t d = 0; d < gate.size(); ++d) gate[d] = gate[d] / (1.0 + std::exp(-gate[d])) * up[d];
      const std::vector<double> down = Multiply(layer.down, gate);
      for (size_t d = 0; d < down.size(); ++d) h[d] += down[d];
    }
  }
  for (const uint32_t row : layers[config_.layers - 1].through) {
    run.logits.push_back(Multiply(head_, Norm(hidden.at(row), output_norm_)));
  }
  return run;
}

}  // namespace epic::testing
