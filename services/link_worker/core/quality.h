// Compares a linked prompt with the same prompt computed whole, on the engine (worker_api/quality_probe.h).
//
// Owns nothing beyond a call; one comparison at a time, for each holds rows of logits.
#ifndef EPIC_SERVICES_LINK_WORKER_CORE_QUALITY_H_
#define EPIC_SERVICES_LINK_WORKER_CORE_QUALITY_H_

#include <atomic>
#include <vector>

#include "services/link_worker/core/unsound_objects.h"
#include "services/worker_api/compiler.h"
#include "services/worker_api/quality_probe.h"
#include "services/worker_api/served_model.h"

namespace epic {

// `full` and `linked`: one row of logits per token, in order. REQUIRES: the same number of rows, at least
// one.
QualityReport CompareLogits(const std::vector<std::vector<float>>& full,
                            const std::vector<std::vector<float>>& linked);

class EngineQualityProbe final : public QualityProbe {
 public:
  // All outlive the probe; metrics may be null.
  EngineQualityProbe(const ServedModel* model, Compiler* compiler, KvStore* store, Metrics* metrics = nullptr)
      : model_(model), compiler_(compiler), unsound_(store, metrics) {}

  absl::StatusOr<QualityReport> Compare(const LinkJob& job, const CancelToken& cancel) override;

 private:
  absl::StatusOr<QualityReport> CompareAlone(const LinkJob& job, const CancelToken& cancel);

  const ServedModel* const model_;
  Compiler* const compiler_;
  const UnsoundObjects unsound_;
  std::atomic<bool> busy_{false};
};

}  // namespace epic

#endif  // EPIC_SERVICES_LINK_WORKER_CORE_QUALITY_H_
