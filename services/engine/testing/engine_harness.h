// Runs requests against an engine and waits for their end: sinks that collect, and one call for each kind of
// request. Tests and benches only. Waits on the engine's thread, never by sleeping.
#ifndef EPIC_SERVICES_ENGINE_TESTING_ENGINE_HARNESS_H_
#define EPIC_SERVICES_ENGINE_TESTING_ENGINE_HARNESS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/status/error.h"
#include "services/engine/engine.h"
#include "services/engine/testing/plain_object.h"

namespace epic::testing {

// Set once, waited for by any thread. Keeps the code and message, not the status: its shared count lives in
// the system's Abseil, into which ThreadSanitizer cannot see.
class Done {
 public:
  void Set(const absl::Status& status);
  absl::Status Wait();
  bool IsSet();

 private:
  Mutex mu_;
  CondVar changed_;
  bool set_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<ErrorCode> code_ ABSL_GUARDED_BY(mu_);  // none: OK
  std::string message_ ABSL_GUARDED_BY(mu_);
};

// All members but `done` may be read after done.Wait().
struct CollectLink final : LinkSink {
  explicit CollectLink(size_t choices) : tokens(choices), ends(choices) {}
  void OnLinked(const LinkStats& s) override {
    stats = s;
    ++linked;
    if (on_linked) on_linked();
  }
  bool OnToken(const GeneratedToken& token) override {
    tokens[token.choice].push_back(token);
    return !on_token || on_token(token);
  }
  void OnFinish(uint32_t choice, FinishReason reason) override { ends[choice].push_back(reason); }
  void OnObjectLost(size_t piece) override { lost.push_back(piece); }
  void OnDone(const absl::Status& status) override { done.Set(status); }

  std::vector<TokenId> Ids(size_t choice) const;

  LinkStats stats;
  int linked = 0;
  std::vector<std::vector<GeneratedToken>> tokens;
  std::vector<std::vector<FinishReason>> ends;
  std::vector<size_t> lost;
  std::function<void()> on_linked;
  std::function<bool(const GeneratedToken&)> on_token;
  Done done;
};

struct CollectCompile final : CompileSink {
  explicit CollectCompile(const KvLayout& layout) : object(std::make_shared<PlainObject>(layout)) {}
  absl::Status OnLayer(uint32_t layer, ByteSpan slab) override;
  void OnDone(const absl::Status& status) override { done.Set(status); }

  std::shared_ptr<PlainObject> object;
  uint32_t layers = 0;
  Done done;
};

struct CollectScore final : ScoreSink {
  void OnLogits(uint32_t index, std::span<const float> row) override {
    logits.emplace_back(row.begin(), row.end());
  }
  void OnDone(const absl::Status& status, const LinkStats& s) override {
    stats = s;
    done.Set(status);
  }

  std::vector<std::vector<float>> logits;
  LinkStats stats;
  Done done;
};

// Submits and waits.
absl::StatusOr<std::shared_ptr<PlainObject>> Compile(Engine* engine, std::vector<TokenId> tokens,
                                                     std::vector<TokenId> prefix = {});
absl::StatusOr<std::shared_ptr<CollectLink>> Link(Engine* engine, LinkRequest request);
absl::StatusOr<std::shared_ptr<CollectScore>> Score(Engine* engine, std::vector<PromptPiece> pieces,
                                                    const LinkStrategy& strategy,
                                                    std::vector<TokenId> continuation,
                                                    std::string tenant = "default");

// Own text, and a context compiled by `engine` behind `prefix`.
PromptPiece Text(std::vector<TokenId> tokens);
absl::StatusOr<PromptPiece> Context(Engine* engine, std::vector<TokenId> tokens,
                                    std::vector<TokenId> prefix = {});

// Waits, ten seconds at most, until the loop has nothing in hand: sinks hear of an end before that.
bool BecomesIdle(const Engine& engine);

// Random ids below `vocab`, the same on every machine for a seed.
std::vector<TokenId> RandomTokens(uint64_t seed, size_t count, uint32_t vocab);

// max |a - b| / max |b|.
double RelativeDifference(std::span<const float> a, std::span<const float> b);
// KL(softmax(p) || softmax(q)) in nats.
double KlDivergence(std::span<const float> p, std::span<const float> q);

}  // namespace epic::testing

#endif  // EPIC_SERVICES_ENGINE_TESTING_ENGINE_HARNESS_H_
