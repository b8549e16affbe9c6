// Many clients at once with random cancellations: every request ends, nothing stays held, and an answer that
// was not cancelled is the one it would have been alone. Meant for ThreadSanitizer as much as for the release
// build.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/testing/status_matchers.h"
#include "services/engine/testing/engine_harness.h"
#include "services/engine/testing/tiny_engines.h"

namespace epic {
namespace {

using testing::CollectCompile;
using testing::CollectLink;
using testing::CollectScore;
using testing::Context;
using testing::RandomTokens;
using testing::Text;

constexpr int kClients = 8;
constexpr int kRounds = 12;
constexpr int kKinds = 6;

LinkRequest RequestOf(int kind, const std::vector<PromptPiece>& chunks) {
  LinkRequest request;
  request.tenant = kind % 2 == 0 ? "even" : "odd";
  request.pieces = {chunks[kind % 3], chunks[(kind + 1) % 3], Text(RandomTokens(kind, 5 + 7 * kind, 400))};
  const LinkStrategy strategies[] = {
      {StrategyKind::kLegoLink, 8}, {StrategyKind::kFull, 0}, {StrategyKind::kNaive, 0}};
  request.strategy = strategies[kind % 3];
  request.choices = 1 + kind % 2;
  request.max_tokens = 3 + 4 * kind;
  request.sampling.seed = kind;
  return request;
}

class Client {
 public:
  Client(Engine* engine, uint64_t seed, const std::vector<PromptPiece>& chunks,
         const std::map<int, std::vector<std::vector<TokenId>>>& answers)
      : engine_(engine), rng_(seed), chunks_(chunks), answers_(answers) {}

  void Run() {
    for (int round = 0; round < kRounds; ++round) {
      switch (rng_.Below(4)) {
        case 0:
          Compile();
          break;
        case 1:
          Score();
          break;
        default:
          Link();
      }
    }
  }

 private:
  // Cancels at a random token, or before the start, or never.
  void Link() {
    const int kind = static_cast<int>(rng_.Below(kKinds));
    CancelSource cancel;
    const auto cancel_at = static_cast<size_t>(rng_.Below(12));
    LinkRequest request = RequestOf(kind, chunks_);
    request.cancel = cancel.token();
    auto sink = std::make_shared<CollectLink>(request.choices);
    sink->on_token = [&cancel, cancel_at, raw = sink.get()](const GeneratedToken&) {
      if (raw->tokens[0].size() == cancel_at) cancel.Cancel();
      return true;
    };
    ASSERT_OK(engine_->SubmitLink(std::move(request), sink));
    if (rng_.Below(6) == 0) cancel.Cancel();
    const absl::Status status = sink->done.Wait();
    if (status.ok()) {
      for (size_t i = 0; i < sink->tokens.size(); ++i) EXPECT_EQ(sink->Ids(i), answers_.at(kind)[i]);
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
    }
    for (const auto& ends : sink->ends) EXPECT_EQ(ends.size(), 1u);
    sink->on_token = nullptr;
  }

  void Compile() {
    CancelSource cancel;
    auto sink = std::make_shared<CollectCompile>(engine_->LayoutOf(90, 0));
    ASSERT_OK(engine_->SubmitCompile({.tokens = chunks_[0].tokens, .cancel = cancel.token()}, sink));
    if (rng_.Below(2) == 0) cancel.Cancel();
    if (!sink->done.Wait().ok()) return;
    EXPECT_EQ(AsText(sink->object->Layer(1)), AsText(chunks_[0].object->Layer(1)));
  }

  void Score() {
    auto sink = std::make_shared<CollectScore>();
    ASSERT_OK(engine_->SubmitScore({.tenant = "even",
                                    .pieces = {chunks_[2], Text({3, 4})},
                                    .strategy = {StrategyKind::kPrefix, 0},
                                    .continuation = {1, 2, 3}},
                                   sink));
    EXPECT_OK(sink->done.Wait());
    EXPECT_EQ(sink->logits.size(), 3u);
  }

  Engine* const engine_;
  Rng rng_;
  const std::vector<PromptPiece>& chunks_;
  const std::map<int, std::vector<std::vector<TokenId>>>& answers_;
};

TEST(EngineStressTest, ConcurrentClientsWithRandomCancellationsLeaveNothingBehind) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  const auto model = testing::LoadTiny(testing::TinyCaseOf("llama").spec);
  EngineOptions options = testing::TinyOptions(ComputeFormat::kF32);
  options.max_sequences = 5;
  options.prefix_cache_bytes = 1ull << 20;
  const auto engine = testing::MakeEngine(model, options);
  std::vector<PromptPiece> chunks;
  for (const size_t tokens : {90u, 40u, 60u}) {
    ASSERT_OK_AND_ASSIGN(PromptPiece chunk, Context(engine.get(), RandomTokens(tokens, tokens, 400)));
    chunks.push_back(std::move(chunk));
  }
  std::map<int, std::vector<std::vector<TokenId>>> answers;
  for (int kind = 0; kind < kKinds; ++kind) {
    ASSERT_OK_AND_ASSIGN(const auto link, testing::Link(engine.get(), RequestOf(kind, chunks)));
    for (size_t i = 0; i < link->tokens.size(); ++i) answers[kind].push_back(link->Ids(i));
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] { Client(engine.get(), seed + i, chunks, answers).Run(); });
  }
  for (std::thread& thread : threads) thread.join();
  const EngineGauges gauges = engine->Gauges();
  EXPECT_EQ(gauges.running, 0u);
  EXPECT_EQ(gauges.waiting, 0u);
  EXPECT_EQ(gauges.private_rows, 0u);
  EXPECT_EQ(gauges.held_objects, 0u);
  EXPECT_LE(gauges.prefix_cache_bytes, options.prefix_cache_bytes);
  for (const PromptPiece& chunk : chunks) EXPECT_EQ(chunk.object.use_count(), 1);
}

}  // namespace
}  // namespace epic
