// A model's weights as the forward pass reads them: packed once, in f32 or bf16 for prompt rows, and in the
// levels of the model's own file (8 bits where it has none) for decode rows; immutable, shared by threads.
//
// Owned by the engine for its life. Nothing in here refers to the Model, which may go.
#ifndef EPIC_SERVICES_ENGINE_WEIGHTS_H_
#define EPIC_SERVICES_ENGINE_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/api/thread_pool.h"
#include "kernels/matmul/matmul.h"
#include "kernels/quantized_matmul/quantized_matmul.h"
#include "services/engine/engine.h"
#include "services/model/model.h"

namespace epic {

// One matrix in the two forms. Without `decode` every row is multiplied with `prompt`.
struct Projection {
  std::unique_ptr<const PackedMatrix> prompt;
  std::unique_ptr<const QuantizedMatrix> decode;
};

struct LayerWeights {
  std::vector<float> attention_norm;  // [hidden]
  std::vector<float> ffn_norm;        // [hidden]
  std::vector<float> q_norm, k_norm;  // [head_dim], or empty
  std::vector<float> qkv_bias;        // [(H + 2G) * D], or empty
  // [(H + 2G) * D][hidden]. The last layer has q and kv in its place: few of its rows need a query.
  Projection qkv;
  Projection q;   // [H * D][hidden], last layer only
  Projection kv;  // [2G * D][hidden], last layer only
  Projection output;
  Projection gate_up;  // [2 * ffn][hidden], gate first; a gated matrix for prompt rows
  Projection down;
};

struct Weights {
  // [vocab][hidden] in its storage format: rows are decoded as prompts name them. A copy of its own.
  Tensor embedding;
  std::vector<std::byte> embedding_bytes;
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;  // [hidden]
  Projection head;
  uint64_t bytes = 0;
};

// Reads and packs every tensor. Progress may be null; it hears of each layer and, last, of the head.
// Errors: InvalidArgument (a tensor whose shape disagrees with the configuration; the message names it), and
// those of PackMatrix.
absl::StatusOr<std::unique_ptr<const Weights>> PackWeights(const Model& model, DType format,
                                                           DecodeWeights decode, ThreadPool* pool,
                                                           PackProgress* progress);

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_WEIGHTS_H_
