// The engine that all sections of the bench run on, and what they ask of it: contexts compiled once, time to
// the first token, rates of decode.
//
// Owned by main; one thread. Measures, but judges nothing.
#ifndef EPIC_SERVICES_ENGINE_BENCH_ENGINE_FIXTURE_H_
#define EPIC_SERVICES_ENGINE_BENCH_ENGINE_FIXTURE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/engine/engine.h"
#include "services/model/model.h"

namespace epic::engine_bench {

inline constexpr LinkStrategy kFull{StrategyKind::kFull, 0};
inline constexpr LinkStrategy kPrefix{StrategyKind::kPrefix, 0};
inline constexpr LinkStrategy kLegoLink16{StrategyKind::kLegoLink, 16};
inline constexpr LinkStrategy kLegoLink0{StrategyKind::kLegoLink, 0, CompilePrefixKind::kBos4};
inline constexpr LinkStrategy kCacheBlend15{.kind = StrategyKind::kCacheBlend, .k = 0};
inline constexpr LinkStrategy kQueryGuided16{.kind = StrategyKind::kQueryGuided, .k = 0};

// Contexts of equal length and own text behind them.
struct PromptShape {
  std::string name;
  uint32_t contexts = 0;
  uint32_t context_tokens = 0;
  uint32_t own_tokens = 0;
  uint32_t covered() const { return contexts * context_tokens; }
  uint32_t tokens() const { return covered() + own_tokens; }
};
inline const PromptShape kShapeM = {"M", 8, 512, 64};
inline const PromptShape kShapeL = {"L", 7, 1024, 64};

// Ends the process with the message when there is no value.
[[noreturn]] void Die(const absl::Status& status);
template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) Die(value.status());
  return *std::move(value);
}

struct FirstToken {
  double seconds = 0;  // from the submission
  LinkStats stats;
};

// Of requests that run together.
struct TogetherRun {
  // They decode together from the moment when the last of them was linked to the one when the first ended.
  uint32_t decoded_tokens = 0;
  double decode_seconds = 0;
  // The most that the engine's gauges showed at any token.
  EngineGauges most;
  uint32_t computed_rows = 0;  // of all prompts: recomputed and fresh
  double rate() const { return decoded_tokens / decode_seconds; }
};

class BenchEngine {
 public:
  explicit BenchEngine(const std::string& model_path);
  // Another one over the same model, whose engine has so many threads.
  std::unique_ptr<BenchEngine> WithThreads(uint32_t threads) const;

  Engine* engine() { return engine_.get(); }
  const Model& model() const { return *model_; }
  std::string Describe() const;

  std::vector<TokenId> Tokens(uint64_t seed, size_t count) const;
  PromptPiece OwnText(uint64_t seed, uint32_t tokens) const;
  // The first `count` contexts of that length, compiled when they are first asked for, alone or behind bos4.
  std::vector<PromptPiece> Contexts(uint32_t count, uint32_t tokens, bool behind_bos4 = false);
  // Contexts and own text of a shape.
  std::vector<PromptPiece> Prompt(const PromptShape& shape, uint64_t own_seed = 100);

  // at_token is called on the engine's thread when the token is there and the request's rows still are.
  FirstToken TimeToFirstToken(std::vector<PromptPiece> pieces, const LinkStrategy& strategy,
                              std::string tenant = "", const std::function<void()>& at_token = {});
  // One request for each prompt, linked by legolink-16, all at once. REQUIRES: max_tokens is so high that
  // they decode together for a while.
  TogetherRun RunTogether(std::vector<std::vector<PromptPiece>> prompts, uint32_t max_tokens,
                          const std::function<void()>& at_token = {});

 private:
  struct ContextKey {
    uint32_t tokens;
    bool behind_bos4;
    auto operator<=>(const ContextKey&) const = default;
  };

  BenchEngine(std::shared_ptr<const Model> model, uint32_t threads);

  const uint32_t threads_;
  const std::shared_ptr<const Model> model_;
  const std::unique_ptr<Engine> engine_;
  std::map<ContextKey, std::vector<PromptPiece>> contexts_;
};

}  // namespace epic::engine_bench

#endif  // EPIC_SERVICES_ENGINE_BENCH_ENGINE_FIXTURE_H_
