#include "services/model/hf_spm_scores.h"

#include <cstdint>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "services/model/model_error.h"

namespace epic {
namespace {

constexpr size_t kMaxTokenBytes = 256;
constexpr size_t kMaxMerges = size_t{1} << 24;  // ranks stay exact in f32

using Ids = absl::flat_hash_map<std::string_view, uint32_t>;

// Tokens that joining can take or make.
Ids PiecesOf(const std::vector<std::string>& tokens, const std::vector<TokenType>& types) {
  Ids ids;
  for (uint32_t id = 0; id < tokens.size(); ++id) {
    const bool piece = types[id] == TokenType::kNormal || types[id] == TokenType::kUserDefined;
    if (piece) ids.emplace(tokens[id], id);
  }
  return ids;
}

bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

// Every split of a piece into two pieces, between characters, must be a merge.
absl::Status CheckSplits(std::string_view token, const Ids& ids,
                         const absl::flat_hash_set<std::pair<uint32_t, uint32_t>>& joined) {
  if (token.size() > kMaxTokenBytes) {
    return absl::InvalidArgumentError(absl::StrCat("token ", Quoted(token), " has more than 256 bytes"));
  }
  for (size_t cut = 1; cut < token.size(); ++cut) {
    if (IsContinuation(token[cut])) continue;
    const auto left = ids.find(token.substr(0, cut));
    const auto right = ids.find(token.substr(cut));
    if (left == ids.end() || right == ids.end() || joined.contains({left->second, right->second})) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "are not those of a SentencePiece model: nothing joins the two parts of ", Quoted(token)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<float>> SpmScoresFromMerges(
    const std::vector<std::string>& tokens, const std::vector<TokenType>& types,
    const std::vector<std::pair<std::string, std::string>>& merges) {
  if (merges.size() >= kMaxMerges) return absl::InvalidArgumentError("has too many entries");
  const Ids ids = PiecesOf(tokens, types);
  const float lowest = -static_cast<float>(merges.size()) - 1.0f;
  std::vector<float> scores(tokens.size(), lowest);
  absl::flat_hash_set<std::pair<uint32_t, uint32_t>> joined;
  joined.reserve(merges.size());
  uint32_t current = UINT32_MAX;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const auto left_id = ids.find(left), right_id = ids.find(right), made = ids.find(left + right);
    // Merges of control and byte tokens never apply to text.
    if (left_id == ids.end() || right_id == ids.end() || made == ids.end()) continue;
    joined.emplace(left_id->second, right_id->second);
    if (made->second == current) continue;
    current = made->second;
    if (scores[current] != lowest) {
      return absl::InvalidArgumentError(absl::StrCat("are not those of a SentencePiece model: the merges of ",
                                                     Quoted(left + right), " do not stand together"));
    }
    scores[current] = -static_cast<float>(rank);
  }
  for (uint32_t id = 0; id < tokens.size(); ++id) {
    if (types[id] != TokenType::kNormal && types[id] != TokenType::kUserDefined) continue;
    EPIC_RETURN_IF_ERROR(CheckSplits(tokens[id], ids, joined));
  }
  return scores;
}

}  // namespace epic
