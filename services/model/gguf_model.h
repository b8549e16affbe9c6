// What the metadata of a GGUF file means: architectures llama, qwen2 and qwen3, their rotary parameters and
// their tokenizers. No state.
#ifndef EPIC_SERVICES_MODEL_GGUF_MODEL_H_
#define EPIC_SERVICES_MODEL_GGUF_MODEL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "services/model/gguf_reader.h"
#include "services/model/model_builder.h"
#include "services/model/model_file.h"

namespace epic {

// The parts of the model in `file`. Errors: InvalidArgument that names the file and the key.
absl::StatusOr<ModelParts> ReadGgufModel(std::shared_ptr<const ModelFile> file);

// The tokenizer that the metadata describes. Exposed for its tests.
absl::StatusOr<TokenizerSpec> ReadGgufTokenizer(const GgufFile& gguf);

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_GGUF_MODEL_H_
