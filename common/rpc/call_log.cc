#include "common/rpc/call_log.h"

namespace epic {

RpcObserver LogCalls(const Logger& log) {
  return [log](const RpcEvent& event) {
    if (!event.cause.empty()) {
      log.Error("call fails unexpectedly",
                {{"call", event.call}, {"request_id", event.request_id}, {"cause", event.cause}});
    }
    log.Debug("call ends", {{"call", event.call},
                            {"code", event.code},
                            {"request_id", event.request_id},
                            {"duration_us", event.duration_us}});
  };
}

}  // namespace epic
