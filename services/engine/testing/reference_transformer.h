// The transformer as the formulas say it: double precision, one row after another, keys rotated to absolute
// positions, an explicit sum over all earlier rows. Independent of the engine and of its kernels.
//
// For tiny models: nothing here is fast. Immutable after construction. Tests only.
#ifndef EPIC_SERVICES_ENGINE_TESTING_REFERENCE_TRANSFORMER_H_
#define EPIC_SERVICES_ENGINE_TESTING_REFERENCE_TRANSFORMER_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/storage/cache_id.h"
#include "services/model/model.h"

namespace epic::testing {

// Keys (not rotated) and values of rows. Shape of each: [layers][rows][kv_heads * head_dim].
struct ReferenceKv {
  std::vector<std::vector<std::vector<double>>> k, v;
};

struct ReferenceRun {
  std::vector<std::vector<double>> logits;  // of computed rows, ascending. [rows][vocab]
  ReferenceKv kv;                           // of all rows
};

// Which rows a layer computes. Ascending; `through` is part of `keys`, and of `through` of the layer before.
struct ReferenceLayerRows {
  std::vector<uint32_t> keys;     // keys and values; all others are stored ones
  std::vector<uint32_t> through;  // attention and MLP too
  std::vector<uint32_t> hidden;   // ascending; no row but itself sees one of these
};

// Attention weights of one row and head over rows 0..row.
using ReferenceWeights =
    std::function<void(uint32_t layer, uint32_t row, uint32_t head, const std::vector<double>& weights)>;

class ReferenceTransformer {
 public:
  explicit ReferenceTransformer(const Model& model, RopePairing pairing);
  explicit ReferenceTransformer(const Model& model)
      : ReferenceTransformer(model, model.config().rope.pairing) {}

  // Every row computed, positions from 0.
  ReferenceRun Prefill(std::span<const TokenId> tokens) const;

  // Only `rows` (ascending) are computed; the others' keys and values are those of `stored`.
  ReferenceRun Link(std::span<const TokenId> tokens, std::span<const uint32_t> rows,
                    const ReferenceKv& stored) const;

  // The same with the rows of each layer. Logits are those of the last layer's `through`.
  ReferenceRun LinkByLayer(std::span<const TokenId> tokens, std::span<const ReferenceLayerRows> layers,
                           const ReferenceKv& stored, const ReferenceWeights& on_weights = {}) const;

 private:
  struct Matrix {
    size_t rows = 0, cols = 0;
    std::vector<float> values;
  };
  struct LayerMatrices {
    Matrix attention_norm, q, k, v, q_bias, k_bias, v_bias, q_norm, k_norm, output, ffn_norm, gate, up, down;
  };
  static Matrix Read(const Tensor& tensor);
  std::vector<double> Multiply(const Matrix& matrix, const std::vector<double>& x,
                               const Matrix* bias = nullptr) const;
  std::vector<double> Norm(const std::vector<double>& x, const Matrix& weight) const;
  void NormHeads(std::vector<double>* x, const Matrix& weight) const;
  std::vector<double> Rotate(const std::vector<double>& x, uint32_t position) const;
  std::vector<double> Attend(uint32_t layer, const std::vector<uint32_t>& hidden,
                             const std::vector<double>& q, uint32_t position,
                             const std::vector<std::vector<double>>& rotated_k,
                             const std::vector<std::vector<double>>& v,
                             const ReferenceWeights& on_weights) const;

  const ModelConfig config_;
  const RopePairing pairing_;
  std::vector<double> theta_;
  double rotated_length_ = 1.0;  // of a rotated unit vector: YaRN's attention factor
  Matrix embedding_, output_norm_, head_;
  std::vector<LayerMatrices> layers_;
};

}  // namespace epic::testing

#endif  // EPIC_SERVICES_ENGINE_TESTING_REFERENCE_TRANSFORMER_H_
