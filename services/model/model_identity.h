// The identity of a model: what its KV depends on, and nothing else.
//
// SHA-256 over fields, each prefixed by its length as u64, numbers little-endian, doubles and floats by their
// bits:
//   1. the domain tag "epic.model-identity.v1"
//   2. architecture and sizes: u32 architecture, layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
//      f64 rms_epsilon; u8 qkv_bias, qk_norm, tied_head
//   3. rotary parameters: u8 pairing, then the encoding that the reader made of the file's own numbers
//   4. tokenizer: u8 kind, pre, nfc, ignore_merges, space_prefix, add_bos, add_eos; the optional ids bos,
//      eos, eot, unknown, padding as u8 present and u32 id; counts as u64, tokens as fields, types as u8,
//      scores as f32, merges as pairs of fields
//   5. for each tensor of the model in byte order of names: name, u32 type, u64 rows, u64 cols,
//      SHA-256 of its bytes
// Paths, names, chat templates and limits (context length) are not part of it. Any change here changes every
// Cache ID: the version in the domain tag must change with it.
#ifndef EPIC_SERVICES_MODEL_MODEL_IDENTITY_H_
#define EPIC_SERVICES_MODEL_MODEL_IDENTITY_H_

#include <span>
#include <string_view>

#include "common/base/digest.h"
#include "services/model/model.h"
#include "services/model/model_config.h"
#include "services/model/tokenizer_spec.h"

namespace epic {

// `tensors` in any order; each name at most once. Reads every byte of them.
Digest ModelIdentityOf(const ModelConfig& config, std::string_view rope_identity,
                       const TokenizerSpec& tokenizer, std::span<const Tensor* const> tensors);

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_MODEL_IDENTITY_H_
