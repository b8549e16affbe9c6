// A model as read from disk: tensors, configuration, tokenizer data, chat template and identity.
//
// Model::Load accepts a GGUF file (v2, v3) or a Hugging Face directory. Files are untrusted: every count and
// offset is checked against the file's size, and a bad file is an InvalidArgument that names the file and the
// field. Immutable after loading and thread-safe. Tensor bytes are in memory as long as the Model lives: it
// is let go once the engine has packed them, and files may change or go once Load has returned.
#ifndef EPIC_SERVICES_MODEL_MODEL_H_
#define EPIC_SERVICES_MODEL_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/base/digest.h"
#include "services/model/model_config.h"
#include "services/model/tokenizer_spec.h"

namespace epic {

// Storage formats, with the ids of GGUF. Blocks of 32 values, of 256 for the _K ones, of 1 for the plain
// ones.
enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBf16 = 30,
};

// A matrix of [rows][cols] (a vector has rows == 1), row-major, in its storage format.
// For a projection rows = outputs and cols = inputs.
struct Tensor {
  std::string name;
  TensorType type = TensorType::kF32;
  uint64_t rows = 0;
  uint64_t cols = 0;
  ByteSpan data;
  bool present() const { return !data.empty(); }
  uint64_t RowBytes() const { return rows == 0 ? 0 : data.size() / rows; }
};

// Values and bytes of one block of `type`.
struct BlockShape {
  uint32_t values = 0;
  uint32_t bytes = 0;
};
BlockShape BlockShapeOf(TensorType type);
std::string_view NameOf(TensorType type);

// Dequantises row `row` to f32. REQUIRES: row < tensor.rows, out.size() == tensor.cols.
void DequantizeRow(const Tensor& tensor, uint64_t row, std::span<float> out);

// 32 neighbouring values of a row as levels: value[i] = scale * levels[i] + minimum.
struct LevelGroup {
  float scale = 0;
  float minimum = 0;
  uint8_t levels[32] = {};
};
// Bits of a level (4, 5 or 8) where rows of `type` are such groups as they are stored; 0 where they are not.
uint32_t LevelBitsOf(TensorType type);
// The groups of row `row`. REQUIRES: row < tensor.rows, LevelBitsOf(tensor.type) != 0,
// groups.size() * 32 == tensor.cols.
void ReadLevels(const Tensor& tensor, uint64_t row, std::span<LevelGroup> groups);

struct LayerTensors {
  Tensor attention_norm;          // [1][hidden]
  Tensor q, k, v;                 // [heads*D][hidden], [kv_heads*D][hidden] twice
  Tensor q_bias, k_bias, v_bias;  // qwen2, else absent
  Tensor q_norm, k_norm;          // [1][D], qwen3, else absent
  Tensor output;                  // [hidden][heads*D]
  Tensor ffn_norm;                // [1][hidden]
  Tensor gate, up;                // [ffn][hidden]
  Tensor down;                    // [hidden][ffn]
};

class Model {
 public:
  virtual ~Model() = default;
  // Errors: NotFound (no such file), InvalidArgument (malformed, or an architecture or feature that EPIC
  // refuses; the message names it and says what works; or a file was changed, cut or replaced while it was
  // read), ResourceExhausted (the files do not fit into memory).
  static absl::StatusOr<std::shared_ptr<const Model>> Load(const std::string& path);

  virtual const ModelConfig& config() const = 0;
  virtual const TokenizerSpec& tokenizer_spec() const = 0;
  // Jinja source; empty when the file has none.
  virtual const std::string& chat_template_source() const = 0;
  virtual const Tensor& embedding() const = 0;    // [vocab][hidden]
  virtual const Tensor& output_norm() const = 0;  // [1][hidden]
  virtual const Tensor& head() const = 0;         // [vocab][hidden]; the embedding when tied
  virtual const LayerTensors& layer(uint32_t layer) const = 0;
  // SHA-256 over the canonical encoding of architecture and rotary parameters, the tokenizer, and the digests
  // of the raw tensor bytes in name order. Computed once, at load, from the bytes that are packed.
  virtual const Digest& identity() const = 0;
  virtual uint64_t parameter_count() const = 0;
  virtual uint64_t file_bytes() const = 0;
};

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_MODEL_H_
