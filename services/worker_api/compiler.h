// The compile worker as its users see it: makes sure that a KV object exists.
//
// services/compile_worker/core implements it in process; in a cluster a client of its RPC does. The caller
// owns the context's record; the compiler owns running and queued compiles. Thread-safe; nothing here blocks.
#ifndef EPIC_SERVICES_WORKER_API_COMPILER_H_
#define EPIC_SERVICES_WORKER_API_COMPILER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/storage/cache_id.h"
#include "common/storage/kv_object.h"

namespace epic {

struct CompileJob {
  std::string tenant;
  ObjectKey key;
  std::vector<TokenId> tokens;         // of the context; not empty
  std::vector<TokenId> prefix_tokens;  // of the variant
  // True when this variant is the one that the record's state speaks of and the state is not `ready`: the end
  // of the compile is then written to the record.
  bool sets_state = false;
};

struct CompileOutcome {
  std::shared_ptr<const KvObject> object;  // leased
  // True when a compile ran because of this very call: its rows were computed for the caller.
  bool computed_for_caller = false;
};

using CompileTicket = uint64_t;  // never 0

class Compiler {
 public:
  virtual ~Compiler() = default;
  using Done = std::function<void(absl::StatusOr<CompileOutcome>)>;

  // Finds the object or compiles it; callers that ask for the same key share one compile. `done` is called
  // exactly once if Ensure returned OK, on any thread, possibly before Ensure returns; otherwise never.
  // Errors: kQueueFull with Retry-After; kDraining after Stop.
  // `done` gets: kContextFailed (the compile failed), kStorageFull, kContextDeleted, kCancelled, ….
  virtual absl::StatusOr<CompileTicket> Ensure(CompileJob job, Done done) = 0;
  // The caller no longer waits: its `done` is called with kCancelled unless it was called already. A compile
  // that nobody waits for and that nobody detached from is cancelled.
  virtual void Abandon(CompileTicket ticket) = 0;
  // The caller no longer waits, but the compile goes on: its `done` is dropped without a call unless it was
  // called already. Returns false in that case.
  virtual bool Detach(CompileTicket ticket) = 0;
  // The context was deleted: cancels its compiles; their waiters get kContextDeleted.
  virtual void Forget(std::string_view tenant, const CacheId& id) = 0;
};

}  // namespace epic

#endif  // EPIC_SERVICES_WORKER_API_COMPILER_H_
