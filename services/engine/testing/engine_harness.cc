#include "services/engine/testing/engine_harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/status/status_macros.h"
#include "kernels/sampling/sampling.h"

namespace epic::testing {

void Done::Set(const absl::Status& status) {
  MutexLock lock(&mu_);
  EPIC_CHECK(!set_);
  set_ = true;
  if (!status.ok()) {
    code_ = CodeOf(status);
    message_ = MessageOf(status);
  }
  changed_.SignalAll();
}

absl::Status Done::Wait() {
  MutexLock lock(&mu_);
  while (!set_) changed_.Wait(&mu_);
  return code_.has_value() ? Error(*code_, message_) : absl::OkStatus();
}

bool Done::IsSet() {
  MutexLock lock(&mu_);
  return set_;
}

std::vector<TokenId> CollectLink::Ids(size_t choice) const {
  std::vector<TokenId> ids;
  for (const GeneratedToken& token : tokens[choice]) ids.push_back(token.token);
  return ids;
}

absl::Status CollectCompile::OnLayer(uint32_t layer, ByteSpan slab) {
  EPIC_CHECK(layer == layers++);
  const MutableByteSpan out = object->MutableLayer(layer);
  EPIC_CHECK(slab.size() == out.size());
  std::memcpy(out.data(), slab.data(), slab.size());
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<PlainObject>> Compile(Engine* engine, std::vector<TokenId> tokens,
                                                     std::vector<TokenId> prefix) {
  auto sink = std::make_shared<CollectCompile>(
      engine->LayoutOf(static_cast<uint32_t>(tokens.size()), static_cast<uint32_t>(prefix.size())));
  EPIC_RETURN_IF_ERROR(
      engine->SubmitCompile({.prefix_tokens = std::move(prefix), .tokens = std::move(tokens)}, sink));
  EPIC_RETURN_IF_ERROR(sink->done.Wait());
  EPIC_CHECK(sink->layers == engine->config().layers);
  return sink->object;
}

absl::StatusOr<std::shared_ptr<CollectLink>> Link(Engine* engine, LinkRequest request) {
  auto sink = std::make_shared<CollectLink>(request.choices);
  EPIC_RETURN_IF_ERROR(engine->SubmitLink(std::move(request), sink));
  EPIC_RETURN_IF_ERROR(sink->done.Wait());
  return sink;
}

absl::StatusOr<std::shared_ptr<CollectScore>> Score(Engine* engine, std::vector<PromptPiece> pieces,
                                                    const LinkStrategy& strategy,
                                                    std::vector<TokenId> continuation, std::string tenant) {
  auto sink = std::make_shared<CollectScore>();
  EPIC_RETURN_IF_ERROR(engine->SubmitScore({.tenant = std::move(tenant),
                                            .pieces = std::move(pieces),
                                            .strategy = strategy,
                                            .continuation = std::move(continuation)},
                                           sink));
  EPIC_RETURN_IF_ERROR(sink->done.Wait());
  return sink;
}

PromptPiece Text(std::vector<TokenId> tokens) { return {.tokens = std::move(tokens)}; }

absl::StatusOr<PromptPiece> Context(Engine* engine, std::vector<TokenId> tokens,
                                    std::vector<TokenId> prefix) {
  EPIC_ASSIGN_OR_RETURN(std::shared_ptr<PlainObject> object, Compile(engine, tokens, prefix));
  return PromptPiece{
      .tokens = std::move(tokens), .object = std::move(object), .prefix_tokens = std::move(prefix)};
}

bool BecomesIdle(const Engine& engine) {
  constexpr int64_t kLongestNs = 10'000'000'000;
  const int64_t begin = SystemClock::Get()->SteadyNs();
  while (engine.Gauges().busy) {
    if (SystemClock::Get()->SteadyNs() - begin > kLongestNs) return false;
    std::this_thread::yield();
  }
  return true;
}

std::vector<TokenId> RandomTokens(uint64_t seed, size_t count, uint32_t vocab) {
  Rng rng(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(rng.Below(vocab));
  return tokens;
}

double RelativeDifference(std::span<const float> a, std::span<const float> b) {
  EPIC_CHECK(a.size() == b.size());
  double difference = 0, highest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::fabs(double{a[i]} - b[i]));
    highest = std::max(highest, std::fabs(double{b[i]}));
  }
  return difference / highest;
}

double KlDivergence(std::span<const float> p, std::span<const float> q) {
  const double p_normalizer = LogSumExp(p);
  const double q_normalizer = LogSumExp(q);
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = p[i] - p_normalizer;
    kl += std::exp(log_p) * (log_p - (q[i] - q_normalizer));
  }
  return kl;
}

}  // namespace epic::testing
