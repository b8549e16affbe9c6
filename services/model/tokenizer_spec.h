// What a tokenizer is made of, as read from a GGUF header or a tokenizer.json.
//
// Plain values, not yet trusted: Tokenizer::Create checks them. Part of a model's identity, so numbers of the
// enums never change.
#ifndef EPIC_SERVICES_MODEL_TOKENIZER_SPEC_H_
#define EPIC_SERVICES_MODEL_TOKENIZER_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace epic {

enum class TokenizerKind : uint8_t { kBpe, kSpm };
// Pre-tokenisers of byte-level BPE.
enum class PreTokenizer : uint8_t { kNone, kGpt2, kSmolLm, kQwen2, kLlamaBpe };
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// Where SentencePiece-style text gets a space in front. A stretch is text between control and user-defined
// tokens, or the ends of the whole; only one that is not empty gets a space. The values are part of model
// identities.
enum class SpacePrefix : uint8_t {
  kNever = 0,
  kEach = 1,          // every stretch (GGUF files; the normaliser Prepend)
  kEachUnspaced = 2,  // every stretch that does not begin with a space (Metaspace "always")
  kFirstUnspaced = 3  // the text's very beginning, when it is neither a token nor a space (Metaspace "first")
};

struct TokenizerSpec {
  TokenizerKind kind = TokenizerKind::kBpe;
  PreTokenizer pre = PreTokenizer::kGpt2;
  bool nfc = false;            // normalise text to NFC first (Hugging Face Qwen)
  bool ignore_merges = false;  // a whole piece in the vocabulary is taken as it is (llama-bpe)
  SpacePrefix space_prefix = SpacePrefix::kNever;  // kSpm
  // By token id. Text is as in the file: byte-level alphabet for kBpe, U+2581 for spaces in kSpm.
  std::vector<std::string> tokens;
  std::vector<TokenType> types;                             // same size as tokens
  std::vector<float> scores;                                // kSpm: same size as tokens; else empty
  std::vector<std::pair<std::string, std::string>> merges;  // kBpe, by rank
  std::optional<uint32_t> bos, eos, eot, unknown, padding;
  // Further ids that the files name as ends of a generation, beside eos and eot. Ascending, no duplicates.
  std::vector<uint32_t> end_of_generation;
  bool add_bos = false;
  bool add_eos = false;
};

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_TOKENIZER_SPEC_H_
