// Text to token ids and back, with the ids of the model's reference tokenizer.
//
// Byte-level BPE and SentencePiece-style vocabularies. Immutable and thread-safe. Time is O(n log n) in the
// length of the text whatever it holds, and nothing recurses.
#ifndef EPIC_SERVICES_MODEL_TOKENIZER_H_
#define EPIC_SERVICES_MODEL_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/storage/cache_id.h"
#include "services/model/tokenizer_spec.h"

namespace epic {

// A run of text. Control tokens are recognised only where parse_special is true (the template's own text);
// text of users never becomes a control token. Adjacent runs are tokenised as if they were one string.
struct TextRun {
  std::string_view text;
  bool parse_special = false;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Errors: InvalidArgument naming the field (sizes that differ, duplicate texts, ids outside the vocabulary,
  // ...).
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Create(const TokenizerSpec& spec);

  // Ids of the runs, without BOS or EOS. Errors: InvalidArgument for text that is not UTF-8.
  virtual absl::StatusOr<std::vector<TokenId>> Encode(std::span<const TextRun> runs) const = 0;
  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text, bool parse_special = false) const {
    const TextRun run{text, parse_special};
    return Encode(std::span<const TextRun>(&run, 1));
  }

  // The raw bytes that a token stands for (may be part of a character). Control tokens: their text when
  // `with_special`, else nothing. Ids outside the vocabulary: nothing.
  virtual std::string TokenBytes(TokenId id, bool with_special = false) const = 0;
  // The bytes of all, joined; for kSpm the space that was prefixed to the text is removed when `ids` begins a
  // text.
  virtual std::string Decode(std::span<const TokenId> ids, bool with_special = false) const = 0;

  virtual uint32_t vocab_size() const = 0;
  virtual bool IsControl(TokenId id) const = 0;
  // eos, eot and the control tokens that end a turn by name.
  virtual bool IsEndOfGeneration(TokenId id) const = 0;
  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
  // The id of the control token with this text.
  virtual std::optional<TokenId> ControlToken(std::string_view text) const = 0;
  virtual bool add_bos() const = 0;
};

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_TOKENIZER_H_
