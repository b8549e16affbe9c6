// Usage of a linked prompt: what the engine counted, corrected for what was compiled for this very request.
// Pure functions.
#ifndef EPIC_SERVICES_LINK_WORKER_CORE_USAGE_H_
#define EPIC_SERVICES_LINK_WORKER_CORE_USAGE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "services/engine/engine.h"
#include "services/worker_api/linker.h"

namespace epic {

// One piece of the prompt as accounting needs it.
struct PieceAccount {
  LinkPiece::Kind kind = LinkPiece::Kind::kText;
  uint32_t tokens = 0;
  uint32_t read_rows = 0;     // whose KV the link read
  bool computed_now = false;  // its object was compiled because of this request
  bool as_text = false;       // of a context: there is no object, its rows are computed as own text
};

struct PromptUsage {
  uint32_t prompt = 0;
  uint32_t cached = 0;
  uint32_t recomputed = 0;
  uint32_t fresh = 0;
  bool operator==(const PromptUsage&) const = default;
};

// The engine's counts, where
//  - rows read from an object that was compiled for this request were computed: recomputed for a context,
//    fresh for the head;
//  - rows of contexts that the engine was given as own text (`full`, `prefix`, or one whose object was lost
//    on its way) and computed are recomputed.
// ENSURES: cached + recomputed + fresh == prompt.
PromptUsage AccountFor(const LinkStats& stats, std::span<const PieceAccount> pieces, bool objects_given);

// The recomputed rows that AccountFor will report, before the run; nullopt where only the run can tell.
// `accounts` needs no read_rows.
std::optional<uint32_t> PlannedRecomputed(std::span<const PromptPiece> pieces, const LinkStrategy& strategy,
                                          std::vector<PieceAccount> accounts, bool objects_given);

}  // namespace epic

#endif  // EPIC_SERVICES_LINK_WORKER_CORE_USAGE_H_
