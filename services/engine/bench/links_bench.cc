// Times to the first token, interleaved, and the ratios between them.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "services/engine/bench/sections.h"
#include "services/engine/testing/engine_harness.h"

namespace epic::engine_bench {
namespace {

// Of all threads of the process. Says what a busy machine's wall clock cannot.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string InShape(const std::string& name, const PromptShape& shape) {
  return name + ", shape " + shape.name;
}

void TimeLinks(BenchEngine* bench, const PromptShape& shape, double bar, int repeats, BenchReport* report) {
  const std::vector<PromptPiece> pieces = bench->Prompt(shape);
  bench->TimeToFirstToken(pieces, kLegoLink16);
  std::vector<double> full, link, ratio, rate, busy;
  for (int i = 0; i < repeats; ++i) {
    const double cpu = CpuSeconds();
    full.push_back(bench->TimeToFirstToken(pieces, kFull).seconds);
    busy.push_back(shape.tokens() / (CpuSeconds() - cpu));
    link.push_back(bench->TimeToFirstToken(pieces, kLegoLink16).seconds);
    ratio.push_back(full.back() / link.back());
    rate.push_back(shape.tokens() / full.back());
  }
  report->Measure(InShape("full TTFT, s", shape), full);
  report->Measure(InShape("legolink-16 TTFT, s", shape), link);
  const double speed = report->Measure(InShape("full, prompt tokens/s", shape), rate);
  report->Measure(InShape("full, prompt tokens per second of one CPU", shape), busy);
  const std::string name = InShape("TTFT ratio full / legolink-16", shape);
  report->Check(name, report->Measure(name, ratio), Bar::kAtLeast, bar);
  report->Check(InShape("full, prompt tokens/s", shape), speed, Bar::kAtLeast, 400);
}

// Links of the strategies that look before they link, beside legolink-16: time to the first token, and the
// share of it that went into choosing rows.
void TimeChoices(BenchEngine* bench, const PromptShape& shape, double bar, int repeats, BenchReport* report) {
  const std::vector<PromptPiece> pieces = bench->Prompt(shape);
  bench->TimeToFirstToken(pieces, kLegoLink16);
  std::vector<double> legolink, blend, guided, blend_ratio, guided_ratio, blend_share, guided_share;
  const auto share = [](const FirstToken& token) {
    return static_cast<double>(token.stats.decide_ns) * 1e-9 / token.seconds;
  };
  for (int i = 0; i < repeats; ++i) {
    legolink.push_back(bench->TimeToFirstToken(pieces, kLegoLink16).seconds);
    const FirstToken blended = bench->TimeToFirstToken(pieces, kCacheBlend15);
    blend.push_back(blended.seconds);
    blend_share.push_back(share(blended));
    const FirstToken asked = bench->TimeToFirstToken(pieces, kQueryGuided16);
    guided.push_back(asked.seconds);
    guided_share.push_back(share(asked));
    blend_ratio.push_back(blend.back() / legolink.back());
    guided_ratio.push_back(guided.back() / legolink.back());
  }
  report->Measure(InShape("legolink-16 TTFT beside choices, s", shape), legolink);
  report->Measure(InShape("cacheblend-0.15 TTFT, s", shape), blend);
  report->Measure(InShape("cacheblend-0.15, share of choosing rows", shape), blend_share);
  report->Measure(InShape("query-guided-16 TTFT, s", shape), guided);
  report->Measure(InShape("TTFT ratio query-guided-16 / legolink-16", shape), guided_ratio);
  const std::string ratio = InShape("TTFT ratio cacheblend-0.15 / legolink-16", shape);
  report->Check(ratio, report->Measure(ratio, blend_ratio), Bar::kAtLeast, bar);
  const std::string choosing = InShape("query-guided-16, share of choosing rows", shape);
  report->Check(choosing, report->Measure(choosing, guided_share), Bar::kAtMost, 0.15);
}

// The same own text behind contexts that were compiled behind bos4 and are read as they are, and behind one
// prefix of as many rows that an exact prefill left in the prefix cache. Other own text in each round: the
// last one's is in the prefix cache too.
void TimePrefix(BenchEngine* bench, const PromptShape& shape, int repeats, BenchReport* report) {
  constexpr char kTenant[] = "bench";
  const std::vector<PromptPiece> contexts = bench->Contexts(shape.contexts, shape.context_tokens, true);
  std::vector<PromptPiece> prefix;
  for (const PromptPiece& context : contexts) prefix.push_back(testing::Text(context.tokens));
  bench->TimeToFirstToken(prefix, kFull, kTenant);
  std::vector<double> linked, exact, ratio;
  uint32_t read = shape.tokens();
  uint32_t computed = 0;
  // Round 0 is not counted.
  for (int i = 0; i <= repeats; ++i) {
    const PromptPiece own = bench->OwnText(1000 + static_cast<uint64_t>(i), shape.own_tokens);
    std::vector<PromptPiece> over_contexts = contexts;
    over_contexts.push_back(own);
    std::vector<PromptPiece> over_prefix = prefix;
    over_prefix.push_back(own);
    const FirstToken link = bench->TimeToFirstToken(over_contexts, kLegoLink0);
    const FirstToken cached = bench->TimeToFirstToken(over_prefix, kPrefix, kTenant);
    for (const LinkStats& stats : {link.stats, cached.stats}) {
      read = std::min(read, stats.cached_tokens);
      computed = std::max(computed, stats.recomputed_tokens + stats.fresh_tokens);
    }
    if (i == 0) continue;
    linked.push_back(link.seconds);
    exact.push_back(cached.seconds);
    ratio.push_back(link.seconds / cached.seconds);
  }
  report->Check(InShape("rows read by either, the fewest", shape), read, Bar::kAtLeast, shape.covered(),
                true);
  report->Check(InShape("rows computed by either, the most", shape), computed, Bar::kAtMost, shape.own_tokens,
                true);
  report->Measure(InShape("legolink-0 TTFT, s", shape), linked);
  report->Measure(InShape("prefix TTFT over one exact prefix, s", shape), exact);
  const std::string name = InShape("TTFT ratio legolink-0 / prefix", shape);
  report->Check(name, report->Measure(name, ratio), Bar::kAtMost, 1.15);
}

}  // namespace

void CheckEquality(BenchEngine* bench, int /*repeats*/, BenchReport* report) {
  const std::vector<PromptPiece> contexts = bench->Contexts(2, kShapeM.context_tokens);
  const std::vector<PromptPiece> pieces = {contexts[1], contexts[0], bench->OwnText(100, kShapeM.own_tokens)};
  const auto full = OrDie(testing::Score(bench->engine(), pieces, kFull, {1}, ""));
  const LinkStrategy whole = {StrategyKind::kLegoLink, kShapeM.context_tokens};
  const auto link = OrDie(testing::Score(bench->engine(), pieces, whole, {1}, ""));
  report->Check("KL of a link over whole chunks from full",
                testing::KlDivergence(full->logits[0], link->logits[0]), Bar::kAtMost, 1e-3, true);
}

void TimeLinksM(BenchEngine* bench, int repeats, BenchReport* report) {
  TimeLinks(bench, kShapeM, 12, repeats, report);
}
void TimeLinksL(BenchEngine* bench, int repeats, BenchReport* report) {
  TimeLinks(bench, kShapeL, 20, repeats, report);
}
void TimeChoicesM(BenchEngine* bench, int repeats, BenchReport* report) {
  TimeChoices(bench, kShapeM, 2.5, repeats, report);
}
void TimeChoicesL(BenchEngine* bench, int repeats, BenchReport* report) {
  TimeChoices(bench, kShapeL, 4, repeats, report);
}
void TimePrefixM(BenchEngine* bench, int repeats, BenchReport* report) {
  TimePrefix(bench, kShapeM, repeats, report);
}
void TimePrefixL(BenchEngine* bench, int repeats, BenchReport* report) {
  TimePrefix(bench, kShapeL, repeats, report);
}

}  // namespace epic::engine_bench
