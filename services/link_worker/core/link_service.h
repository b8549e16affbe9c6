// Runs linked generations: leases the objects of a prompt, has missing ones compiled, hands the prompt to the
// engine and streams text back.
//
// State: the calls in progress (link_call.h), and which template heads are compiled. Everything of a call is
// freed when it ends, on whichever path. Thread-safe. Link may block on the disk.
#ifndef EPIC_SERVICES_LINK_WORKER_CORE_LINK_SERVICE_H_
#define EPIC_SERVICES_LINK_WORKER_CORE_LINK_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/metrics/metrics.h"
#include "common/storage/kv_store.h"
#include "services/link_worker/core/head_cache.h"
#include "services/link_worker/core/unsound_objects.h"
#include "services/worker_api/compiler.h"
#include "services/worker_api/linker.h"
#include "services/worker_api/served_model.h"

namespace epic {

struct LinkServiceStats {
  uint64_t calls = 0;
  uint64_t active = 0;
  uint64_t objects_found = 0;
  uint64_t objects_missing = 0;  // of contexts; compiled again or refused
  uint64_t objects_lost = 0;     // on their way, with the prompt that read them begun
  uint64_t heads = 0;
};

class LinkService final : public Linker {
 public:
  // All pointers outlive the service and every call; metrics may be null. The executor takes what may block
  // on the disk when a call ends.
  LinkService(const HeadLimits& limits, const ServedModel* model, KvStore* store, Compiler* compiler,
              Executor* executor, const Clock* clock, Metrics* metrics = nullptr);

  std::shared_ptr<LinkCall> Link(LinkJob job, std::shared_ptr<LinkEvents> events) override;
  LinkServiceStats stats() const;

  // What calls share. Members synchronise themselves.
  struct Shared {
    Shared(const HeadLimits& limits, const ServedModel* model, KvStore* store, Compiler* compiler,
           Executor* executor, const Clock* clock, Metrics* metrics);
    // Counts one look-up of an object.
    void CountLookup(const AcquireResult& result);
    // Counts one prompt that was linked.
    void CountLink(const LinkStrategy& strategy);

    const ServedModel* const model;
    KvStore* const store;
    Compiler* const compiler;
    Executor* const executor;
    const Clock* const clock;
    const std::vector<TokenId> end_tokens;  // that end a generation
    HeadCache heads;
    const UnsoundObjects unsound;
    struct Series {
      Histogram inter_token;
      std::vector<Counter> lookups;  // hit, then by MissCause
      std::vector<Counter> links;    // by StrategyKind
      Counter lost;
      Histogram suspended;
    };
    std::optional<Series> series;  // none without metrics
    std::atomic<uint64_t> calls{0}, active{0}, objects_found{0}, objects_missing{0}, objects_lost{0};
  };

 private:
  const std::shared_ptr<Shared> shared_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_LINK_WORKER_CORE_LINK_SERVICE_H_
