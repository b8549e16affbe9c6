// What a process needs to pull objects from store nodes over the paths of common/transport: one of each
// (timers, thread, budget, UCX end, fetcher) for all nodes. Owned by the process; thread-safe.
//
// Stop order: the stores whose readers were made here (ReaderFor) first, then this. Not here: how objects are
// leased and kept (pulled_objects.h).
#ifndef EPIC_COMMON_RPC_PULL_TRANSFERS_H_
#define EPIC_COMMON_RPC_PULL_TRANSFERS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/timers.h"
#include "common/metrics/metrics.h"
#include "common/rpc/kv_store/object_reader.h"
#include "common/transport/object_fetcher.h"
#include "common/transport/progress_thread.h"
#include "common/transport/traffic_budget.h"
#include "common/transport/transfer_metrics.h"
#include "common/transport/transport.h"
#include "common/transport/ucx/ucx_node.h"

namespace epic {

struct TransferOptions {
  // In order of preference. REQUIRES: shm, ucx and grpc, each once at most, at least one.
  std::vector<transport::PathKind> paths = {transport::PathKind::kShm, transport::PathKind::kUcx,
                                            transport::PathKind::kGrpc};
  transport::UcxSettings ucx;
  uint32_t ucx_pieces = 32;                      // of 1 MiB, under way to this process
  uint64_t prefetch_bytes = uint64_t{16} << 20;  // under way for one object
  transport::TrafficLimits limits;
  int64_t lease_ms = 60'000;
};

class Transfers {
 public:
  // `metrics` outlives it. Errors: those of UcxNode::Start, where ucx is one of the paths.
  static absl::StatusOr<std::unique_ptr<Transfers>> Start(const TransferOptions& options, Metrics* metrics);
  ~Transfers() { Stop(); }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // For RemoteKvStoreOptions::make_reader: pulls over the paths to one node. This outlives the reader.
  MakeObjectReader ReaderFor();
  // Objects that somebody holds, whole or on their way.
  size_t held() const { return fetcher_.held(); }
  // REQUIRES: no reader is left. Idempotent.
  void Stop();

 private:
  Transfers(const TransferOptions& options, Metrics* metrics);
  std::unique_ptr<transport::Path> PathTo(const ObjectReaderParts& parts);

  const TransferOptions options_;
  const Clock* const clock_ = SystemClock::Get();
  transport::TransferMetrics metrics_;
  TimerThread timers_;
  transport::ProgressThread thread_;
  transport::TrafficBudget budget_;
  transport::ObjectFetcher fetcher_;
  std::unique_ptr<transport::UcxNode> ucx_;  // nullptr: not one of the paths
};

}  // namespace epic

#endif  // EPIC_COMMON_RPC_PULL_TRANSFERS_H_
