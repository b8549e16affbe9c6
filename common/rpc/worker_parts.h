// What workers have in common besides their cores: the store that their settings name. A free function.
#ifndef EPIC_COMMON_RPC_WORKER_PARTS_H_
#define EPIC_COMMON_RPC_WORKER_PARTS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/config/config.h"
#include "common/rpc/credentials.h"
#include "common/rpc/pull/transfers.h"
#include "common/storage/kv_store.h"

namespace epic {

// Connects when it is first used. `source`: who writes, for those who wait. `transfers`, which outlive it,
// bring the bytes of objects. Errors: FailedPrecondition unless cluster.stores names one store.
absl::StatusOr<std::unique_ptr<KvStore>> StoreOfWorker(const ClusterSettings& settings,
                                                       const std::string& source,
                                                       std::shared_ptr<const Credentials> credentials,
                                                       Transfers* transfers);

}  // namespace epic

#endif  // EPIC_COMMON_RPC_WORKER_PARTS_H_
