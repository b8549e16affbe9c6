// IoEngine on io_uring. Each caller has a ring of its own while it runs; rings are kept for the next. A
// caller waits while kMaxRings are in use. Thread-safe. Not for a process that forks while I/O runs.
#ifndef EPIC_SERVICES_KV_STORE_EXTENTS_URING_ENGINE_H_
#define EPIC_SERVICES_KV_STORE_EXTENTS_URING_ENGINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "services/kv_store/extents/io_engine.h"

namespace epic::kv_store {

inline constexpr size_t kMaxRings = 32;

// Errors: Unimplemented or PermissionDenied where this kernel does not let us have rings.
absl::StatusOr<std::unique_ptr<IoEngine>> MakeUringEngine();

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_EXTENTS_URING_ENGINE_H_
