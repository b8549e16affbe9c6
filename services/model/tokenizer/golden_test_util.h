// Reads the golden files of the tokenizer tests. Tests only.
#ifndef EPIC_SERVICES_MODEL_TOKENIZER_GOLDEN_TEST_UTIL_H_
#define EPIC_SERVICES_MODEL_TOKENIZER_GOLDEN_TEST_UTIL_H_

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/testing/paths.h"
#include "services/model/tokenizer_spec.h"

namespace epic::testing {

inline nlohmann::json ReadGolden(const std::string& name) {
  return nlohmann::json::parse(ReadFileOrDie(SourceDir() + "/services/model/tokenizer/golden/" + name));
}

inline PreTokenizer PreTokenizerOf(const std::string& name) {
  if (name == "none") return PreTokenizer::kNone;
  if (name == "gpt-2") return PreTokenizer::kGpt2;
  if (name == "smollm") return PreTokenizer::kSmolLm;
  return name == "qwen2" ? PreTokenizer::kQwen2 : PreTokenizer::kLlamaBpe;
}

inline std::vector<TokenType> TypesOf(const nlohmann::json& types) {
  std::vector<TokenType> out;
  for (const auto& type : types) out.push_back(static_cast<TokenType>(type.get<int>()));
  return out;
}

inline TokenizerSpec BpeSpecOf(const nlohmann::json& golden) {
  TokenizerSpec spec;
  spec.pre = PreTokenizerOf(golden["pre"]);
  spec.nfc = golden["nfc"];
  spec.ignore_merges = golden["ignore_merges"];
  spec.tokens = golden["tokens"].get<std::vector<std::string>>();
  spec.types = TypesOf(golden["types"]);
  for (const auto& merge : golden["merges"]) spec.merges.emplace_back(merge[0], merge[1]);
  return spec;
}

inline TokenizerSpec SpmSpecOf(const nlohmann::json& golden) {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kSpm;
  spec.pre = PreTokenizer::kNone;
  spec.space_prefix = golden["space_prefix"].get<bool>() ? SpacePrefix::kEach : SpacePrefix::kNever;
  spec.tokens = golden["tokens"].get<std::vector<std::string>>();
  spec.types = TypesOf(golden["types"]);
  spec.scores = golden["scores"].get<std::vector<float>>();
  spec.unknown = golden["unknown"].get<uint32_t>();
  spec.bos = golden["bos"].get<uint32_t>();
  spec.eos = golden["eos"].get<uint32_t>();
  return spec;
}

}  // namespace epic::testing

#endif  // EPIC_SERVICES_MODEL_TOKENIZER_GOLDEN_TEST_UTIL_H_
