// What the gRPC doors tell about each call when it is over, for the log and the metrics. A plain value; no
// text of users in it.
#ifndef EPIC_COMMON_RPC_RPC_EVENT_H_
#define EPIC_COMMON_RPC_RPC_EVENT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace epic {

struct RpcEvent {
  std::string_view call;         // create_context, chat, …: the names of the HTTP door
  std::string_view code = "ok";  // ok, or the name of the error; client_gone: the answer did not reach it
  std::string cause;             // of an unexpected error, for the log
  std::string request_id;
  int64_t duration_us = 0;  // until gRPC was done with the call
};

// Called on a thread of gRPC; must not block. May be empty.
using RpcObserver = std::function<void(const RpcEvent&)>;

}  // namespace epic

#endif  // EPIC_COMMON_RPC_RPC_EVENT_H_
