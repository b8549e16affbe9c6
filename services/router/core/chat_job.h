// From a chat request to the job of a link worker: all that can be refused before work begins, is refused
// here. May block on the disk.
#ifndef EPIC_SERVICES_ROUTER_CORE_CHAT_JOB_H_
#define EPIC_SERVICES_ROUTER_CORE_CHAT_JOB_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/base/digest.h"
#include "services/router/core/api.h"
#include "services/router/core/router_parts.h"
#include "services/worker_api/linker.h"

namespace epic {

struct ChatJob {
  LinkJob link;  // without seed where the request has none, and without received_steady_ns
  bool has_seed = false;
  Digest named_prefix;             // of the tokens that linking.compile_prefix names; zero: none
  bool waits_for_compile = false;  // an object that the link reads is still being compiled
};

// Errors: those of CheckChat and BuildPrompt; kContextLengthExceeded with both numbers.
absl::StatusOr<ChatJob> MakeChatJob(const RouterParts& parts, const std::string& tenant,
                                    const ChatRequest& request);

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_CORE_CHAT_JOB_H_
