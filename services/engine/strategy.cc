#include "services/engine/strategy.h"

#include <charconv>
#include <cmath>

#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic {
namespace {

constexpr uint32_t kMaxRows = 65536;  // of k, budget and the options
constexpr uint32_t kMaxLayer = 4095;
constexpr uint32_t kMillion = 1'000'000;
constexpr size_t kRatioDecimals = 6;
constexpr std::string_view kStrategyParam = "linking.strategy";
constexpr std::string_view kKParam = "linking.k";
constexpr std::string_view kRatioParam = "linking.ratio";
constexpr std::string_view kBudgetParam = "linking.budget";
constexpr std::string_view kPrefixParam = "linking.compile_prefix";

absl::Status Invalid(const std::string& message, std::string_view param) {
  return Error(ErrorCode::kInvalidRequest, message, param);
}

absl::Status UnknownStrategy(std::string_view name) {
  return Invalid(
      "unknown linking strategy '" + std::string(name.substr(0, 64)) +
          "': use full, prefix, naive, legolink-K with K in 0..65536, cacheblend-R with R in 0..1 "
          "(then :paper or :attention), query-guided-B with B in 1..65536, or legolink, cacheblend "
          "and query-guided with k, ratio and budget",
      kStrategyParam);
}

absl::Status TwoNumbers(std::string_view name, std::string_view param) {
  return Invalid("the strategy " + std::string(name.substr(0, 64)) + " and " + std::string(param) +
                     " name two numbers: give one of them, or the same in both",
                 param);
}

// "family", "family-argument", "family:suffix" or "family-argument:suffix".
struct Spelling {
  StrategyKind kind;
  std::optional<std::string_view> argument;
  std::optional<std::string_view> suffix;
};

std::optional<Spelling> Split(std::string_view name) {
  const size_t colon = name.find(':');
  const std::string_view head = name.substr(0, colon);
  for (size_t kind = 0; kind < kStrategyFamilies.size(); ++kind) {
    const std::string_view family = kStrategyFamilies[kind];
    if (!head.starts_with(family)) continue;
    Spelling spelling{.kind = static_cast<StrategyKind>(kind), .argument = {}, .suffix = {}};
    if (colon != std::string_view::npos) spelling.suffix = name.substr(colon + 1);
    if (head.size() == family.size()) return spelling;
    if (head[family.size()] != '-') continue;
    spelling.argument = head.substr(family.size() + 1);
    return spelling;
  }
  return std::nullopt;
}

// Decimal digits without sign or leading zeros.
std::optional<uint32_t> ParseCount(std::string_view digits, uint32_t max) {
  if (digits.empty() || digits.size() > 5 || (digits.size() > 1 && digits[0] == '0')) return std::nullopt;
  uint32_t count = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (code != std::errc() || end != digits.data() + digits.size() || count > max) return std::nullopt;
  return count;
}

// "0.15", "1", "1.0" in millionths.
std::optional<uint32_t> ParseRatio(std::string_view text) {
  if (text.empty() || (text[0] != '0' && text[0] != '1')) return std::nullopt;
  uint32_t ppm = text[0] == '1' ? kMillion : 0;
  if (text.size() == 1) return ppm;
  const std::string_view decimals = text.substr(2);
  if (text[1] != '.' || decimals.empty() || decimals.size() > kRatioDecimals) return std::nullopt;
  uint32_t unit = kMillion;
  for (const char digit : decimals) {
    if (digit < '0' || digit > '9') return std::nullopt;
    unit /= 10;
    ppm += static_cast<uint32_t>(digit - '0') * unit;
  }
  if (ppm > kMillion) return std::nullopt;
  return ppm;
}

std::string PrintRatio(uint32_t ppm) {
  std::string decimals = std::to_string(kMillion + ppm % kMillion).substr(1);
  while (decimals.size() > 1 && decimals.back() == '0') decimals.pop_back();
  return std::to_string(ppm / kMillion) + "." + decimals;
}

absl::StatusOr<std::optional<uint32_t>> RatioField(const std::optional<double>& ratio) {
  if (!ratio.has_value()) return std::optional<uint32_t>();
  if (!(*ratio >= 0 && *ratio <= 1)) return Invalid("ratio must be in 0..1", kRatioParam);  // NaN fails
  const double scaled = *ratio * kMillion;
  if (std::fabs(scaled - std::round(scaled)) > 1e-3) {
    return Invalid("ratio may have up to six decimals", kRatioParam);
  }
  return std::optional<uint32_t>(static_cast<uint32_t>(std::llround(scaled)));
}

// Refuses each field whose place the strategy has no use for.
absl::Status RefuseFields(std::string_view name, const StrategyFields& fields, StrategyKind kind) {
  const struct {
    bool given;
    StrategyKind taker;
    std::string_view what, param;
  } table[] = {{fields.k.has_value(), StrategyKind::kLegoLink, "k", kKParam},
               {fields.ratio.has_value(), StrategyKind::kCacheBlend, "ratio", kRatioParam},
               {fields.budget.has_value(), StrategyKind::kQueryGuided, "budget", kBudgetParam}};
  for (const auto& field : table) {
    if (!field.given || field.taker == kind) continue;
    return Invalid("the strategy " + std::string(name.substr(0, 64)) + " takes no " +
                       std::string(field.what) + ": leave " + std::string(field.param) +
                       " out, or use another strategy",
                   field.param);
  }
  return absl::OkStatus();
}

absl::Status SetLegoLink(std::string_view name, const Spelling& spelling, const StrategyFields& fields,
                         LinkStrategy* strategy) {
  if (fields.k.has_value() && *fields.k > kMaxRows) {
    return Invalid("k must be in 0..65536, not " + std::to_string(*fields.k), kKParam);
  }
  strategy->k = fields.k.value_or(LinkStrategy{}.k);
  if (spelling.argument.has_value()) {
    const std::optional<uint32_t> named = ParseCount(*spelling.argument, kMaxRows);
    if (!named.has_value()) return UnknownStrategy(name);
    if (fields.k.has_value() && *fields.k != *named) return TwoNumbers(name, kKParam);
    strategy->k = *named;
  }
  if (strategy->k > 0) return absl::OkStatus();
  if (!fields.compile_prefix.has_value()) strategy->compile_prefix = CompilePrefixKind::kBos4;
  if (strategy->compile_prefix != CompilePrefixKind::kNone) return absl::OkStatus();
  return Invalid(
      "legolink-0 needs contexts compiled behind a prefix: use bos4, bos or system, or the strategy naive "
      "for "
      "plain ones",
      kPrefixParam);
}

absl::Status SetCacheBlend(std::string_view name, const Spelling& spelling, const StrategyFields& fields,
                           LinkStrategy* strategy) {
  EPIC_ASSIGN_OR_RETURN(const std::optional<uint32_t> field, RatioField(fields.ratio));
  strategy->ratio_ppm = field.value_or(LinkStrategy{}.ratio_ppm);
  if (spelling.argument.has_value()) {
    const std::optional<uint32_t> named = ParseRatio(*spelling.argument);
    if (!named.has_value()) return UnknownStrategy(name);
    if (field.has_value() && *field != *named) return TwoNumbers(name, kRatioParam);
    strategy->ratio_ppm = *named;
  }
  if (!spelling.suffix.has_value()) return absl::OkStatus();
  if (*spelling.suffix == "paper") {
    strategy->pick = BlendPick::kPaper;
  } else if (*spelling.suffix == "attention") {
    strategy->pick = BlendPick::kAttention;
  } else {
    return UnknownStrategy(name);
  }
  return absl::OkStatus();
}

// "1" and "0", or the two words.
std::optional<bool> ParseChoice(std::string_view value, std::string_view no, std::string_view yes) {
  if (value == yes) return true;
  if (value == no) return false;
  return std::nullopt;
}

bool SetLayers(std::string_view value, ProbeOptions* probe) {
  const size_t dash = value.find('-');
  if (dash == std::string_view::npos) return false;
  const std::optional<uint32_t> first = ParseCount(value.substr(0, dash), kMaxLayer);
  const std::optional<uint32_t> last = ParseCount(value.substr(dash + 1), kMaxLayer);
  if (!first.has_value() || !last.has_value() || *first > *last) return false;
  probe->first_layer = *first;
  probe->last_layer = *last;
  return true;
}

bool SetOption(std::string_view key, std::string_view value, ProbeOptions* probe) {
  const auto count = [&](uint32_t* to) {
    const std::optional<uint32_t> parsed = ParseCount(value, kMaxRows);
    *to = parsed.value_or(0);
    return parsed.has_value();
  };
  const auto choice = [&](std::string_view no, std::string_view yes, bool* to) {
    const std::optional<bool> parsed = ParseChoice(value, no, yes);
    *to = parsed.value_or(false);
    return parsed.has_value();
  };
  if (key == "layers") return SetLayers(value, probe);
  if (key == "step") return count(&probe->layer_step) && probe->layer_step > 0;
  if (key == "blind") return choice("0", "1", &probe->starts_blind);
  if (key == "quantized") return choice("0", "1", &probe->quantized);
  if (key == "first") return count(&probe->first_rows);
  if (key == "rows") return count(&probe->query_rows);
  if (key == "ask") return count(&probe->asking_rows);
  if (key == "fade") return count(&probe->fading_rows);
  if (key == "heads") return choice("mean", "max", &probe->max_of_heads);
  if (key == "norm") return choice("0", "1", &probe->value_norm);
  if (key == "scope") return choice("chunk", "all", &probe->shared_budget);
  return false;
}

absl::Status SetOptions(std::string_view options, ProbeOptions* probe) {
  std::string seen = ",";
  while (true) {
    const size_t end = options.find_first_of(",+");
    const std::string_view option = options.substr(0, end);
    const size_t equals = option.find('=');
    const std::string_view key = option.substr(0, equals);
    const std::string mark = std::string(key) + ",";
    if (equals == std::string_view::npos || seen.find("," + mark) != std::string::npos ||
        !SetOption(key, option.substr(equals + 1), probe)) {
      return Invalid("bad option '" + std::string(option.substr(0, 64)) +
                         "' of query-guided: use layers=A-B, step=N, blind=0|1, quantized=0|1, first=N, "
                         "rows=N, ask=N, fade=N, heads=mean|max, norm=0|1, scope=chunk|all, each once",
                     kStrategyParam);
    }
    seen += mark;
    if (end == std::string_view::npos) return absl::OkStatus();
    options.remove_prefix(end + 1);
  }
}

// Those that are not as usual.
std::string PrintOptions(const ProbeOptions& probe) {
  std::string out;
  const auto add = [&out](const std::string& option) { out += (out.empty() ? ":" : ",") + option; };
  if (probe.first_layer != ProbeOptions::kByModel) {
    add("layers=" + std::to_string(probe.first_layer) + "-" + std::to_string(probe.last_layer));
  }
  const ProbeOptions usual;
  const auto count = [&](const char* key, uint32_t value, uint32_t usual_value) {
    if (value != usual_value) add(key + std::to_string(value));
  };
  count("step=", probe.layer_step, usual.layer_step);
  if (probe.starts_blind != usual.starts_blind) add(probe.starts_blind ? "blind=1" : "blind=0");
  if (probe.quantized != usual.quantized) add(probe.quantized ? "quantized=1" : "quantized=0");
  count("first=", probe.first_rows, usual.first_rows);
  count("rows=", probe.query_rows, usual.query_rows);
  count("ask=", probe.asking_rows, usual.asking_rows);
  count("fade=", probe.fading_rows, usual.fading_rows);
  if (probe.max_of_heads != usual.max_of_heads) add(probe.max_of_heads ? "heads=max" : "heads=mean");
  if (probe.value_norm != usual.value_norm) add(probe.value_norm ? "norm=1" : "norm=0");
  if (probe.shared_budget != usual.shared_budget) add(probe.shared_budget ? "scope=all" : "scope=chunk");
  return out;
}

absl::Status SetQueryGuided(std::string_view name, const Spelling& spelling, const StrategyFields& fields,
                            bool evaluation, LinkStrategy* strategy) {
  if (fields.budget.has_value() && (*fields.budget == 0 || *fields.budget > kMaxRows)) {
    return Invalid("budget must be in 1..65536, not " + std::to_string(*fields.budget), kBudgetParam);
  }
  strategy->budget = fields.budget.value_or(LinkStrategy{}.budget);
  if (spelling.argument.has_value()) {
    const std::optional<uint32_t> named = ParseCount(*spelling.argument, kMaxRows);
    if (!named.has_value() || *named == 0) return UnknownStrategy(name);
    if (fields.budget.has_value() && *fields.budget != *named) return TwoNumbers(name, kBudgetParam);
    strategy->budget = *named;
  }
  if (!spelling.suffix.has_value()) return absl::OkStatus();
  if (!evaluation) return UnknownStrategy(name);
  return SetOptions(*spelling.suffix, &strategy->probe);
}

absl::StatusOr<LinkStrategy> Parse(std::string_view name, const StrategyFields& fields, bool evaluation) {
  const std::optional<Spelling> spelling = Split(name);
  if (!spelling.has_value()) return UnknownStrategy(name);
  EPIC_RETURN_IF_ERROR(RefuseFields(name, fields, spelling->kind));
  LinkStrategy strategy{.kind = spelling->kind,
                        .k = 0,
                        .compile_prefix = fields.compile_prefix.value_or(CompilePrefixKind::kNone)};
  switch (spelling->kind) {
    case StrategyKind::kLegoLink:
      if (spelling->suffix.has_value()) return UnknownStrategy(name);
      EPIC_RETURN_IF_ERROR(SetLegoLink(name, *spelling, fields, &strategy));
      return strategy;
    case StrategyKind::kCacheBlend:
      EPIC_RETURN_IF_ERROR(SetCacheBlend(name, *spelling, fields, &strategy));
      return strategy;
    case StrategyKind::kQueryGuided:
      EPIC_RETURN_IF_ERROR(SetQueryGuided(name, *spelling, fields, evaluation, &strategy));
      return strategy;
    case StrategyKind::kFull:
    case StrategyKind::kPrefix:
    case StrategyKind::kNaive:
      break;
  }
  if (spelling->argument.has_value() || spelling->suffix.has_value()) return UnknownStrategy(name);
  if (strategy.kind == StrategyKind::kFull && strategy.compile_prefix != CompilePrefixKind::kNone) {
    return Invalid("the strategy full reads no compiled context: leave linking.compile_prefix out",
                   kPrefixParam);
  }
  return strategy;
}

}  // namespace

std::string LinkStrategy::Name() const {
  std::string name(Family());
  switch (kind) {
    case StrategyKind::kFull:
    case StrategyKind::kPrefix:
    case StrategyKind::kNaive:
      break;
    case StrategyKind::kLegoLink:
      name += "-" + std::to_string(k);
      break;
    case StrategyKind::kCacheBlend:
      name += "-" + PrintRatio(ratio_ppm);
      if (pick == BlendPick::kPaper) name += ":paper";
      if (pick == BlendPick::kAttention) name += ":attention";
      break;
    case StrategyKind::kQueryGuided:
      name += "-" + std::to_string(budget) + PrintOptions(probe);
      break;
  }
  return name;
}

absl::StatusOr<LinkStrategy> ParseStrategy(std::string_view name, const StrategyFields& fields) {
  return Parse(name, fields, /*evaluation=*/false);
}

absl::StatusOr<LinkStrategy> ParseEvaluationStrategy(std::string_view name, const StrategyFields& fields) {
  return Parse(name, fields, /*evaluation=*/true);
}

}  // namespace epic
