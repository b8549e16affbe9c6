#include "common/metrics/metric_table.h"

#include <array>

#include "common/base/check.h"
#include "common/status/error.h"

namespace epic {
namespace {

// Seconds. From one millisecond to the two minutes after which every client has given up.
constexpr std::array kLongBuckets = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1,  0.15,
                                     0.25,  0.5,    0.75,  1.0,  2.5,  5.0,  10.0, 30.0,  60.0, 120.0};
// Seconds between tokens: small models need the fine ones.
constexpr std::array kTokenBuckets = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05,
                                      0.075,  0.1,   0.15,  0.25,  0.5,  1.0,  2.5};

// Seconds. Calls within a cluster: from a look-up to a transfer.
constexpr std::array kCallBuckets = {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0};

std::vector<std::string_view> OutcomeCodes() {
  std::vector<std::string_view> codes = {"ok"};
  for (const ErrorInfo& info : ErrorTable()) codes.push_back(info.name);
  return codes;
}

// The calls of KvStoreService, as RpcEvent names them.
std::vector<std::string_view> StoreCalls() {
  return {"create_context", "get_contexts",     "find_by_name", "get_tokens",   "list_contexts",
          "update_context", "delete_context",   "set_state",    "touch",        "usage",
          "attach",         "reserve",          "heartbeat",    "write_layers", "commit",
          "abort",          "acquire",          "read_layers",  "confirm",      "renew",
          "release",        "exists",           "drop",         "subscribe",    "inventory",
          "explain",        "issue_lane_ticket"};
}

std::vector<MetricDescriptor> MakeTable() {
  using enum MetricType;
  using Id = MetricId;
  const std::span<const double> seconds = kLongBuckets;
  const std::span<const double> token_seconds = kTokenBuckets;
  const std::span<const double> call_seconds = kCallBuckets;
  return {
      {Id::kRequestsTotal,
       "epic_requests_total",
       kCounter,
       "requests",
       "Requests that ended, by the door they came in and the code they ended with",
       {{"door", {"http", "grpc"}}, {"code", OutcomeCodes()}}},
      {Id::kRequestsRunning, "epic_requests_running", kGauge, "sequences", "Sequences in the engine"},
      {Id::kRequestsWaiting, "epic_requests_waiting", kGauge, "requests", "Requests admitted and waiting"},
      {Id::kRequestDurationSeconds,
       "epic_request_duration_seconds",
       kHistogram,
       "seconds",
       "Chat requests from admission to their last byte",
       {},
       seconds},
      {Id::kTimeToFirstTokenSeconds,
       "epic_time_to_first_token_seconds",
       kHistogram,
       "seconds",
       "Chat requests from admission to their first token with text",
       {},
       seconds},
      {Id::kTimePerOutputTokenSeconds,
       "epic_time_per_output_token_seconds",
       kHistogram,
       "seconds",
       "Mean time between the tokens of one answer of at least two",
       {},
       token_seconds},
      {Id::kInterTokenLatencySeconds,
       "epic_inter_token_latency_seconds",
       kHistogram,
       "seconds",
       "Time between two tokens of an answer",
       {},
       token_seconds},
      {Id::kPhaseSeconds,
       "epic_phase_seconds",
       kHistogram,
       "seconds",
       "Chat requests by phase",
       {{"phase", {"queue", "fetch", "decide", "link", "decode"}}},
       seconds},
      {Id::kPromptTokensTotal,
       "epic_prompt_tokens_total",
       kCounter,
       "tokens",
       "Prompt tokens by where their keys and values came from",
       {{"source", {"cached", "recomputed", "fresh"}}}},
      {Id::kGenerationTokensTotal, "epic_generation_tokens_total", kCounter, "tokens", "Tokens generated"},
      {Id::kEngineRowsInFlight, "epic_engine_rows_in_flight", kGauge, "rows",
       "Rows that running requests hold in their private segments"},
      {Id::kEnginePrivateSegmentBytes, "epic_engine_private_segment_bytes", kGauge, "bytes",
       "Memory of the private segments of running sequences"},
      {Id::kEngineRequestsSuspended, "epic_engine_requests_suspended", kGauge, "requests",
       "Running requests that wait for a layer of an object on its way"},
      {Id::kCompilesTotal,
       "epic_compiles_total",
       kCounter,
       "compiles",
       "Compiles that ended",
       {{"result", {"ok", "failed", "cancelled"}}}},
      {Id::kCompileTokensTotal, "epic_compile_tokens_total", kCounter, "tokens", "Tokens compiled"},
      {Id::kCompileSeconds,
       "epic_compile_seconds",
       kHistogram,
       "seconds",
       "Compiles from their admission to the commit of the object",
       {},
       seconds},
      {Id::kLinksTotal,
       "epic_links_total",
       kCounter,
       "prompts",
       "Prompts linked, by the strategy without its numbers",
       {{"strategy", {"full", "prefix", "naive", "legolink", "cacheblend", "query-guided"}}}},
      {Id::kObjectLookupsTotal,
       "epic_object_lookups_total",
       kCounter,
       "lookups",
       "KV objects asked from the store: found, or the cause of the miss",
       {{"result",
         {"hit", "never_stored", "evicted", "deleted", "layout_mismatch", "checksum", "io_error",
          "old_format", "no_memory", "disk_slow"}}}},
      {Id::kObjectsLostTotal, "epic_objects_lost_total", kCounter, "objects",
       "KV objects that ended on their way to a prompt: damaged, or their lease or peer gone"},
      {Id::kLinkSuspendedSeconds,
       "epic_link_suspended_seconds",
       kHistogram,
       "seconds",
       "How long prompts could not go on for want of a layer, those that never waited left out",
       {},
       seconds},
      {Id::kStoreContexts, "epic_store_contexts", kGauge, "contexts", "Context records"},
      {Id::kStoreObjectsInMemory, "epic_store_objects_in_memory", kGauge, "objects", "KV objects in memory"},
      {Id::kStoreMemoryBytes, "epic_store_memory_bytes", kGauge, "bytes", "Memory that KV objects take"},
      {Id::kStoreMemoryCapacityBytes, "epic_store_memory_capacity_bytes", kGauge, "bytes",
       "Memory that KV objects may take"},
      {Id::kStoreMemoryLargestHoleBytes, "epic_store_memory_largest_hole_bytes", kGauge, "bytes",
       "Largest piece of that memory that is free"},
      {Id::kStoreMemoryHeldBytes, "epic_store_memory_held_bytes", kGauge, "bytes",
       "Memory of KV objects that other processes read in place"},
      {Id::kStoreMemoryQuarantinedBytes, "epic_store_memory_quarantined_bytes", kGauge, "bytes",
       "Memory of deleted KV objects that other processes still read"},
      {Id::kStoreLeasedObjects, "epic_store_leased_objects", kGauge, "objects",
       "KV objects that someone reads"},
      {Id::kStoreDiskBytes, "epic_store_disk_bytes", kGauge, "bytes", "Disk that KV objects take"},
      {Id::kStoreReservations, "epic_store_reservations", kGauge, "writers",
       "Objects being written, neither committed nor discarded"},
      {Id::kStoreDiskErrorsTotal, "epic_store_disk_errors_total", kCounter, "errors",
       "Calls that the disk of the store refused or answered with damaged bytes"},
      {Id::kStoreDiskFull, "epic_store_disk_full", kGauge, "0 or 1",
       "Whether the last write that brought data to the disk found no room"},
      {Id::kStoreDiskSlow, "epic_store_disk_slow", kGauge, "0 or 1",
       "Whether the disk of the store answers far later than it used to, or than a disk should"},
      {Id::kStoreDiskWaitSeconds, "epic_store_disk_wait_seconds", kGauge, "seconds",
       "How much longer than their bytes need calls of that disk took lately, or take up to now"},
      {Id::kStoreDiskLateTotal, "epic_store_disk_late_total", kCounter, "calls",
       "Calls of the store that did not wait for its disk to the end"},
      {Id::kStoreObjectsNotWrittenTotal, "epic_store_objects_not_written_total", kCounter, "objects",
       "KV objects kept in memory only, since the disk was too slow to write them"},
      {Id::kStoreCallsTotal,
       "epic_store_calls_total",
       kCounter,
       "calls",
       "gRPC calls of a store process that ended; refused: with an error that says what to do",
       {{"call", StoreCalls()}, {"result", {"ok", "refused", "failed", "client_gone"}}}},
      {Id::kStoreCallSeconds,
       "epic_store_call_seconds",
       kHistogram,
       "seconds",
       "gRPC calls of a store process until they ended",
       {{"call", StoreCalls()}},
       call_seconds},
      {Id::kStoreLeases, "epic_store_leases", kGauge, "leases",
       "Leases that callers of a store process hold"},
      {Id::kStoreLeasesGrantedTotal, "epic_store_leases_granted_total", kCounter, "leases", "Leases given"},
      {Id::kStoreLeasesExpiredTotal, "epic_store_leases_expired_total", kCounter, "leases",
       "Leases that ended by time"},
      {Id::kStoreReservationsEndedTotal,
       "epic_store_reservations_ended_total",
       kCounter,
       "reservations",
       "Reservations of a store process by how they ended",
       {{"end", {"committed", "aborted", "preempted", "failed"}}}},
      {Id::kStoreScrubbedObjectsTotal,
       "epic_store_scrubbed_objects_total",
       kCounter,
       "objects",
       "KV objects on disk that a store process read again to check them",
       {{"result", {"right", "damaged", "unreadable"}}}},
      {Id::kStoreScrubbedBytesTotal, "epic_store_scrubbed_bytes_total", kCounter, "bytes",
       "What a store process read of the disk to check it"},
      {Id::kStoreShmConnections, "epic_store_shm_connections", kGauge, "connections",
       "Processes of the host that a store process hands its memory to"},
      {Id::kStoreShmLeases, "epic_store_shm_leases", kGauge, "leases", "Leases of those"},
      {Id::kStoreLayerStreams, "epic_store_layer_streams", kGauge, "streams",
       "Streams of layers that a store process serves"},
      {Id::kStoreAttachedCallers, "epic_store_attached_callers", kGauge, "callers",
       "Callers of a store process whose leases end with their connection"},
      {Id::kStoreWarmedUpObjectsTotal, "epic_store_warmed_up_objects_total", kCounter, "objects",
       "KV objects that a store process read to memory again after its start"},
      {Id::kStoreWarmedUpBytesTotal, "epic_store_warmed_up_bytes_total", kCounter, "bytes", "Bytes of those"},
      {Id::kStoreEventsTotal, "epic_store_events_total", kCounter, "events",
       "Changes that a store process published"},
      {Id::kStoreEventGapsTotal, "epic_store_event_gaps_total", kCounter, "gaps",
       "Followers that fell behind those, or came from another life of the process"},
      {Id::kTransferBytesTotal,
       "epic_transfer_bytes_total",
       kCounter,
       "bytes",
       "Bytes of layers that came from peers and have their checksums",
       {{"path", {"shm", "ucx", "grpc", "inproc"}}, {"class", {"fetch", "write_behind", "repair"}}}},
      {Id::kTransferFailuresTotal,
       "epic_transfer_failures_total",
       kCounter,
       "ranges",
       "Ranges of layers that a path did not bring; another one may have",
       {{"path", {"shm", "ucx", "grpc", "inproc"}},
        {"cause", {"deadline", "lease_ended", "damaged", "not_on_this_path", "path_down", "refused"}}}},
      {Id::kTransferCooldownsTotal,
       "epic_transfer_cooldowns_total",
       kCounter,
       "events",
       "Times that a path to a peer failed and was not tried for a while",
       {{"path", {"shm", "ucx", "grpc", "inproc"}}}},
      {Id::kTransferSentBytesTotal,
       "epic_transfer_sent_bytes_total",
       kCounter,
       "bytes",
       "Bytes of layers that a store process sent to readers; over shm it sends none",
       {{"path", {"ucx", "grpc"}}}},
      {Id::kMembers,
       "epic_members",
       kGauge,
       "nodes",
       "Members of the cluster as this process sees them",
       {{"kind", {"router", "compile_worker", "link_worker", "kv_store"}},
        {"state", {"joining", "serving", "draining"}}}},
      {Id::kMembersSuspected, "epic_members_suspected", kGauge, "nodes",
       "Members whose connection to this process broke, and that did not show up again"},
      {Id::kMembersKept, "epic_members_kept", kGauge, "nodes",
       "Members that the coordination store lost around a failure of its own, and that are kept for a while"},
      {Id::kCoordinationUp, "epic_coordination_up", kGauge, "0 or 1",
       "Whether the coordination store answers"},
      {Id::kCoordinationRevision, "epic_coordination_revision", kGauge, "revision",
       "Newest revision of the coordination store that was seen"},
      {Id::kCoordinationKeepaliveFailuresTotal, "epic_coordination_keepalive_failures_total", kCounter,
       "calls", "Renewals of leases that were not answered"},
      {Id::kCoordinationFailoversTotal, "epic_coordination_failovers_total", kCounter, "events",
       "Times that another endpoint of the coordination store was taken"},
      {Id::kCoordinationHistoriesLostTotal, "epic_coordination_histories_lost_total", kCounter, "events",
       "Times that the coordination store turned out to be another one, or an older state of itself"},
      {Id::kNotFiniteTotal,
       "epic_not_finite_total",
       kCounter,
       "events",
       "NaN or infinity: requests that failed for the model's output, compiles that failed, stored objects "
       "that "
       "were dropped",
       {{"in", {"output", "compile", "object"}}}},
      {Id::kHttpConnections,
       "epic_http_connections",
       kGauge,
       "connections",
       "Open HTTP connections",
       {{"door", {"public", "admin"}}}},
      {Id::kHttpStreams, "epic_http_streams", kGauge, "streams", "Answers being streamed over HTTP"},
      {Id::kTlsCertificateExpirySeconds, "epic_tls_certificate_expiry_seconds", kGauge, "seconds",
       "When the certificate in use expires, in seconds since 1970; 0: gRPC is plain"},
      {Id::kTlsReloadsTotal,
       "epic_tls_reloads_total",
       kCounter,
       "changes",
       "Changes of certificate files: taken, or refused for what the log says",
       {{"result", {"taken", "refused"}}}},
  };
}

}  // namespace

std::span<const MetricDescriptor> MetricTable() {
  static const std::vector<MetricDescriptor> table = MakeTable();
  return table;
}

const MetricDescriptor& DescriptorOf(MetricId id) {
  const auto table = MetricTable();
  EPIC_CHECK(static_cast<size_t>(id) < table.size());
  return table[static_cast<size_t>(id)];
}

std::string_view NameOf(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "";
}

std::string MetricsMarkdown() {
  std::string out = "| metric | type | unit | labels | what |\n|---|---|---|---|---|\n";
  for (const MetricDescriptor& metric : MetricTable()) {
    out += "| `" + std::string(metric.name) + "` | " + std::string(NameOf(metric.type)) + " | " +
           std::string(metric.unit) + " | ";
    for (const LabelDescriptor& label : metric.labels) {
      out += (&label == &metric.labels.front() ? "`" : "; `") + std::string(label.name) + "`: ";
      for (const std::string_view& value : label.values) {
        out += (&value == &label.values.front() ? "" : ", ") + std::string(value);
      }
    }
    out += " | " + std::string(metric.help) + " |\n";
  }
  return out;
}

}  // namespace epic
