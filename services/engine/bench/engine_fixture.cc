#include "services/engine/bench/engine_fixture.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "kernels/api/dispatch.h"
#include "services/engine/testing/engine_harness.h"
#include "services/model/prompt_tokens.h"

namespace epic::engine_bench {
namespace {

using testing::CollectLink;

constexpr uint64_t kPrefixCacheBytes = 512ull << 20;  // shape L, and the next prompt beside it

EngineOptions Options(uint32_t threads) {
  EngineOptions options;
  options.threads = threads;
  options.prefix_cache_bytes = kPrefixCacheBytes;
  return options;
}

int64_t NowNs() { return SystemClock::Get()->SteadyNs(); }

LinkRequest Greedy(std::vector<PromptPiece> pieces, const LinkStrategy& strategy, uint32_t max_tokens) {
  LinkRequest request{.pieces = std::move(pieces), .strategy = strategy};
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  return request;
}

// Watches requests that run together; called on the engine's thread.
struct Together {
  Engine* engine;
  size_t requests;
  uint32_t max_tokens;
  const std::function<void()>& at_token;
  size_t linked = 0;
  std::vector<uint32_t> tokens_in_window;
  int64_t begin_ns = 0;
  bool ended = false;
  TogetherRun run;

  void OnLinked() {
    if (++linked == requests) begin_ns = NowNs();
  }
  // Token `count` of a request, from 1.
  void OnToken(size_t request, size_t count) {
    const EngineGauges gauges = engine->Gauges();
    run.most.running = std::max(run.most.running, gauges.running);
    run.most.private_rows = std::max(run.most.private_rows, gauges.private_rows);
    run.most.private_bytes = std::max(run.most.private_bytes, gauges.private_bytes);
    if (at_token) at_token();
    if (linked < requests || ended || count == 1) return;
    ++tokens_in_window[request];
    if (count < max_tokens) return;
    // Every request had a row in each of the steps that this one went through.
    ended = true;
    run.decoded_tokens = tokens_in_window[request] * static_cast<uint32_t>(requests);
    run.decode_seconds = static_cast<double>(NowNs() - begin_ns) * 1e-9;
  }
};

}  // namespace

void Die(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

BenchEngine::BenchEngine(const std::string& model_path)
    : BenchEngine(OrDie(Model::Load(model_path)), std::thread::hardware_concurrency()) {}

BenchEngine::BenchEngine(std::shared_ptr<const Model> model, uint32_t threads)
    : threads_(std::max(threads, 1u)),
      model_(std::move(model)),
      engine_(OrDie(Engine::Create(model_, Options(threads_), SystemClock::Get()))) {}

std::unique_ptr<BenchEngine> BenchEngine::WithThreads(uint32_t threads) const {
  return std::unique_ptr<BenchEngine>(new BenchEngine(model_, threads));
}

std::string BenchEngine::Describe() const {
  return DescribeCpu() + ", " + std::to_string(threads_) + " threads, " +
         (engine_->compute() == ComputeFormat::kBf16 ? "bf16" : "f32") + " weights, KV " +
         (engine_->kv_dtype() == KvDtype::kBf16 ? "bf16" : "f32");
}

std::vector<TokenId> BenchEngine::Tokens(uint64_t seed, size_t count) const {
  return testing::RandomTokens(seed, count, model_->config().vocab);
}

PromptPiece BenchEngine::OwnText(uint64_t seed, uint32_t tokens) const {
  return testing::Text(Tokens(seed, tokens));
}

std::vector<PromptPiece> BenchEngine::Contexts(uint32_t count, uint32_t tokens, bool behind_bos4) {
  std::vector<PromptPiece>& contexts = contexts_[{tokens, behind_bos4}];
  std::vector<TokenId> prefix;
  if (behind_bos4) {
    const auto tokenizer = OrDie(Tokenizer::Create(model_->tokenizer_spec()));
    prefix = CompilePrefixTokens(*tokenizer, CompilePrefixKind::kBos4, {});
  }
  while (contexts.size() < count) {
    contexts.push_back(OrDie(testing::Context(engine_.get(), Tokens(contexts.size(), tokens), prefix)));
  }
  return {contexts.begin(), contexts.begin() + count};
}

std::vector<PromptPiece> BenchEngine::Prompt(const PromptShape& shape, uint64_t own_seed) {
  std::vector<PromptPiece> pieces = Contexts(shape.contexts, shape.context_tokens);
  pieces.push_back(OwnText(own_seed, shape.own_tokens));
  return pieces;
}

FirstToken BenchEngine::TimeToFirstToken(std::vector<PromptPiece> pieces, const LinkStrategy& strategy,
                                         std::string tenant, const std::function<void()>& at_token) {
  LinkRequest request = Greedy(std::move(pieces), strategy, 1);
  request.tenant = std::move(tenant);
  auto sink = std::make_shared<CollectLink>(1);
  int64_t first_ns = 0;
  sink->on_token = [&](const GeneratedToken&) {
    first_ns = NowNs();
    if (at_token) at_token();
    return true;
  };
  const int64_t begin_ns = NowNs();
  const absl::Status submitted = engine_->SubmitLink(std::move(request), sink);
  if (!submitted.ok()) Die(submitted);
  const absl::Status done = sink->done.Wait();
  if (!done.ok()) Die(done);
  sink->on_token = nullptr;
  return {static_cast<double>(first_ns - begin_ns) * 1e-9, sink->stats};
}

TogetherRun BenchEngine::RunTogether(std::vector<std::vector<PromptPiece>> prompts, uint32_t max_tokens,
                                     const std::function<void()>& at_token) {
  Together together{
      .engine = engine_.get(), .requests = prompts.size(), .max_tokens = max_tokens, .at_token = at_token};
  together.tokens_in_window.resize(prompts.size());
  std::vector<std::shared_ptr<CollectLink>> sinks;
  for (size_t i = 0; i < prompts.size(); ++i) {
    sinks.push_back(std::make_shared<CollectLink>(1));
    CollectLink* const sink = sinks.back().get();
    sink->on_linked = [&together] { together.OnLinked(); };
    sink->on_token = [&together, sink, i](const GeneratedToken&) {
      together.OnToken(i, sink->tokens[0].size());
      return true;
    };
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    const absl::Status submitted =
        engine_->SubmitLink(Greedy(std::move(prompts[i]), kLegoLink16, max_tokens), sinks[i]);
    if (!submitted.ok()) Die(submitted);
  }
  for (const auto& sink : sinks) {
    const absl::Status done = sink->done.Wait();
    if (!done.ok()) Die(done);
  }
  for (const auto& sink : sinks) {
    sink->on_linked = nullptr;
    sink->on_token = nullptr;
    together.run.computed_rows += sink->stats.recomputed_tokens + sink->stats.fresh_tokens;
  }
  EPIC_CHECK(together.run.decoded_tokens > 0);
  return together.run;
}

}  // namespace epic::engine_bench
