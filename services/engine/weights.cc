#include "services/engine/weights.h"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "common/status/status_macros.h"

namespace epic {
namespace {

absl::Status ExpectShape(const Tensor& tensor, uint64_t rows, uint64_t cols) {
  if (tensor.present() && tensor.rows == rows && tensor.cols == cols) return absl::OkStatus();
  return absl::InvalidArgumentError("tensor '" + tensor.name + "' is [" + std::to_string(tensor.rows) + "][" +
                                    std::to_string(tensor.cols) + "], the configuration asks for [" +
                                    std::to_string(rows) + "][" + std::to_string(cols) + "]");
}

absl::StatusOr<std::vector<float>> ReadVector(const Tensor& tensor, uint64_t size) {
  EPIC_RETURN_IF_ERROR(ExpectShape(tensor, 1, size));
  std::vector<float> values(size);
  DequantizeRow(tensor, 0, values);
  return values;
}

// A tensor that one packed matrix takes rows of, and how many it must have.
struct Part {
  const Tensor* tensor;
  uint64_t rows;
};

struct TensorRow {
  const Tensor& tensor;
  uint64_t row;
};

// Row `index` of the joined parts.
TensorRow RowOf(std::span<const Part> parts, uint64_t index) {
  size_t part = 0;
  while (index >= parts[part].rows) index -= parts[part++].rows;
  return {*parts[part].tensor, index};
}

// Levels that hold those of every part.
uint32_t BitsFor(std::span<const Part> parts) {
  for (const Part& part : parts) {
    if (LevelBitsOf(part.tensor->type) != 4) return 8;
  }
  return 4;
}

// The groups as the file has them, or 8 bits of its values.
void ReadGroups(const TensorRow& from, std::span<QuantizedGroup> groups) {
  const Tensor& tensor = from.tensor;
  if (LevelBitsOf(tensor.type) != 0) {
    std::vector<LevelGroup> levels(groups.size());
    ReadLevels(tensor, from.row, levels);
    for (size_t g = 0; g < groups.size(); ++g) {
      groups[g].scale = levels[g].scale;
      groups[g].minimum = levels[g].minimum;
      std::copy_n(levels[g].levels, kQuantizedGroup, groups[g].levels);
    }
    return;
  }
  std::vector<float> values(tensor.cols);
  DequantizeRow(tensor, from.row, values);
  for (size_t g = 0; g < groups.size(); ++g) {
    const size_t begin = g * kQuantizedGroup;
    groups[g] =
        QuantizeGroup(std::span(values).subspan(begin, std::min(kQuantizedGroup, values.size() - begin)));
  }
}

class Packer {
 public:
  Packer(const Model& model, DType format, DecodeWeights decode, ThreadPool* pool)
      : model_(model), config_(model.config()), format_(format), decode_(decode), pool_(pool) {}

  absl::StatusOr<LayerWeights> Layer(uint32_t index) {
    const LayerTensors& in = model_.layer(index);
    const uint64_t q_rows = uint64_t{config_.heads} * config_.head_dim;
    const uint64_t kv_rows = uint64_t{config_.kv_heads} * config_.head_dim;
    const uint64_t hidden = config_.hidden;
    LayerWeights out;
    EPIC_ASSIGN_OR_RETURN(out.attention_norm, ReadVector(in.attention_norm, hidden));
    EPIC_ASSIGN_OR_RETURN(out.ffn_norm, ReadVector(in.ffn_norm, hidden));
    if (config_.qk_norm) {
      EPIC_ASSIGN_OR_RETURN(out.q_norm, ReadVector(in.q_norm, config_.head_dim));
      EPIC_ASSIGN_OR_RETURN(out.k_norm, ReadVector(in.k_norm, config_.head_dim));
    }
    if (config_.qkv_bias) {
      for (const Part& part : {Part{&in.q_bias, q_rows}, {&in.k_bias, kv_rows}, {&in.v_bias, kv_rows}}) {
        EPIC_ASSIGN_OR_RETURN(const std::vector<float> bias, ReadVector(*part.tensor, part.rows));
        out.qkv_bias.insert(out.qkv_bias.end(), bias.begin(), bias.end());
      }
    }
    const Part q{&in.q, q_rows};
    const Part k{&in.k, kv_rows};
    const Part v{&in.v, kv_rows};
    if (index + 1 == config_.layers) {
      EPIC_ASSIGN_OR_RETURN(out.q, Pack({q}, hidden));
      EPIC_ASSIGN_OR_RETURN(out.kv, Pack({k, v}, hidden));
    } else {
      EPIC_ASSIGN_OR_RETURN(out.qkv, Pack({q, k, v}, hidden));
    }
    EPIC_ASSIGN_OR_RETURN(out.output, Pack({{&in.output, hidden}}, q_rows));
    EPIC_ASSIGN_OR_RETURN(out.gate_up, Pack({{&in.gate, config_.ffn}, {&in.up, config_.ffn}}, hidden, true));
    EPIC_ASSIGN_OR_RETURN(out.down, Pack({{&in.down, hidden}}, config_.ffn));
    return out;
  }

  absl::StatusOr<Projection> Head() { return Pack({{&model_.head(), config_.vocab}}, config_.hidden); }

  uint64_t bytes() const { return bytes_; }

 private:
  // `gated`: the first of two parts gates the second, in the product of prompt rows.
  absl::StatusOr<Projection> Pack(std::initializer_list<Part> parts, uint64_t inputs, bool gated = false) {
    uint64_t outputs = 0;
    for (const Part& part : parts) {
      EPIC_RETURN_IF_ERROR(ExpectShape(*part.tensor, part.rows, inputs));
      outputs += part.rows;
    }
    const std::span<const Part> list(parts.begin(), parts.size());
    Projection out;
    const RowReader rows = [list](size_t index, std::span<float> row) {
      const TensorRow from = RowOf(list, index);
      DequantizeRow(from.tensor, from.row, row);
    };
    if (gated) {
      EPIC_ASSIGN_OR_RETURN(out.prompt, PackGatedMatrix(outputs / 2, inputs, format_, rows, pool_));
    } else {
      EPIC_ASSIGN_OR_RETURN(out.prompt, PackMatrix(outputs, inputs, format_, rows, pool_));
    }
    bytes_ += out.prompt->bytes();
    if (decode_ == DecodeWeights::kSameAsPrompt) return out;
    const GroupReader groups = [list](size_t index, std::span<QuantizedGroup> row) {
      ReadGroups(RowOf(list, index), row);
    };
    EPIC_ASSIGN_OR_RETURN(out.decode, PackQuantized(outputs, inputs, BitsFor(list), groups, pool_));
    bytes_ += out.decode->bytes();
    return out;
  }

  const Model& model_;
  const ModelConfig& config_;
  const DType format_;
  const DecodeWeights decode_;
  ThreadPool* const pool_;
  uint64_t bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const Weights>> PackWeights(const Model& model, DType format,
                                                           DecodeWeights decode, ThreadPool* pool,
                                                           PackProgress* progress) {
  const ModelConfig& config = model.config();
  EPIC_RETURN_IF_ERROR(ExpectShape(model.embedding(), config.vocab, config.hidden));
  Packer packer(model, format, decode, pool);
  auto weights = std::make_unique<Weights>();
  weights->embedding = model.embedding();
  weights->embedding_bytes.assign(weights->embedding.data.begin(), weights->embedding.data.end());
  weights->embedding.data = weights->embedding_bytes;
  const uint32_t total = config.layers + 1;
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    EPIC_ASSIGN_OR_RETURN(LayerWeights packed, packer.Layer(layer));
    weights->layers.push_back(std::move(packed));
    if (progress != nullptr) progress->OnProgress(layer + 1, total);
  }
  EPIC_ASSIGN_OR_RETURN(weights->output_norm, ReadVector(model.output_norm(), config.hidden));
  EPIC_ASSIGN_OR_RETURN(weights->head, packer.Head());
  if (progress != nullptr) progress->OnProgress(total, total);
  weights->bytes = packer.bytes() + weights->embedding_bytes.size();
  return std::unique_ptr<const Weights>(std::move(weights));
}

}  // namespace epic
