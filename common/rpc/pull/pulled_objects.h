// Reads objects of one store node over a path of common/transport: leases them, has their layers fetched, and
// gives them while later layers are still on their way. Owned by a RemoteKvStore. Thread-safe; Read blocks
// for the answer to a lease, never for bytes.
//
// One fetch for each object, however many read it. A lease is renewed as long as its fetch runs and released
// after it; that the bytes count is said by the path before the last layer is there (transport.h).
#ifndef EPIC_COMMON_RPC_PULL_PULLED_OBJECTS_H_
#define EPIC_COMMON_RPC_PULL_PULLED_OBJECTS_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "common/base/clock.h"
#include "common/rpc/kv_store/object_reader.h"
#include "common/rpc/pull/lease_keeper.h"
#include "common/transport/object_fetcher.h"
#include "common/transport/transport.h"

namespace epic {

class PulledObjects final : public ObjectReader {
 public:
  // `fetcher` and `clock` outlive it.
  PulledObjects(const ObjectReaderParts& parts, std::unique_ptr<transport::Path> path,
                transport::ObjectFetcher* fetcher, int64_t lease_ms, const Clock* clock);
  ~PulledObjects() override;

  // An object ends early with what transport.h says of fetches.
  absl::StatusOr<AcquireResult> Read(std::string_view tenant, const ObjectKey& key,
                                     const KvLayout& layout) override;

 private:
  const ObjectReaderParts parts_;
  transport::ObjectFetcher* const fetcher_;
  const int64_t lease_ms_;
  const Clock* const clock_;
  LeaseKeeper leases_;
  const std::unique_ptr<transport::Path> path_;
};

}  // namespace epic

#endif  // EPIC_COMMON_RPC_PULL_PULLED_OBJECTS_H_
