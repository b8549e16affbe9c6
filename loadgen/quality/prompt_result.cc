#include "loadgen/quality/prompt_result.h"

#include <numeric>
#include <utility>

namespace epic::loadgen {

using nlohmann::json;

double PromptResult::KlMean() const {
  return std::accumulate(kl.begin(), kl.end(), 0.0) / static_cast<double>(kl.size());
}

double PromptResult::Top1() const {
  return static_cast<double>(same_likeliest) / static_cast<double>(kl.size());
}

json ToJson(const PromptResult& result) {
  return {{"question", result.question},
          {"strategy", result.strategy},
          {"prompt_tokens", result.prompt_tokens},
          {"cached", result.cached},
          {"recomputed", result.recomputed},
          {"fresh", result.fresh},
          {"kl", result.kl},
          {"same_likeliest", result.same_likeliest},
          {"answer_tokens", result.answer_tokens},
          {"answer", result.answer},
          {"f1", result.f1},
          {"exact_match", result.exact_match},
          {"contained", result.contained}};
}

// The JSON library's exceptions end here.
absl::StatusOr<PromptResult> ParsePromptResult(const json& json) {
  PromptResult result;
  try {
    json.at("question").get_to(result.question);
    json.at("strategy").get_to(result.strategy);
    json.at("prompt_tokens").get_to(result.prompt_tokens);
    json.at("cached").get_to(result.cached);
    json.at("recomputed").get_to(result.recomputed);
    json.at("fresh").get_to(result.fresh);
    json.at("kl").get_to(result.kl);
    json.at("same_likeliest").get_to(result.same_likeliest);
    json.at("answer_tokens").get_to(result.answer_tokens);
    json.at("answer").get_to(result.answer);
    json.at("f1").get_to(result.f1);
    json.at("exact_match").get_to(result.exact_match);
    json.at("contained").get_to(result.contained);
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(std::string("no result of a prompt: ") + error.what());
  }
  if (result.kl.empty()) return absl::InvalidArgumentError("no result of a prompt: kl is empty");
  return result;
}

}  // namespace epic::loadgen
