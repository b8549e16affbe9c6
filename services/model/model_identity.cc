#include "services/model/model_identity.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace epic {
namespace {

std::string EncodeConfig(const ModelConfig& config) {
  std::string out;
  for (uint32_t value : {static_cast<uint32_t>(config.architecture), config.layers, config.hidden,
                         config.heads, config.kv_heads, config.head_dim, config.ffn, config.vocab}) {
    AppendLittle<uint32_t>(&out, value);
  }
  AppendLittle<double>(&out, config.rms_epsilon);
  for (bool flag : {config.qkv_bias, config.qk_norm, config.tied_head}) AppendLittle<uint8_t>(&out, flag);
  return out;
}

std::string EncodeTokenizer(const TokenizerSpec& spec) {
  std::string out;
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(spec.kind));
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(spec.pre));
  for (bool flag : {spec.nfc, spec.ignore_merges}) AppendLittle<uint8_t>(&out, flag);
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(spec.space_prefix));
  for (bool flag : {spec.add_bos, spec.add_eos}) AppendLittle<uint8_t>(&out, flag);
  for (const std::optional<uint32_t>& id : {spec.bos, spec.eos, spec.eot, spec.unknown, spec.padding}) {
    AppendLittle<uint8_t>(&out, id.has_value());
    AppendLittle<uint32_t>(&out, id.value_or(0));
  }
  AppendLittle<uint64_t>(&out, spec.tokens.size());
  for (const std::string& token : spec.tokens) AppendField(&out, token);
  AppendLittle<uint64_t>(&out, spec.types.size());
  for (TokenType type : spec.types) AppendLittle<uint8_t>(&out, static_cast<uint8_t>(type));
  AppendLittle<uint64_t>(&out, spec.scores.size());
  for (float score : spec.scores) AppendLittle<float>(&out, score);
  AppendLittle<uint64_t>(&out, spec.merges.size());
  for (const auto& [left, right] : spec.merges) {
    AppendField(&out, left);
    AppendField(&out, right);
  }
  return out;
}

}  // namespace

Digest ModelIdentityOf(const ModelConfig& config, std::string_view rope_identity,
                       const TokenizerSpec& tokenizer, std::span<const Tensor* const> tensors) {
  std::string rope;
  AppendLittle<uint8_t>(&rope, static_cast<uint8_t>(config.rope.pairing));
  rope.append(rope_identity);

  std::string encoded;
  AppendField(&encoded, "epic.model-identity.v1");
  AppendField(&encoded, EncodeConfig(config));
  AppendField(&encoded, rope);
  AppendField(&encoded, EncodeTokenizer(tokenizer));
  std::vector<const Tensor*> sorted(tensors.begin(), tensors.end());
  std::sort(sorted.begin(), sorted.end(), [](const Tensor* a, const Tensor* b) { return a->name < b->name; });
  for (const Tensor* tensor : sorted) {
    AppendField(&encoded, tensor->name);
    std::string shape;
    AppendLittle<uint32_t>(&shape, static_cast<uint32_t>(tensor->type));
    AppendLittle<uint64_t>(&shape, tensor->rows);
    AppendLittle<uint64_t>(&shape, tensor->cols);
    AppendField(&encoded, shape);
    AppendField(&encoded, Sha256Of(tensor->data).view());
  }
  return Sha256Of(AsBytes(encoded));
}

}  // namespace epic
