// KvStoreService.Subscribe: the events of a node from a cursor on, a page at a time. The next page is asked
// for when the one before has gone, so that a slow reader costs one page; what falls out of the node's ring
// meanwhile is a gap, which ends the stream. Looks for events 50 times a second while there are none.
#ifndef EPIC_SERVICES_KV_STORE_RPC_EVENT_STREAM_H_
#define EPIC_SERVICES_KV_STORE_RPC_EVENT_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include "epic/v1/kv_store.pb.h"
#include "services/kv_store/rpc/stream_parts.h"

namespace epic::kv_store {

// The stream frees itself.
grpc::ServerWriteReactor<v1::EventPage>* SendEvents(const StreamParts* parts,
                                                    grpc::CallbackServerContext* context,
                                                    const v1::SubscribeRequest& request);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_RPC_EVENT_STREAM_H_
