// What one strategy did with one prompt, and its line in a results file. Plain values.
#ifndef EPIC_LOADGEN_QUALITY_PROMPT_RESULT_H_
#define EPIC_LOADGEN_QUALITY_PROMPT_RESULT_H_

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "common/storage/cache_id.h"

namespace epic::loadgen {

struct PromptResult {
  uint64_t question = 0;  // its index in the dataset
  std::string strategy;   // as spelled
  // Rows of the prompt, as the engine counted them.
  uint32_t prompt_tokens = 0;
  uint32_t cached = 0;
  uint32_t recomputed = 0;
  uint32_t fresh = 0;
  // Over the greedy answer of `full`, its end included: KL(full || strategy) of each row in nats, and how
  // many rows have the same likeliest token.
  std::vector<double> kl;
  uint32_t same_likeliest = 0;
  // The strategy's own greedy answer, and what it scores.
  std::vector<TokenId> answer_tokens;
  std::string answer;
  double f1 = 0;
  double exact_match = 0;
  double contained = 0;

  bool operator==(const PromptResult&) const = default;
  double KlMean() const;  // over rows
  double Top1() const;
};

nlohmann::json ToJson(const PromptResult& result);
// Errors: InvalidArgument naming the field.
absl::StatusOr<PromptResult> ParsePromptResult(const nlohmann::json& json);

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_QUALITY_PROMPT_RESULT_H_
