// Link strategies by name: a value that says which rows of a linked prompt are computed. Spellings are those
// of the API.
//
// Plain values and a parser; pure, any thread. What a strategy does stands in link_policy.h.
#ifndef EPIC_SERVICES_ENGINE_STRATEGY_H_
#define EPIC_SERVICES_ENGINE_STRATEGY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/storage/kv_object.h"

namespace epic {

enum class StrategyKind : uint8_t { kFull, kPrefix, kNaive, kLegoLink, kCacheBlend, kQueryGuided };
// Of strategies of each kind, in order: what Family() says.
inline constexpr std::array<std::string_view, 6> kStrategyFamilies = {
    "full", "prefix", "naive", "legolink", "cacheblend", "query-guided"};

// How cacheblend-r picks its rows, in layer 1.
enum class BlendPick : uint8_t {
  kValues,     // covered rows whose fresh values lie farthest from the stored ones
  kPaper,      // ":paper": the same over all rows of the prompt, own text counted
  kAttention,  // ":attention": covered rows whose column of the attention map changes most
};

// How query-guided chooses. The defaults are what the API runs; other values are for measurements only
// (ParseEvaluationStrategy).
struct ProbeOptions {
  static constexpr uint32_t kByModel = UINT32_MAX;
  // Layers whose attention counts, both included. kByModel: L/3 .. 7L/8 of L layers.
  uint32_t first_layer = kByModel;
  uint32_t last_layer = kByModel;
  uint32_t layer_step = 2;    // every so-manieth of those layers counts, the last one among them
  bool starts_blind = true;   // before those layers own text sees itself and exact rows only
  bool quantized = true;      // the probe multiplies with quantised weights, as decode does
  uint32_t query_rows = 16;   // only the last so many rows of own text run in the probe; 0: all of them
  uint32_t asking_rows = 0;   // only the attention of the last so many of those counts; 0: of all
  uint32_t first_rows = 0;    // rows at each chunk's start that the budget takes before any other
  uint32_t fading_rows = 16;  // row i of a chunk weighs 1 / sqrt(1 + i / fading_rows); 0: all weigh the same
  bool max_of_heads = true;   // the strongest head of each layer counts, not the sum of heads
  bool value_norm = false;    // attention is weighted by the length of the value that it reads
  bool shared_budget = true;  // budget * chunks rows over all chunks, not budget rows of each
  bool operator==(const ProbeOptions&) const = default;
};

struct LinkStrategy {
  StrategyKind kind = StrategyKind::kLegoLink;
  // kLegoLink: rows recomputed at the start of each chunk that is not exact in place. 0 reads objects
  // compiled behind a dropped compile prefix (compile_prefix below) and recomputes none.
  uint32_t k = 16;
  // Which compile variant of the contexts is read. kNone but for legolink-0 (default kBos4) and explicit
  // wishes.
  CompilePrefixKind compile_prefix = CompilePrefixKind::kNone;
  // kCacheBlend: the share of rows that is recomputed, in millionths (shares of rows are whole numbers then).
  uint32_t ratio_ppm = 150'000;
  BlendPick pick = BlendPick::kValues;
  // kQueryGuided: times the number of chunks that are not exact in place: rows recomputed in all of them
  // together.
  uint32_t budget = 16;
  ProbeOptions probe;

  bool operator==(const LinkStrategy&) const = default;
  // "full", "prefix", "naive", "legolink-16", "cacheblend-0.15:paper", "query-guided-16"; parses to the same
  // strategy but for its compile prefix.
  std::string Name() const;
  // The name without numbers: one of kStrategyFamilies, whatever a client sends.
  std::string_view Family() const { return kStrategyFamilies[static_cast<size_t>(kind)]; }
};

// The fields that stand beside a strategy's name.
struct StrategyFields {
  std::optional<uint32_t> k;
  std::optional<double> ratio;
  std::optional<uint32_t> budget;
  std::optional<CompilePrefixKind> compile_prefix;
};

// Parses a spelling:
//   full, prefix, naive
//   legolink-K (K in 0..65536), or "legolink" with `k`
//   cacheblend-R (R in 0..1, up to six decimals), or "cacheblend" with `ratio`; then ":paper" or ":attention"
//   query-guided-B (B in 1..65536), or "query-guided" with `budget`
// A name without its number and without the field takes the default (16, 0.15, 16).
// Errors: kInvalidRequest (param linking.strategy, linking.k, linking.ratio, linking.budget or
// linking.compile_prefix: a bad spelling or range, a number in the name and another in the field, a field
// that the strategy does not take).
absl::StatusOr<LinkStrategy> ParseStrategy(std::string_view name, const StrategyFields& fields = {});

// As ParseStrategy, and query-guided may have options behind a colon, separated by ',' or '+', each once:
//   layers=A-B  step=N  blind=0|1  quantized=0|1  first=N  rows=N  ask=N  fade=N  heads=mean|max  norm=0|1
//   scope=chunk|all
// e.g. "query-guided-16:layers=15-22,first=4,heads=mean". For measurements: no door accepts them.
absl::StatusOr<LinkStrategy> ParseEvaluationStrategy(std::string_view name,
                                                     const StrategyFields& fields = {});

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_STRATEGY_H_
