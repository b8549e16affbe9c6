// How the text of one setting becomes a value of its type, and back.
#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "common/base/absl_std.h"
#include "common/config/settings.h"
#include "common/status/status_macros.h"

namespace epic {
namespace {

absl::Status Bad(const std::string& message) { return absl::InvalidArgumentError(message); }

struct Suffix {
  std::string_view text;
  int64_t factor;
};
constexpr std::array kBytesSuffixes = {Suffix{"KiB", int64_t{1} << 10}, Suffix{"MiB", int64_t{1} << 20},
                                       Suffix{"GiB", int64_t{1} << 30}, Suffix{"TiB", int64_t{1} << 40}};
constexpr std::array kMillisSuffixes = {Suffix{"ms", 1}, Suffix{"min", 60000}, Suffix{"s", 1000}};

std::span<const Suffix> SuffixesOf(SettingType type) {
  if (type == SettingType::kBytes) return kBytesSuffixes;
  if (type == SettingType::kMillis) return kMillisSuffixes;
  return {};
}

std::string HowToWrite(SettingType type) {
  if (type == SettingType::kBytes) return "a whole number of bytes such as 1048576, or 64KiB, 64MiB, 64GiB";
  if (type == SettingType::kMillis) return "a whole number of milliseconds such as 1500, or 2s, 5min";
  return "a whole number";
}

// nullopt unless all of `text` is digits (with a suffix of its type) and the product fits.
std::optional<int64_t> ParseNumber(SettingType type, std::string_view text) {
  int64_t factor = 1;
  for (const Suffix& suffix : SuffixesOf(type)) {
    if (!text.ends_with(suffix.text)) continue;
    text.remove_suffix(suffix.text.size());
    factor = suffix.factor;
    break;
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.starts_with('-')) return std::nullopt;
  if (value > std::numeric_limits<int64_t>::max() / factor) return std::nullopt;
  return value * factor;
}

absl::Status SetNumber(const Setting& setting, std::string_view text, int64_t& out) {
  const std::optional<int64_t> value = ParseNumber(setting.type, text);
  if (!value) return Bad("is '" + std::string(text) + "'; write " + HowToWrite(setting.type));
  if (*value < setting.min || *value > setting.max) {
    return Bad("is " + std::string(text) + "; must be " + NumberText(setting.type, setting.min) + " to " +
               NumberText(setting.type, setting.max) + " " + std::string(setting.unit));
  }
  out = *value;
  return absl::OkStatus();
}

bool IsOneOf(std::string_view value, std::string_view choices) {
  while (!choices.empty()) {
    const size_t bar = choices.find('|');
    if (choices.substr(0, bar) == value) return true;
    choices = bar == std::string_view::npos ? std::string_view{} : choices.substr(bar + 1);
  }
  return false;
}

absl::StatusOr<std::string> ExpandPath(std::string_view text, const EnvironmentMap& environment) {
  constexpr std::string_view kCache = "${XDG_CACHE_HOME:-~/.cache}";
  std::string path(text);
  if (text.starts_with(kCache)) {
    const auto xdg = environment.find("XDG_CACHE_HOME");
    const bool set = xdg != environment.end() && !xdg->second.empty();
    path = (set ? xdg->second : "~/.cache") + std::string(text.substr(kCache.size()));
  }
  if (path == "~" || path.starts_with("~/")) {
    const auto home = environment.find("HOME");
    if (home == environment.end() || home->second.empty()) {
      return Bad("is " + std::string(text) + ", but HOME is not set; give a full path");
    }
    path = home->second + path.substr(1);
  }
  return path;
}

absl::Status SetText(const Setting& setting, std::string_view text, const EnvironmentMap& environment,
                     std::string& out) {
  if (text.find('\0') != std::string_view::npos || text.find('\n') != std::string_view::npos) {
    return Bad("must be one line");
  }
  if (setting.type == SettingType::kChoice && !IsOneOf(text, setting.choices)) {
    return Bad("is '" + std::string(text) + "'; must be one of " + std::string(setting.choices));
  }
  if (setting.check != nullptr) {
    if (const std::string problem = setting.check(text); !problem.empty()) {
      return Bad("is '" + std::string(text) + "': " + problem);
    }
  }
  if (setting.type != SettingType::kPath) {
    out = std::string(text);
    return absl::OkStatus();
  }
  EPIC_ASSIGN_OR_RETURN(out, ExpandPath(text, environment));
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplySetting(const Setting& setting, std::string_view text, const EnvironmentMap& environment,
                          Config& config) {
  if (const auto* field = std::get_if<bool* (*)(Config&)>(&setting.field)) {
    if (text != "true" && text != "false")
      return Bad("is '" + std::string(text) + "'; must be true or false");
    *(*field)(config) = text == "true";
    return absl::OkStatus();
  }
  if (const auto* field = std::get_if<int64_t* (*)(Config&)>(&setting.field)) {
    return SetNumber(setting, text, *(*field)(config));
  }
  if (const auto* field = std::get_if<HostPort* (*)(Config&)>(&setting.field)) {
    EPIC_ASSIGN_OR_RETURN(*(*field)(config), ParseHostPort(text));
    return absl::OkStatus();
  }
  return SetText(setting, text, environment, *std::get<std::string* (*)(Config&)>(setting.field)(config));
}

std::string SettingValueText(const Setting& setting, Config& config) {
  if (const auto* field = std::get_if<bool* (*)(Config&)>(&setting.field)) {
    return *(*field)(config) ? "true" : "false";
  }
  if (const auto* field = std::get_if<int64_t* (*)(Config&)>(&setting.field)) {
    return NumberText(setting.type, *(*field)(config));
  }
  if (const auto* field = std::get_if<HostPort* (*)(Config&)>(&setting.field)) {
    return (*field)(config)->ToString();
  }
  return *std::get<std::string* (*)(Config&)>(setting.field)(config);
}

std::optional<int64_t> ParseBytes(std::string_view text) { return ParseNumber(SettingType::kBytes, text); }

std::string NumberText(SettingType type, int64_t value) {
  if (type == SettingType::kBytes && value != 0) {
    for (auto it = kBytesSuffixes.rbegin(); it != kBytesSuffixes.rend(); ++it) {
      if (value % it->factor == 0) return std::to_string(value / it->factor) + std::string(it->text);
    }
  }
  return std::to_string(value);
}

}  // namespace epic
