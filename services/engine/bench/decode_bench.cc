// Rates of decode.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "services/engine/bench/sections.h"
#include "services/engine/testing/engine_harness.h"

namespace epic::engine_bench {
namespace {

constexpr uint32_t kSequences = 8;
constexpr uint32_t kOwnTokens = 16;
constexpr uint32_t kDecodeTokens = 64;

double RateOfChoices(BenchEngine* bench, uint32_t sequences) {
  LinkRequest request{.pieces = {bench->OwnText(7, 64)}, .strategy = kFull, .choices = sequences};
  // Greedy: random text leaves a distribution so flat that every draw would sort the vocabulary.
  request.sampling.temperature = 0;
  request.max_tokens = kDecodeTokens;
  auto sink = std::make_shared<testing::CollectLink>(sequences);
  int64_t linked_ns = 0;
  sink->on_linked = [&] { linked_ns = SystemClock::Get()->SteadyNs(); };
  EPIC_CHECK(bench->engine()->SubmitLink(std::move(request), sink).ok());
  EPIC_CHECK(sink->done.Wait().ok());
  const int64_t ns = SystemClock::Get()->SteadyNs() - linked_ns;
  sink->on_linked = nullptr;
  return sequences * (kDecodeTokens - 1) * 1e9 / static_cast<double>(ns);
}

// The same tokens and bytes in memory of their own.
PromptPiece CopyOf(const PromptPiece& context) {
  auto object = std::make_shared<testing::PlainObject>(context.object->layout());
  for (uint32_t layer = 0; layer < object->layout().layers; ++layer) {
    const ByteSpan from = context.object->Layer(layer);
    std::memcpy(object->MutableLayer(layer).data(), from.data(), from.size());
  }
  PromptPiece copy = context;
  copy.object = std::move(object);
  return copy;
}

// Prompts over the same contexts: each has them in an order of its own, and its own text.
std::vector<std::vector<PromptPiece>> Prompts(BenchEngine* bench, uint32_t count, bool copies) {
  const std::vector<PromptPiece> contexts = bench->Contexts(kShapeM.contexts, kShapeM.context_tokens);
  std::vector<std::vector<PromptPiece>> prompts(count);
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t c = 0; c < contexts.size(); ++c) {
      const PromptPiece& context = contexts[(c + i) % contexts.size()];
      prompts[i].push_back(copies ? CopyOf(context) : context);
    }
    prompts[i].push_back(bench->OwnText(2000 + i, kOwnTokens));
  }
  return prompts;
}

}  // namespace

void TimeDecode(BenchEngine* bench, int repeats, BenchReport* report) {
  std::vector<double> one, eight;
  for (int i = 0; i < repeats; ++i) {
    one.push_back(RateOfChoices(bench, 1));
    eight.push_back(RateOfChoices(bench, kSequences));
  }
  report->Measure("decode tokens/s, 1 at once", one);
  report->Measure("decode tokens/s, 8 at once", eight);
}

void TimeSharedDecode(BenchEngine* bench, int repeats, BenchReport* report) {
  const auto shared = Prompts(bench, kSequences, false);
  const auto copied = Prompts(bench, kSequences, true);
  const auto alone = Prompts(bench, 1, false);
  std::vector<double> one, together, copies, ratio;
  for (int i = 0; i < repeats; ++i) {
    one.push_back(bench->RunTogether(alone, kDecodeTokens).rate());
    together.push_back(bench->RunTogether(shared, kDecodeTokens).rate());
    copies.push_back(bench->RunTogether(copied, kDecodeTokens).rate());
    ratio.push_back(together.back() / copies.back());
  }
  report->Measure("decode tokens/s, 1 sequence over 4096 tokens", one);
  report->Measure("decode tokens/s, 8 sequences over the same 4096 tokens", together);
  report->Measure("decode tokens/s, 8 sequences over 8 copies", copies);
  const std::string name = "decode ratio of 8 sequences, same contexts / copies";
  report->Check(name, report->Measure(name, ratio), Bar::kAtLeast, 1.5);
}

}  // namespace epic::engine_bench
