// Finds the texts of control and user-defined tokens in a prompt: leftmost, then longest.
//
// Immutable after Add and safe on any thread. Control tokens are found only inside a window that the caller
// gives, so text of users cannot produce one.
#ifndef EPIC_SERVICES_MODEL_TOKENIZER_SPECIAL_TOKENS_H_
#define EPIC_SERVICES_MODEL_TOKENIZER_SPECIAL_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/storage/cache_id.h"

namespace epic {

class SpecialTokens {
 public:
  struct Match {
    TokenId id = 0;
    size_t length = 0;
  };

  // REQUIRES: `text` is not empty and was not added before.
  void Add(std::string_view text, TokenId id, bool control);
  // The longest token at `position`; a control token only if it ends at or before `control_end`.
  std::optional<Match> Find(std::string_view text, size_t position, size_t control_end) const;
  bool empty() const { return nodes_.size() <= 1; }

 private:
  struct Node {
    bool terminal = false;
    bool control = false;
    TokenId id = 0;
  };

  // A trie: node 0 is the root, edges are keyed by node << 8 | byte.
  std::vector<Node> nodes_ = std::vector<Node>(1);
  absl::flat_hash_map<uint64_t, uint32_t> edges_;
  bool first_bytes_[256] = {};
};

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_TOKENIZER_SPECIAL_TOKENS_H_
