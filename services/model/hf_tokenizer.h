// From tokenizer.json and its companions of a Hugging Face folder to a TokenizerSpec.
//
// Recognised by structure: byte-level BPE with the pre-tokenisers of GPT-2, SmolLM, Qwen2 and Llama 3, and
// SentencePiece-style BPE with byte fallback (Llama 1 and 2, Mistral). Anything else is a clear error,
// because a guess would give other ids. No state.
#ifndef EPIC_SERVICES_MODEL_HF_TOKENIZER_H_
#define EPIC_SERVICES_MODEL_HF_TOKENIZER_H_

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "services/model/tokenizer_spec.h"

namespace epic {

struct HfTokenizerFiles {
  std::string tokenizer_path;  // for messages
  nlohmann::json tokenizer;
  std::string config_path;
  nlohmann::json config;  // an empty object when the folder has no tokenizer_config.json
  uint32_t vocab = 0;     // rows of an embedding that exists; ids without a token become unused "[PAD<id>]"
  // From config.json and generation_config.json, in their order.
  std::vector<uint32_t> eos_ids;
};

// Errors: InvalidArgument that names the file and the field.
//
// A SentencePiece vocabulary gets the scores -rank of the first merge that makes a token. That gives the ids
// of the merge list exactly when the merges of a token stand together and every way to split a token in two
// is a merge, as converters from SentencePiece write them; both are checked.
absl::StatusOr<TokenizerSpec> ReadHfTokenizer(const HfTokenizerFiles& files);

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_HF_TOKENIZER_H_
