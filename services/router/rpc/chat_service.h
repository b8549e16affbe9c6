// epic.v1.ChatService: one stream of events per request. Stateless; events are queued by the engine's thread
// and written by gRPC's, in order, in a queue of bounded size. A client that does not read is cancelled when
// it is full.
#ifndef EPIC_SERVICES_ROUTER_RPC_CHAT_SERVICE_H_
#define EPIC_SERVICES_ROUTER_RPC_CHAT_SERVICE_H_

#include <cstddef>

#include "common/rpc/rpc_call.h"
#include "epic/v1/chat.grpc.pb.h"
#include "services/router/core/api.h"

namespace epic {

class ChatRpcService final : public v1::ChatService::CallbackService {
 public:
  // Both outlive the service. max_buffer_bytes: text that waits for one client.
  ChatRpcService(ChatApi* chat, const RpcParts* parts, size_t max_buffer_bytes)
      : chat_(chat), parts_(parts), max_buffer_bytes_(max_buffer_bytes) {}

  grpc::ServerWriteReactor<v1::ChatEvent>* Complete(grpc::CallbackServerContext* context,
                                                    const v1::ChatRequest* request) override;

 private:
  ChatApi* const chat_;
  const RpcParts* const parts_;
  const size_t max_buffer_bytes_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_RPC_CHAT_SERVICE_H_
