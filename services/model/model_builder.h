// From what a reader found in the files to a Model: the checks that GGUF files and Hugging Face folders
// share.
//
// A reader fills ModelParts: configuration, tokenizer, template and every tensor by its name in the file.
// BuildModel validates the configuration, gives each tensor its role and checks its shape, refuses tensors
// that have no role (a model with them would compute something else), and computes the identity.
#ifndef EPIC_SERVICES_MODEL_MODEL_BUILDER_H_
#define EPIC_SERVICES_MODEL_MODEL_BUILDER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/model/model.h"
#include "services/model/model_file.h"

namespace epic {

// The names that a file format gives to the tensors. Layer tensors are layer_prefix + number + "." + name.
struct TensorNames {
  std::string_view embedding, output_norm, head, layer_prefix;
  std::string_view attention_norm, q, k, v, q_bias, k_bias, v_bias, q_norm, k_norm, output;
  std::string_view ffn_norm, gate, up, down;
};

// A tensor as the reader found it. Shape: dims with the contiguous one last, 1 or 2 of them above 1.
struct NamedTensor {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<uint64_t> dims;
  ByteSpan data;
};

struct ModelParts {
  std::string path;  // for messages
  ModelConfig config;
  // The parameters of the rotary embedding as the file states them, in the canonical encoding (see
  // model_identity.h): nothing computed by a library function, whose last bit may differ between machines.
  std::string rope_identity;
  TokenizerSpec tokenizer;
  std::string chat_template;
  TensorNames names;
  std::vector<NamedTensor> tensors;
  // Names (without layer prefix and number) of tensors that hold nothing the model needs.
  std::vector<std::string_view> ignorable;
  std::vector<std::shared_ptr<const ModelFile>> files;  // in memory as long as the Model lives
};

// Errors: InvalidArgument that names the file and the field or tensor.
absl::StatusOr<std::shared_ptr<const Model>> BuildModel(ModelParts parts);

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_MODEL_BUILDER_H_
