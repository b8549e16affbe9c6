// Byte-level BPE inside one piece: merges by rank, leftmost first, O(n log n).
//
// Immutable after Create and safe on any thread. Splitting into pieces and special tokens are not here.
#ifndef EPIC_SERVICES_MODEL_TOKENIZER_BPE_H_
#define EPIC_SERVICES_MODEL_TOKENIZER_BPE_H_

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/storage/cache_id.h"
#include "services/model/tokenizer_spec.h"

namespace epic {

// Byte-level vocabularies write each byte as one printable character. Turns such a text into its bytes; a
// text with any other character stands for itself.
std::string BytesOfByteLevelText(std::string_view text);
// Whether every character of the text stands for a byte.
bool IsByteLevelText(std::string_view text);

class BpeEncoder {
 public:
  // `bytes` is BytesOfByteLevelText of every token and outlives the encoder; `types` are the effective types,
  // as the tokenizer corrected them. No token of type kControl is ever the result: merges that make or join
  // one are left out.
  // Errors: InvalidArgument naming tokens, or merges[i] of which a part or the result is no token.
  static absl::StatusOr<BpeEncoder> Create(const TokenizerSpec& spec, std::span<const TokenType> types,
                                           const std::vector<std::string>& bytes);

  // Appends the ids of `piece`. A byte that the vocabulary does not have is left out, as the reference does.
  void Encode(std::string_view piece, std::vector<TokenId>& out) const;

 private:
  static constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
  static constexpr TokenId kNoToken = std::numeric_limits<TokenId>::max();
  struct Merge {
    uint32_t rank = kNoRank;
    TokenId id = kNoToken;
  };
  struct LinkedMerger;

  BpeEncoder() { byte_ids_.fill(kNoToken); }
  absl::Status AddMerges(const TokenizerSpec& spec, std::span<const TokenType> types);
  void AddWholePieces(const TokenizerSpec& spec, std::span<const TokenType> types,
                      const std::vector<std::string>& bytes);
  Merge Find(TokenId left, TokenId right) const;
  void MergeShort(std::string_view piece, std::vector<TokenId>& out) const;
  void MergeLong(std::string_view piece, std::vector<TokenId>& out) const;
  void MergeAny(std::string_view piece, std::vector<TokenId>& out) const;

  std::array<TokenId, 256> byte_ids_;
  absl::flat_hash_map<uint64_t, Merge> merges_;  // left << 32 | right
  // Pieces that are one token as a whole: any token with ignore_merges, else those that their own merges
  // make.
  absl::flat_hash_map<std::string_view, TokenId> whole_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_TOKENIZER_BPE_H_
