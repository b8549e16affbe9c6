// SentencePiece-style BPE of one text: merges the neighbours whose joined piece has the highest score,
// leftmost first; characters without a piece become byte tokens, else the unknown token.
//
// Immutable after Create and safe on any thread. Spaces must already be U+2581; special tokens are not here.
#ifndef EPIC_SERVICES_MODEL_TOKENIZER_SPM_H_
#define EPIC_SERVICES_MODEL_TOKENIZER_SPM_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/storage/cache_id.h"
#include "services/model/tokenizer_spec.h"

namespace epic {

// The byte that a token text of the form <0xNN> stands for.
std::optional<uint8_t> ByteOfSpmText(std::string_view text);

class SpmEncoder {
 public:
  // `texts` (the tokens' texts as in the file) outlive the encoder; `types` are the effective types.
  // Errors: InvalidArgument naming scores, tokens[i] or unknown.
  static absl::StatusOr<SpmEncoder> Create(const TokenizerSpec& spec, std::span<const TokenType> types,
                                           const std::vector<std::string>& texts);

  // Appends the ids of `text`. REQUIRES: UTF-8 of less than 2^32 bytes.
  void Encode(std::string_view text, std::vector<TokenId>& out) const;

 private:
  struct Piece {
    TokenId id = 0;
    float score = 0;
    bool unused = false;  // merges through it, but is never a result
  };
  struct Merger;

  void EmitSymbol(std::string_view symbol, const Merger& merger, bool& after_unknown,
                  std::vector<TokenId>& out) const;
  void EmitPiece(std::string_view symbol, bool& after_unknown, std::vector<TokenId>& out) const;

  absl::flat_hash_map<std::string_view, Piece> pieces_;
  size_t longest_piece_bytes_ = 0;
  bool has_bytes_ = false;  // all 256
  std::array<TokenId, 256> byte_ids_{};
  TokenId unknown_ = 0;
};

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_TOKENIZER_SPM_H_
