// Link strategies by name: which rows of the linked prompt are computed. Spellings are those of the API.
//
// Plain values and a parser; pure, any thread. What a strategy means for the rows of a prompt is row_plan.h.
#ifndef EPIC_SERVICES_ENGINE_STRATEGY_H_
#define EPIC_SERVICES_ENGINE_STRATEGY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/storage/kv_object.h"

namespace epic {

enum class StrategyKind : uint8_t { kFull, kPrefix, kNaive, kLegoLink };

struct LinkStrategy {
  StrategyKind kind = StrategyKind::kLegoLink;
  // kLegoLink: rows recomputed at the start of each chunk that is not exact in place. 0 reads objects
  // compiled behind a dropped compile prefix (compile_prefix below) and recomputes none.
  uint32_t k = 16;
  // Which compile variant of the contexts is read. kNone but for legolink-0 (default kBos4) and explicit
  // wishes.
  CompilePrefixKind compile_prefix = CompilePrefixKind::kNone;

  bool operator==(const LinkStrategy&) const = default;
  // "full", "prefix", "naive", "legolink-16".
  std::string Name() const;
};

// Parses a spelling: full, prefix, naive, legolink-K (K in 0..65536), or "legolink" with `k` given.
// Errors: kInvalidRequest (param linking.strategy or linking.k; "legolink-16" together with another k; k with
// a strategy that takes none); kUnsupportedParameter for cacheblend-* and query-guided until they are built.
absl::StatusOr<LinkStrategy> ParseStrategy(std::string_view name, std::optional<uint32_t> k,
                                           std::optional<CompilePrefixKind> compile_prefix);

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_STRATEGY_H_
