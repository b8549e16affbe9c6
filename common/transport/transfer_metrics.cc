#include "common/transport/transfer_metrics.h"

#include <array>
#include <string_view>

namespace epic::transport {
namespace {

struct Cause {
  FetchEnd end;
  std::string_view label;
};
constexpr std::array kCauses = {
    Cause{FetchEnd::kDeadline, "deadline"},  Cause{FetchEnd::kLeaseEnded, "lease_ended"},
    Cause{FetchEnd::kDamaged, "damaged"},    Cause{FetchEnd::kNotOnThisPath, "not_on_this_path"},
    Cause{FetchEnd::kPathDown, "path_down"}, Cause{FetchEnd::kRefused, "refused"},
};

}  // namespace

TransferMetrics::TransferMetrics(Metrics* metrics) {
  for (size_t path = 0; path < kPathKinds; ++path) {
    const std::string_view name = NameOf(static_cast<PathKind>(path));
    auto& bytes = bytes_.emplace_back();
    for (size_t traffic = 0; traffic < kTrafficClasses; ++traffic) {
      bytes.push_back(metrics->GetCounter(MetricId::kTransferBytesTotal,
                                          {name, NameOf(static_cast<TrafficClass>(traffic))}));
    }
    auto& failures = failures_.emplace_back();
    for (const Cause& cause : kCauses) {
      failures.push_back(metrics->GetCounter(MetricId::kTransferFailuresTotal, {name, cause.label}));
    }
    cooldowns_.push_back(metrics->GetCounter(MetricId::kTransferCooldownsTotal, {name}));
  }
}

void TransferMetrics::Brought(PathKind path, TrafficClass traffic, uint64_t bytes) const {
  bytes_[static_cast<size_t>(path)][static_cast<size_t>(traffic)].Add(bytes);
}

void TransferMetrics::Failed(PathKind path, FetchEnd end) const {
  for (size_t cause = 0; cause < kCauses.size(); ++cause) {
    if (kCauses[cause].end == end) failures_[static_cast<size_t>(path)][cause].Add();
  }
}

void TransferMetrics::CooledDown(PathKind path) const { cooldowns_[static_cast<size_t>(path)].Add(); }

}  // namespace epic::transport
