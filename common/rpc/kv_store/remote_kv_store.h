// A store node of another process as a KvStore: every call goes over gRPC. Owned by whoever uses it; all
// calls are thread-safe and block until the node answers or their deadline is over.
//
// A get copies: it leases the object, reads its layers into memory of our own, checks every checksum on the
// way and asks the node afterwards whether the lease was held all the while; only then it is a hit. The
// object is ours from then on: it stays what it is, whatever becomes of the node. With a reader of another
// kind AcquireStreaming gives objects whose layers are still to come; they must be let go of before the
// store. A put keeps a copy of the layers until its commit, so that a node that was restarted amid it, or
// took the reservation away, gets them once more; anything that fails twice is an error.
//
// Errors of every call, besides those of KvStore: Unavailable and DeadlineExceeded when the node cannot be
// reached. Touch, Usage and Disk say nothing then. Reserve and Commit also fail with kReservationConflict and
// an advice when to try again, while somebody else writes the same object.
#ifndef EPIC_COMMON_RPC_KV_STORE_REMOTE_KV_STORE_H_
#define EPIC_COMMON_RPC_KV_STORE_REMOTE_KV_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/rpc/kv_store/object_reader.h"
#include "common/storage/kv_store.h"

namespace epic {

class Credentials;  // common/rpc/credentials.h

struct RemoteKvStoreOptions {
  std::string address;                             // HOST:PORT, or unix:PATH
  std::shared_ptr<const Credentials> credentials;  // null: plain
  std::string source = "epic";                     // who writes, for those who wait; at most 256 bytes
  int64_t call_ms = 10'000;                        // deadline of a call that moves no layers
  int64_t reconnect_ms = 2'000;                    // the one retry waits so long for a node that restarts
  int64_t lease_ms = 60'000;                       // for a read
  int64_t heartbeat_ms = 5'000;                    // signs of life of what is being written
  int64_t erase_ms = 600'000;                      // how long an erasure is waited for
  const Clock* clock = SystemClock::Get();         // outlives the store
  // Makes what reads objects; empty: they are read whole, over ReadLayers (object_reader.h).
  MakeObjectReader make_reader;
};

// Connects when it is first used. Errors: InvalidArgument when there is no address.
absl::StatusOr<std::unique_ptr<KvStore>> MakeRemoteKvStore(const RemoteKvStoreOptions& options);

}  // namespace epic

#endif  // EPIC_COMMON_RPC_KV_STORE_REMOTE_KV_STORE_H_
