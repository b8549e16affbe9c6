// What choosers of paths count, in the one list of metrics. One per process; thread-safe.
#ifndef EPIC_COMMON_TRANSPORT_TRANSFER_METRICS_H_
#define EPIC_COMMON_TRANSPORT_TRANSFER_METRICS_H_

#include <cstdint>
#include <vector>

#include "common/metrics/metrics.h"
#include "common/transport/transport.h"

namespace epic::transport {

class TransferMetrics {
 public:
  // `metrics` outlives it.
  explicit TransferMetrics(Metrics* metrics);

  // Bytes that came and have their checksums.
  void Brought(PathKind path, TrafficClass traffic, uint64_t bytes) const;
  // A range that a path did not bring, for another reason than that it was cancelled.
  void Failed(PathKind path, FetchEnd end) const;
  // A path is not tried for a while.
  void CooledDown(PathKind path) const;

 private:
  // Handles, constant after construction. Shape: [paths][classes], [paths][ends], [paths].
  std::vector<std::vector<Counter>> bytes_;
  std::vector<std::vector<Counter>> failures_;
  std::vector<Counter> cooldowns_;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_TRANSFER_METRICS_H_
