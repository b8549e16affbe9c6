// A Hugging Face folder: config.json, tokenizer.json, tokenizer_config.json, generation_config.json,
// chat_template.jinja and the weights in model.safetensors or in the shards of its index. No state.
#ifndef EPIC_SERVICES_MODEL_HF_MODEL_H_
#define EPIC_SERVICES_MODEL_HF_MODEL_H_

#include <string>

#include "absl/status/statusor.h"
#include "services/model/model_builder.h"

namespace epic {

// The parts of the model in `folder`. Errors: InvalidArgument that names the file and the field.
absl::StatusOr<ModelParts> ReadHfModel(const std::string& folder);

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_HF_MODEL_H_
