#include "common/rpc/worker_parts.h"

#include <utility>
#include <vector>

#include "common/rpc/kv_store/remote_kv_store.h"
#include "common/status/status_macros.h"

namespace epic {

absl::StatusOr<std::unique_ptr<KvStore>> StoreOfWorker(const ClusterSettings& settings,
                                                       const std::string& source,
                                                       std::shared_ptr<const Credentials> credentials,
                                                       Transfers* transfers) {
  EPIC_ASSIGN_OR_RETURN(const std::vector<std::string> stores, ParseAddresses(settings.stores));
  if (stores.size() != 1) {
    return absl::FailedPreconditionError("name in cluster.stores the one store of this worker, as HOST:PORT");
  }
  RemoteKvStoreOptions options;
  options.address = stores.front();
  options.credentials = std::move(credentials);
  options.source = source;
  options.make_reader = transfers->ReaderFor();
  return MakeRemoteKvStore(options);
}

}  // namespace epic
