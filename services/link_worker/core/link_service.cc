#include "services/link_worker/core/link_service.h"

#include <string_view>
#include <utility>

#include "common/storage/names.h"
#include "services/link_worker/core/link_call.h"

namespace epic {

namespace {

constexpr size_t kMissCauses = 1 + static_cast<size_t>(MissCause::kDiskSlow);

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
  series.emplace(Series{metrics->GetHistogram(MetricId::kInterTokenLatencySeconds),
                        {},
                        {},
                        metrics->GetCounter(MetricId::kObjectsLostTotal),
                        metrics->GetHistogram(MetricId::kLinkSuspendedSeconds)});
  // Found, then the causes of a miss in their order.
  series->lookups.push_back(metrics->GetCounter(MetricId::kObjectLookupsTotal, {"hit"}));
  for (size_t cause = 0; cause < kMissCauses; ++cause) {
    const std::string_view name = NameOf(static_cast<MissCause>(cause));
    series->lookups.push_back(metrics->GetCounter(MetricId::kObjectLookupsTotal, {name}));
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
          .objects_lost = shared_->objects_lost,
          .heads = shared_->heads.size()};
}

}  // namespace epic
