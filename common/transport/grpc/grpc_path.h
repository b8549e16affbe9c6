// The path that always works: ReadLayers of a store node over gRPC (proto/epic/v1/kv_store.proto), on the
// channel that it is given, with mutual TLS where that has it. Thread-safe.
//
// One stream for each run of neighbouring layers, one run after the other, checked while its parts are copied
// out of gRPC's buffers; after the last one the node is asked whether the lease was held. Layers come in
// order: one that is waited for holds up those behind it in the same fetch. Callbacks come on gRPC's threads
// or the path's own, for one fetch one at a time. Fetches by the same lease do not disturb one another: it
// stays when one is cancelled, and is released by whoever acquired it.
#ifndef EPIC_COMMON_TRANSPORT_GRPC_GRPC_PATH_H_
#define EPIC_COMMON_TRANSPORT_GRPC_GRPC_PATH_H_

#include <cstdint>
#include <memory>

#include "common/base/clock.h"
#include "common/rpc/kv_store/store_channel.h"
#include "common/transport/transport.h"

namespace epic::transport {

struct GrpcPathOptions {
  std::shared_ptr<StoreChannel> channel;
  const Clock* clock = SystemClock::Get();
  int64_t reconnect_ms = 2000;  // how long the one retry waits for a node that is being restarted
  size_t fetches_max = 1024;    // under way; further ones end with PathDown
  PeerDownFn peer_down;         // when a call finds that a node which answered before is gone
};

// REQUIRES: options.channel.
std::unique_ptr<Path> MakeGrpcPath(const GrpcPathOptions& options);

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_GRPC_GRPC_PATH_H_
