// The one list of metrics: name, type, unit, labels with every value they can take, help, buckets.
//
// To add one: an id here, a row in metric_table.cc, then the table of README.md (a test compares and prints
// it). Labels are closed lists, so the number of series is known and each exists, at 0, from the start. A
// label never holds a Cache ID, a tenant, a request id or anything else that a client chooses.
#ifndef EPIC_COMMON_METRICS_METRIC_TABLE_H_
#define EPIC_COMMON_METRICS_METRIC_TABLE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace epic {

enum class MetricType : uint8_t { kCounter, kGauge, kHistogram };

enum class MetricId : uint8_t {
  kRequestsTotal,  // {door, code}
  kRequestsRunning,
  kRequestsWaiting,
  kRequestDurationSeconds,
  kTimeToFirstTokenSeconds,
  kTimePerOutputTokenSeconds,
  kInterTokenLatencySeconds,
  kPhaseSeconds,       // {phase}
  kPromptTokensTotal,  // {source}
  kGenerationTokensTotal,
  kEngineRowsInFlight,
  kEnginePrivateSegmentBytes,
  kEngineRequestsSuspended,
  kCompilesTotal,  // {result}
  kCompileTokensTotal,
  kCompileSeconds,
  kLinksTotal,          // {strategy}
  kObjectLookupsTotal,  // {result}
  kObjectsLostTotal,
  kLinkSuspendedSeconds,
  kStoreContexts,
  kStoreObjectsInMemory,
  kStoreMemoryBytes,
  kStoreMemoryCapacityBytes,
  kStoreMemoryLargestHoleBytes,
  kStoreMemoryHeldBytes,
  kStoreMemoryQuarantinedBytes,
  kStoreLeasedObjects,
  kStoreDiskBytes,
  kStoreReservations,
  kStoreDiskErrorsTotal,
  kStoreDiskFull,
  kStoreDiskSlow,
  kStoreDiskWaitSeconds,
  kStoreDiskLateTotal,
  kStoreObjectsNotWrittenTotal,
  kStoreCallsTotal,   // {call, result}
  kStoreCallSeconds,  // {call}
  kStoreLeases,
  kStoreLeasesGrantedTotal,
  kStoreLeasesExpiredTotal,
  kStoreReservationsEndedTotal,  // {end}
  kStoreScrubbedObjectsTotal,    // {result}
  kStoreScrubbedBytesTotal,
  kStoreShmConnections,
  kStoreShmLeases,
  kStoreLayerStreams,
  kStoreAttachedCallers,
  kStoreWarmedUpObjectsTotal,
  kStoreWarmedUpBytesTotal,
  kStoreEventsTotal,
  kStoreEventGapsTotal,
  kTransferBytesTotal,      // {path, class}
  kTransferFailuresTotal,   // {path, cause}
  kTransferCooldownsTotal,  // {path}
  kTransferSentBytesTotal,  // {path}
  kMembers,                 // {kind, state}
  kMembersSuspected,
  kMembersKept,
  kCoordinationUp,
  kCoordinationRevision,
  kCoordinationKeepaliveFailuresTotal,
  kCoordinationFailoversTotal,
  kCoordinationHistoriesLostTotal,
  kNotFiniteTotal,
  kHttpConnections,  // {door}
  kHttpStreams,
  kTlsCertificateExpirySeconds,
  kTlsReloadsTotal,  // {result}
};

struct LabelDescriptor {
  std::string_view name;
  std::vector<std::string_view> values;
};

struct MetricDescriptor {
  MetricId id;
  std::string_view name;
  MetricType type;
  std::string_view unit;
  std::string_view help;
  std::vector<LabelDescriptor> labels = {};
  std::span<const double> buckets = {};  // upper bounds of a histogram, ascending; +Inf is added
};

// Every metric once, in the order of the enum.
std::span<const MetricDescriptor> MetricTable();
const MetricDescriptor& DescriptorOf(MetricId id);
std::string_view NameOf(MetricType type);
// The README table, one row a metric.
std::string MetricsMarkdown();

}  // namespace epic

#endif  // EPIC_COMMON_METRICS_METRIC_TABLE_H_
