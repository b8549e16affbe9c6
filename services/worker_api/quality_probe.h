// How far a linked prompt is from the same prompt computed whole, as the router sees it: KL(full ‖ linked)
// over the greedy answer of `full`, teacher-forced. services/link_worker/core implements it.
#ifndef EPIC_SERVICES_WORKER_API_QUALITY_PROBE_H_
#define EPIC_SERVICES_WORKER_API_QUALITY_PROBE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/base/cancel.h"
#include "services/worker_api/linker.h"

namespace epic {

// Over the rows that predict each token of the answer. KL in nats.
struct QualityReport {
  uint32_t tokens = 0;  // of the answer, its end included
  double kl_mean = 0;
  double kl_median = 0;
  double kl_first = 0;
  double top1 = 0;  // share of rows whose likeliest token is the same
  uint32_t prompt_tokens = 0;
  uint32_t recomputed_tokens = 0;  // by the linked side
  uint32_t cached_tokens = 0;      // by the linked side
};

class QualityProbe {
 public:
  virtual ~QualityProbe() = default;
  // Longest answer that is scored, in tokens.
  static constexpr uint32_t kMaxTokens = 32;

  // job.strategy is the linked side; job.max_tokens bounds the answer. Missing objects are compiled. Blocks
  // until both sides are scored (seconds): call it on an executor. Thread-safe. Errors: kQueueFull while
  // another comparison runs; those of the engine and the compiler; kCancelled.
  virtual absl::StatusOr<QualityReport> Compare(const LinkJob& job, const CancelToken& cancel) = 0;
};

}  // namespace epic

#endif  // EPIC_SERVICES_WORKER_API_QUALITY_PROBE_H_
