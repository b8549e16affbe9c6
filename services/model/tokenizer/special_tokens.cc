#include "services/model/tokenizer/special_tokens.h"

#include "common/base/check.h"

namespace epic {

void SpecialTokens::Add(std::string_view text, TokenId id, bool control) {
  EPIC_CHECK(!text.empty());
  first_bytes_[static_cast<uint8_t>(text[0])] = true;
  uint32_t node = 0;
  for (const char byte : text) {
    const uint64_t key = uint64_t{node} << 8 | static_cast<uint8_t>(byte);
    const auto [it, inserted] = edges_.try_emplace(key, static_cast<uint32_t>(nodes_.size()));
    node = it->second;
    if (inserted) nodes_.emplace_back();
  }
  EPIC_CHECK(!nodes_[node].terminal);
  nodes_[node] = {true, control, id};
}

std::optional<SpecialTokens::Match> SpecialTokens::Find(std::string_view text, size_t position,
                                                        size_t control_end) const {
  if (!first_bytes_[static_cast<uint8_t>(text[position])]) return std::nullopt;
  std::optional<Match> best;
  uint32_t node = 0;
  for (size_t end = position; end < text.size();) {
    const auto it = edges_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[end]));
    if (it == edges_.end()) break;
    node = it->second;
    ++end;
    const Node& found = nodes_[node];
    if (found.terminal && (!found.control || end <= control_end)) best = Match{found.id, end - position};
  }
  return best;
}

}  // namespace epic
