// Requests to the engine, begun and waited for: greedy answers, with the time to the first token, and scores.
//
// A pending call may be dropped before its end; the engine then finishes it on its own. Begin from any
// thread.
#ifndef EPIC_LOADGEN_QUALITY_ENGINE_CALLS_H_
#define EPIC_LOADGEN_QUALITY_ENGINE_CALLS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "services/engine/engine.h"

namespace epic::loadgen {

struct Answer {
  std::vector<TokenId> tokens;  // without the token that ended it
  bool stopped = false;         // by a stop token; else by max_tokens
  LinkStats stats;
  double ttft_seconds = 0;  // submitted to first token, a stop token counted
};

struct AnswerRequest {
  std::string cache;  // whose rows of the prefix cache it shares; empty: nobody's
  std::vector<PromptPiece> pieces;
  LinkStrategy strategy;
  uint32_t max_tokens = 1;
  std::vector<TokenId> stop_tokens;
};

class PendingAnswer {
 public:
  virtual ~PendingAnswer() = default;
  // Blocks until the answer is complete. Call once.
  virtual absl::StatusOr<Answer> Wait() = 0;
};

// Greedy. The clock outlives the call. Errors: those of SubmitLink.
absl::StatusOr<std::shared_ptr<PendingAnswer>> BeginAnswer(Engine* engine, const Clock* clock,
                                                           AnswerRequest request);

// One row of logits for each token of the continuation.
struct Scored {
  std::vector<std::vector<float>> logits;
  LinkStats stats;
};

class PendingScore {
 public:
  virtual ~PendingScore() = default;
  virtual absl::StatusOr<Scored> Wait() = 0;
};

// Errors: those of SubmitScore.
absl::StatusOr<std::shared_ptr<PendingScore>> BeginScore(Engine* engine, const std::string& cache,
                                                         std::vector<PromptPiece> pieces,
                                                         const LinkStrategy& strategy,
                                                         std::vector<TokenId> continuation);

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_QUALITY_ENGINE_CALLS_H_
