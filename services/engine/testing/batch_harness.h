// Puts a request into a batch of known size: for tests that its bytes do not depend on its neighbours. Called
// from the test's thread, waits for the engine's by what its sinks hear, never by sleeping. The engine is the
// caller's. Tests only.
#ifndef EPIC_SERVICES_ENGINE_TESTING_BATCH_HARNESS_H_
#define EPIC_SERVICES_ENGINE_TESTING_BATCH_HARNESS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "services/engine/testing/engine_harness.h"

namespace epic::testing {

// A sampled request of one choice that reports the 20 best log-probabilities of every token.
LinkRequest SampledLink(std::vector<PromptPiece> pieces, const LinkStrategy& strategy, uint32_t max_tokens);

// Holds the engine's thread from construction to Release, so that everything submitted in between is admitted
// together. Not for use on the engine's thread.
class EngineHold {
 public:
  explicit EngineHold(Engine* engine);
  void Release();

 private:
  Done held_, open_;
  std::shared_ptr<CollectLink> sink_;
};

// Decodes `tokens` tokens behind the pieces while every step has exactly `batch` decode rows, this request's
// in the middle: half of the others' read the first object of `pieces` too, the rest have text of their own.
// Fails the test when a step had another number of rows. REQUIRES: the engine has max_sequences >= batch, and
// room for all prompts (below 200 rows beside that of `pieces`) in one panel; batch >= 1; tokens >= 2.
std::shared_ptr<CollectLink> DecodeAmong(Engine* engine, const std::vector<PromptPiece>& pieces,
                                         const LinkStrategy& strategy, uint32_t tokens, uint32_t batch);

// Tokens and the bits of all reported log-probabilities.
bool HaveSameBytes(const CollectLink& a, const CollectLink& b);

// A copy of the piece whose object differs in one bit of one value. REQUIRES: row < the object's rows.
PromptPiece WithOneBitFlipped(const PromptPiece& piece, uint32_t layer, uint32_t row);

}  // namespace epic::testing

#endif  // EPIC_SERVICES_ENGINE_TESTING_BATCH_HARNESS_H_
