// Why a reader of an object gets it, or does not: as fields, and as a sentence for people. Value types and
// free functions; StoreNode::Explain gathers the fields.
#ifndef EPIC_SERVICES_KV_STORE_CORE_NODE_EXPLANATION_H_
#define EPIC_SERVICES_KV_STORE_CORE_NODE_EXPLANATION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "services/kv_store/core/node/node_types.h"
#include "services/kv_store/core/node/reservations.h"
#include "services/kv_store/core/object_table.h"
#include "services/kv_store/core/table_observer.h"

namespace epic::kv_store {

// What a reader would get now.
enum class Verdict : uint8_t {
  kInMemory,
  kOnDisk,     // it is read to memory first
  kNoContext,  // never created here, or forgotten
  kContextDeleted,
  kContextExpired,
  kNeverStored,  // no object of this variant, as far as is remembered
  kEvicted,
  kDropped,         // the object alone was deleted
  kLayoutMismatch,  // it is there in another layout
  kChecksum,        // its bytes on disk were wrong, and that copy is gone
  kIoError,         // the disk did not give it back, and that copy is gone
  kOldFormat,       // it was of a format that is not read any more
  kNoMemory,        // it is on disk, and does not fit into what others leave of memory just now
};
// "in_memory" and so on.
std::string_view NameOf(Verdict verdict);

struct Explanation {
  Verdict verdict = Verdict::kNoContext;
  ContextSummary context;
  ObjectTiers tiers;
  std::optional<KvLayout> wanted;          // in which it was asked for, if in any
  std::optional<EvictionStanding> memory;  // how it stands in eviction
  std::optional<EvictionStanding> disk;
  bool held = false;                  // by leases, a writer, or readers in this process
  uint64_t leases = 0;                // of clients
  std::optional<int64_t> gone_at_ms;  // Unix time at which the last copy went, if that is remembered
  std::optional<Reservations::Writing> writing;  // by whom just now
  uint64_t memory_needed_bytes = 0;              // kOnDisk, kNoMemory: to read it
  uint64_t memory_capacity_bytes = 0;
};

// One sentence: what there is, or why there is nothing, and what would help. `now_ms` is Unix time.
std::string SentenceOf(const Explanation& explanation, int64_t now_ms);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_NODE_EXPLANATION_H_
