// Time to the first token of shape M (8 contexts of 512 tokens, 64 of own text) computed in full and linked
// by legolink-16, cacheblend-0.15 and query-guided-16, interleaved on one engine; then prefill and decode
// rates.
//
//   epic_engine_bench [--model FILE] [--repeats N] [--quick] [--json]
//
// Before it times, it checks that a link over whole chunks equals a full prefill. Beside the ratio stand the
// tokens per second of the full prefill, and the KL of the linked first token from the full one. Exits
// non-zero when a check fails; bars that depend on the machine are reported, not enforced.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/testing/paths.h"
#include "kernels/api/dispatch.h"
#include "services/engine/engine.h"
#include "services/engine/testing/engine_harness.h"
#include "services/model/model.h"

namespace epic {
namespace {

using testing::CollectLink;
using testing::Context;
using testing::RandomTokens;
using testing::Score;
using testing::Text;

constexpr LinkStrategy kFull{StrategyKind::kFull, 0};
constexpr LinkStrategy kLegoLink16{StrategyKind::kLegoLink, 16};
constexpr LinkStrategy kCacheBlend15{.kind = StrategyKind::kCacheBlend, .k = 0};
constexpr LinkStrategy kQueryGuided16{.kind = StrategyKind::kQueryGuided, .k = 0};
constexpr uint32_t kChunks = 8;
constexpr uint32_t kChunkTokens = 512;
constexpr uint32_t kOwnTokens = 64;
constexpr uint32_t kDecodeTokens = 64;

struct Flags {
  std::string model;
  int repeats = 5;
  bool json = false;
};

struct Check {
  std::string name;
  double value;
  double target;
  bool pass;
  bool required;
};

Flags ParseFlags(int argc, char** argv) {
  Flags flags;
  flags.model = testing::DefaultModelPath().value_or("");
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--model" && i + 1 < argc) {
      flags.model = argv[++i];
    } else if (flag == "--repeats" && i + 1 < argc) {
      flags.repeats = std::max(1, std::atoi(argv[++i]));
    } else if (flag == "--quick") {
      flags.repeats = 2;
    } else if (flag == "--json") {
      flags.json = true;
    } else {
      std::fprintf(stderr, "usage: %s [--model FILE] [--repeats N] [--quick] [--json]\n", argv[0]);
      std::exit(2);
    }
  }
  return flags;
}

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}

struct Spread {
  double median, low, high;
};

Spread SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

// Of all threads of the process. Says what a busy machine's wall clock cannot.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Bench {
 public:
  explicit Bench(const Flags& flags)
      : flags_(flags),
        model_(OrDie(Model::Load(flags.model))),
        engine_(OrDie(Engine::Create(model_, Options(), SystemClock::Get()))) {
    for (uint32_t i = 0; i < kChunks; ++i) {
      pieces_.push_back(OrDie(Context(engine_.get(), Tokens(i, kChunkTokens))));
    }
    pieces_.push_back(Text(Tokens(100, kOwnTokens)));
  }

  void CheckEquality() {
    const std::vector<PromptPiece> pieces = {pieces_[1], pieces_[0], pieces_[kChunks]};
    const auto full = OrDie(Score(engine_.get(), pieces, kFull, {1}));
    const auto link = OrDie(Score(engine_.get(), pieces, {StrategyKind::kLegoLink, kChunkTokens}, {1}));
    const double kl = testing::KlDivergence(full->logits[0], link->logits[0]);
    checks_.push_back({"KL of a link over whole chunks from full", kl, 1e-3, kl <= 1e-3, true});
  }

  void TimeLinks() {
    const double prompt = kChunks * kChunkTokens + kOwnTokens;
    std::vector<double> full, link, ratio, rate, busy;
    for (int i = 0; i < flags_.repeats; ++i) {
      const double cpu = CpuSeconds();
      full.push_back(TimeToFirstToken(kFull));
      busy.push_back(prompt / (CpuSeconds() - cpu));
      link.push_back(TimeToFirstToken(kLegoLink16));
      ratio.push_back(full.back() / link.back());
      rate.push_back(prompt / full.back());
    }
    Report("full TTFT, s", SpreadOf(full));
    Report("legolink-16 TTFT, s", SpreadOf(link));
    Report("full, prompt tokens/s", SpreadOf(rate));
    Report("full, prompt tokens per second of one CPU", SpreadOf(busy));
    Report("TTFT ratio full / legolink-16", SpreadOf(ratio));
    checks_.push_back({"TTFT ratio", SpreadOf(ratio).median, 6, SpreadOf(ratio).median >= 6, false});
    checks_.push_back({"full tokens/s", SpreadOf(rate).median, 400, SpreadOf(rate).median >= 400, false});
    const auto exact = OrDie(Score(engine_.get(), pieces_, kFull, {1}));
    const auto linked = OrDie(Score(engine_.get(), pieces_, kLegoLink16, {1}));
    if (!flags_.json) {
      std::printf("legolink-16: %u rows recomputed of %u, first-token KL from full %.3g (random tokens)\n",
                  linked->stats.recomputed_tokens, linked->stats.prompt_tokens,
                  testing::KlDivergence(exact->logits[0], linked->logits[0]));
    }
  }

  // Links of the strategies that look before they link, beside legolink-16: time to the first token, and the
  // share of it that went into choosing rows.
  void TimeChoices() {
    std::vector<double> legolink, blend, guided, blend_ratio, guided_ratio, blend_share, guided_share;
    for (int i = 0; i < flags_.repeats; ++i) {
      legolink.push_back(TimeToFirstToken(kLegoLink16));
      blend.push_back(TimeToFirstToken(kCacheBlend15));
      blend_share.push_back(stats_.decide_ns * 1e-9 / blend.back());
      guided.push_back(TimeToFirstToken(kQueryGuided16));
      guided_share.push_back(stats_.decide_ns * 1e-9 / guided.back());
      blend_ratio.push_back(blend.back() / legolink.back());
      guided_ratio.push_back(guided.back() / legolink.back());
    }
    Report("legolink-16 TTFT, s", SpreadOf(legolink));
    Report("cacheblend-0.15 TTFT, s", SpreadOf(blend));
    Report("cacheblend-0.15, share of choosing rows", SpreadOf(blend_share));
    Report("query-guided-16 TTFT, s", SpreadOf(guided));
    Report("query-guided-16, share of choosing rows", SpreadOf(guided_share));
    Report("TTFT ratio query-guided-16 / legolink-16", SpreadOf(guided_ratio));
    Report("TTFT ratio cacheblend-0.15 / legolink-16", SpreadOf(blend_ratio));
    const double ratio = SpreadOf(blend_ratio).median;
    const double share = SpreadOf(guided_share).median;
    checks_.push_back({"TTFT ratio cacheblend-0.15 / legolink-16", ratio, 2.5, ratio >= 2.5, false});
    checks_.push_back({"query-guided-16, share of choosing rows", share, 0.15, share <= 0.15, false});
  }

  void TimeDecode(uint32_t sequences) {
    std::vector<double> rates;
    for (int i = 0; i < std::min(flags_.repeats, 3); ++i) {
      LinkRequest request{.pieces = {Text(Tokens(7, 64))}, .strategy = kFull, .choices = sequences};
      request.max_tokens = kDecodeTokens;
      auto sink = std::make_shared<CollectLink>(sequences);
      int64_t linked_ns = 0;
      sink->on_linked = [&] { linked_ns = SystemClock::Get()->SteadyNs(); };
      EPIC_CHECK(engine_->SubmitLink(std::move(request), sink).ok());
      EPIC_CHECK(sink->done.Wait().ok());
      rates.push_back(sequences * (kDecodeTokens - 1) * 1e9 / (SystemClock::Get()->SteadyNs() - linked_ns));
      sink->on_linked = nullptr;
    }
    Report("decode tokens/s, " + std::to_string(sequences) + " at once", SpreadOf(rates));
  }

  int Finish() const {
    bool good = true;
    if (flags_.json) std::printf("{\"cpu\":\"%s\",\"checks\":[", DescribeCpu().c_str());
    for (size_t i = 0; i < checks_.size(); ++i) {
      const Check& check = checks_[i];
      good = good && (check.pass || !check.required);
      std::printf(flags_.json ? "%s{\"name\":\"%s\",\"value\":%.6g,\"target\":%.6g,\"pass\":%s}"
                              : "%s%s: %.4g, target %.4g: %s\n",
                  flags_.json && i > 0 ? "," : "", check.name.c_str(), check.value, check.target,
                  flags_.json ? (check.pass ? "true" : "false") : (check.pass ? "met" : "NOT met"));
    }
    if (flags_.json) std::printf("]}\n");
    return good ? 0 : 1;
  }

  void Describe() const {
    if (flags_.json) return;
    std::printf("%s, %u threads, %s weights, KV %s, %s\n", DescribeCpu().c_str(),
                std::thread::hardware_concurrency(),
                engine_->compute() == ComputeFormat::kBf16 ? "bf16" : "f32",
                engine_->kv_dtype() == KvDtype::kBf16 ? "bf16" : "f32", model_->config().name.c_str());
  }

 private:
  static EngineOptions Options() {
    EngineOptions options;
    options.prefix_cache_bytes = 0;
    return options;
  }
  std::vector<TokenId> Tokens(uint64_t seed, size_t count) const {
    return RandomTokens(seed, count, model_->config().vocab);
  }

  double TimeToFirstToken(const LinkStrategy& strategy) {
    LinkRequest request{.pieces = pieces_, .strategy = strategy};
    request.sampling.temperature = 0;
    request.max_tokens = 1;
    auto sink = std::make_shared<CollectLink>(1);
    int64_t first_ns = 0;
    sink->on_token = [&](const GeneratedToken&) {
      first_ns = SystemClock::Get()->SteadyNs();
      return true;
    };
    const int64_t begin_ns = SystemClock::Get()->SteadyNs();
    EPIC_CHECK(engine_->SubmitLink(std::move(request), sink).ok());
    EPIC_CHECK(sink->done.Wait().ok());
    sink->on_token = nullptr;
    stats_ = sink->stats;
    return (first_ns - begin_ns) * 1e-9;
  }

  void Report(const std::string& name, const Spread& spread) const {
    if (flags_.json) return;
    std::printf("%s: median %.4g (%.4g .. %.4g)\n", name.c_str(), spread.median, spread.low, spread.high);
    std::fflush(stdout);
  }

  const Flags flags_;
  const std::shared_ptr<const Model> model_;
  const std::unique_ptr<Engine> engine_;
  std::vector<PromptPiece> pieces_;
  std::vector<Check> checks_;
  LinkStats stats_;  // of the last time to the first token
};

}  // namespace
}  // namespace epic

int main(int argc, char** argv) {
  const epic::Flags flags = epic::ParseFlags(argc, argv);
  if (!std::ifstream(flags.model).good()) {
    std::fprintf(stderr, "no model at '%s': run deploy/fetch_model.sh or name one with --model\n",
                 flags.model.c_str());
    return 2;
  }
  epic::Bench bench(flags);
  bench.Describe();
  bench.CheckEquality();
  bench.TimeLinks();
  bench.TimeChoices();
  bench.TimeDecode(1);
  bench.TimeDecode(8);
  return bench.Finish();
}
