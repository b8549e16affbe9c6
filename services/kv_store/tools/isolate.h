// Runs work in a process of its own, so that ours survives it: the table library ends its process at some
// damaged bytes, which it looks at before it has compared their checksum. A free function.
#ifndef EPIC_SERVICES_KV_STORE_TOOLS_ISOLATE_H_
#define EPIC_SERVICES_KV_STORE_TOOLS_ISOLATE_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace epic::kv_store {

// Runs `work` in a copy of this process and returns what it returned, 0 to 255. What it leaves in memory is
// lost. Errors: DataLoss when it was ended by a signal, Unavailable when there is no further process to be
// had. REQUIRES: this process has one thread, and nothing is buffered for its standard output.
absl::StatusOr<int> RunIsolated(const std::function<int()>& work);
// The same for work that ends with a status, which is returned; what it says beyond code and message is lost.
absl::Status RunStatusIsolated(const std::function<absl::Status()>& work);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TOOLS_ISOLATE_H_
