#include "services/engine/strategy.h"

#include <charconv>

#include "common/status/error.h"

namespace epic {
namespace {

constexpr uint32_t kMaxK = 65536;
constexpr uint32_t kDefaultK = 16;
constexpr std::string_view kStrategyParam = "linking.strategy";
constexpr std::string_view kKParam = "linking.k";
constexpr std::string_view kPrefixParam = "linking.compile_prefix";
constexpr std::string_view kLegoLink = "legolink";

absl::Status UnknownStrategy(std::string_view name) {
  return Error(ErrorCode::kInvalidRequest,
               "unknown linking strategy '" + std::string(name.substr(0, 64)) +
                   "': use full, prefix, naive, legolink-K with K in 0..65536, or legolink with k",
               kStrategyParam);
}

// The K of "legolink-K": decimal digits without sign or leading zeros.
std::optional<uint32_t> ParseK(std::string_view digits) {
  if (digits.empty() || digits.size() > 5 || (digits.size() > 1 && digits[0] == '0')) return std::nullopt;
  uint32_t k = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), k);
  if (code != std::errc() || end != digits.data() + digits.size() || k > kMaxK) return std::nullopt;
  return k;
}

absl::StatusOr<uint32_t> LegoLinkK(std::string_view name, std::optional<uint32_t> k) {
  if (k.has_value() && *k > kMaxK) {
    return Error(ErrorCode::kInvalidRequest, "k must be in 0..65536, not " + std::to_string(*k), kKParam);
  }
  if (name == kLegoLink) return k.value_or(kDefaultK);
  const std::optional<uint32_t> named = ParseK(name.substr(kLegoLink.size() + 1));
  if (!named.has_value()) return UnknownStrategy(name);
  if (k.has_value() && *k != *named) {
    return Error(ErrorCode::kInvalidRequest,
                 "the strategy names k " + std::to_string(*named) + " but linking.k is " +
                     std::to_string(*k) + ": give one of them, or the same number in both",
                 kKParam);
  }
  return *named;
}

}  // namespace

std::string LinkStrategy::Name() const {
  switch (kind) {
    case StrategyKind::kFull:
      return "full";
    case StrategyKind::kPrefix:
      return "prefix";
    case StrategyKind::kNaive:
      return "naive";
    case StrategyKind::kLegoLink:
      break;
  }
  return "legolink-" + std::to_string(k);
}

absl::StatusOr<LinkStrategy> ParseStrategy(std::string_view name, std::optional<uint32_t> k,
                                           std::optional<CompilePrefixKind> compile_prefix) {
  LinkStrategy strategy{.k = 0, .compile_prefix = compile_prefix.value_or(CompilePrefixKind::kNone)};
  if (name == kLegoLink || name.starts_with("legolink-")) {
    const absl::StatusOr<uint32_t> rows = LegoLinkK(name, k);
    if (!rows.ok()) return rows.status();
    strategy.k = *rows;
    if (*rows > 0) return strategy;
    if (!compile_prefix.has_value()) strategy.compile_prefix = CompilePrefixKind::kBos4;
    if (strategy.compile_prefix == CompilePrefixKind::kNone) {
      return Error(ErrorCode::kInvalidRequest,
                   "legolink-0 needs contexts compiled behind a prefix: use bos4, bos or system, or the "
                   "strategy naive for plain ones",
                   kPrefixParam);
    }
    return strategy;
  }
  if (name.starts_with("cacheblend") || name.starts_with("query-guided")) {
    return Error(ErrorCode::kUnsupportedParameter,
                 "the linking strategy '" + std::string(name.substr(0, 64)) +
                     "' is not supported: use full, prefix, naive or legolink-K",
                 kStrategyParam);
  }
  if (name == "full") {
    strategy.kind = StrategyKind::kFull;
  } else if (name == "prefix") {
    strategy.kind = StrategyKind::kPrefix;
  } else if (name == "naive") {
    strategy.kind = StrategyKind::kNaive;
  } else {
    return UnknownStrategy(name);
  }
  if (k.has_value()) {
    return Error(ErrorCode::kInvalidRequest,
                 "the strategy " + std::string(name) + " takes no k: leave linking.k out, or use legolink",
                 kKParam);
  }
  if (strategy.kind == StrategyKind::kFull && strategy.compile_prefix != CompilePrefixKind::kNone) {
    return Error(ErrorCode::kInvalidRequest,
                 "the strategy full reads no compiled context: leave linking.compile_prefix out",
                 kPrefixParam);
  }
  return strategy;
}

}  // namespace epic
