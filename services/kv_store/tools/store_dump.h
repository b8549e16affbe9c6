// What a stopped store holds, context by context, for people who look into one. Changes no byte. Blocks;
// memory is that of one context. Names, tags, texts of errors and token ids of users are left to the caller
// to show or not. Not here: printing.
#ifndef EPIC_SERVICES_KV_STORE_TOOLS_STORE_DUMP_H_
#define EPIC_SERVICES_KV_STORE_TOOLS_STORE_DUMP_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/kv_store/core/replica_state.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/tools/store_report.h"

namespace epic::kv_store {

struct DumpOptions {
  std::optional<std::string> tenant;  // only this one's contexts
  std::optional<CacheId> id;          // only these
  bool with_tokens = false;           // reads token ids
};

struct DumpedContext {
  ContextKey key;
  ReplicaState state;                          // as its rows say, also where the tombstone removes the record
  std::optional<std::vector<TokenId>> tokens;  // where asked for and whole
  std::vector<ObjectEntry> objects;            // heads without checksums of blocks and token ids
};

// Calls `visit` with each context that is known, those with a record first, each kind in order of keys, and
// `fault` with each row that cannot be read. A status of `visit` that is not OK ends it, which returns that.
// Errors: those of StoppedTables::Open and of the tables.
absl::Status DumpStore(const std::string& dir, const DumpOptions& options,
                       const std::function<absl::Status(const DumpedContext&)>& visit,
                       const std::function<void(const StoreFault&)>& fault);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TOOLS_STORE_DUMP_H_
