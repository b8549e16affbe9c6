// The streams of layers between a store node and its callers: parts of at most 1 MiB, checked as they are
// copied into the arena, sent from where they lie in it. A layer that is still on its way up from disk is
// sent when it is there. Each stream frees itself when gRPC is done with it.
//
// One step at a time runs on the door's executor: taking a part, or making one. A part is asked for, or sent,
// when the one before it is done with, so that a slow end costs one part of memory; one that stops is cut off
// (stall_guard.h).
#ifndef EPIC_SERVICES_KV_STORE_RPC_LAYER_STREAMS_H_
#define EPIC_SERVICES_KV_STORE_RPC_LAYER_STREAMS_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "services/kv_store/rpc/stream_parts.h"

namespace epic::kv_store {

// KvStoreService.WriteLayers.
grpc::ServerReadReactor<grpc::ByteBuffer>* ReceiveLayers(const StreamParts* parts,
                                                         grpc::CallbackServerContext* context,
                                                         grpc::ByteBuffer* response);

// KvStoreService.ReadLayers.
grpc::ServerWriteReactor<grpc::ByteBuffer>* SendLayers(const StreamParts* parts,
                                                       grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_RPC_LAYER_STREAMS_H_
