#include "services/link_worker/core/link_service.h"

#include <array>
#include <string_view>
#include <utility>

#include "services/link_worker/core/link_call.h"

namespace epic {

namespace {

// Labels of epic_object_lookups_total: found, then the causes of a miss in the order of MissCause.
constexpr std::array<std::string_view, 9> kLookupResults = {"hit",      "never_stored",    "evicted",
                                                            "deleted",  "layout_mismatch", "checksum",
                                                            "io_error", "old_format",      "no_memory"};
static_assert(kLookupResults.size() == 2 + static_cast<size_t>(MissCause::kNoMemory));

}  // namespace

LinkService::Shared::Shared(const HeadLimits& limits, const ServedModel* model, KvStore* store,
                            Compiler* compiler, Executor* executor, const Clock* clock, Metrics* metrics)
    : model(model),
      store(store),
      compiler(compiler),
      executor(executor),
      clock(clock),
      end_tokens(EndTokens(*model->tokenizer)),
      heads(limits, model->identity, model->alias, store),
      unsound(store, metrics) {
  if (metrics == nullptr) return;
  series.emplace(Series{metrics->GetHistogram(MetricId::kInterTokenLatencySeconds), {}, {}});
  for (const std::string_view result : kLookupResults) {
    series->lookups.push_back(metrics->GetCounter(MetricId::kObjectLookupsTotal, {result}));
  }
  for (const std::string_view family : kStrategyFamilies) {
    series->links.push_back(metrics->GetCounter(MetricId::kLinksTotal, {family}));
  }
}

void LinkService::Shared::CountLink(const LinkStrategy& strategy) {
  if (series.has_value()) series->links[static_cast<size_t>(strategy.kind)].Add();
}

void LinkService::Shared::CountLookup(const AcquireResult& result) {
  if (result.object != nullptr) ++objects_found;
  if (!series.has_value()) return;
  const size_t index = result.object != nullptr ? 0 : 1 + static_cast<size_t>(result.cause);
  series->lookups[index].Add();
}

LinkService::LinkService(const HeadLimits& limits, const ServedModel* model, KvStore* store,
                         Compiler* compiler, Executor* executor, const Clock* clock, Metrics* metrics)
    : shared_(std::make_shared<Shared>(limits, model, store, compiler, executor, clock, metrics)) {}

std::shared_ptr<LinkCall> LinkService::Link(LinkJob job, std::shared_ptr<LinkEvents> events) {
  auto call = std::make_shared<LinkCallImpl>(shared_, std::move(job), std::move(events));
  call->Start();
  return call;
}

LinkServiceStats LinkService::stats() const {
  return {.calls = shared_->calls,
          .active = shared_->active,
          .objects_found = shared_->objects_found,
          .objects_missing = shared_->objects_missing,
          .heads = shared_->heads.size()};
}

}  // namespace epic
