// Scores for a SentencePiece-style vocabulary that is given as a list of merges, as tokenizer.json has it.
//
// Pure function, any thread; used once when a folder is read. Encoding by these scores is tokenizer/spm.h.
#ifndef EPIC_SERVICES_MODEL_HF_SPM_SCORES_H_
#define EPIC_SERVICES_MODEL_HF_SPM_SCORES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/model/tokenizer_spec.h"

namespace epic {

// Shape: tokens.size() scores, -rank of the first merge that makes the token, lower than all of these for
// tokens that no merge makes. Joining by score then gives the ids of the merge list.
// Errors: InvalidArgument when it would not: the merges of a token do not stand together, or a token can be
// split into two tokens that no merge joins, or a token has more than 256 bytes.
absl::StatusOr<std::vector<float>> SpmScoresFromMerges(
    const std::vector<std::string>& tokens, const std::vector<TokenType>& types,
    const std::vector<std::pair<std::string, std::string>>& merges);

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_HF_SPM_SCORES_H_
