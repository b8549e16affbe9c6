#include "services/link_worker/core/link_service.h"

#include <utility>

#include "services/link_worker/core/link_call.h"

namespace epic {

std::vector<TokenId> EndTokens(const Tokenizer& tokenizer) {
  std::vector<TokenId> ends;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.IsEndOfGeneration(id)) ends.push_back(id);
  }
  return ends;
}

LinkService::LinkService(const HeadLimits& limits, const ServedModel* model, KvStore* store,
                         Compiler* compiler, const Clock* clock)
    : shared_(std::make_shared<Shared>(limits, model, store, compiler, clock)) {}

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
