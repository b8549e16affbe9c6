#include "common/config/config_show.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/config/settings.h"

namespace epic {
namespace {

using Json = nlohmann::ordered_json;

// A JSON string is also a YAML string. Bytes that are not UTF-8 show as U+FFFD.
std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool IsQuotedInYaml(SettingType type) {
  return type == SettingType::kText || type == SettingType::kPath || type == SettingType::kHostPort;
}

Json ValueOf(const Setting& setting, Config& config, const std::string& text) {
  if (const auto* field = std::get_if<bool* (*)(Config&)>(&setting.field)) return *(*field)(config);
  if (const auto* field = std::get_if<int64_t* (*)(Config&)>(&setting.field)) return *(*field)(config);
  return text;
}

std::string AllowedText(const Setting& setting) {
  if (setting.type == SettingType::kChoice) {
    std::string out;
    for (const char c : setting.choices) out += c == '|' ? std::string(", ") : std::string(1, c);
    return out;
  }
  if (setting.unit.empty()) return "";
  return NumberText(setting.type, setting.min) + " to " + NumberText(setting.type, setting.max);
}

}  // namespace

std::string ShowConfigYaml(const Config& config) {
  std::string out;
  std::string group;
  for (const SettingOrigin& origin : config.origins) {
    const Setting* setting = FindSetting(origin.name);
    EPIC_CHECK(setting != nullptr);
    const size_t dot = origin.name.find('.');
    const std::string in_group = dot == std::string::npos ? "" : origin.name.substr(0, dot);
    if (!in_group.empty() && in_group != group) out += in_group + ":\n";
    group = in_group;
    const std::string leaf = dot == std::string::npos ? origin.name : origin.name.substr(dot + 1);
    out += (in_group.empty() ? "" : "  ") + leaf + ": " +
           (IsQuotedInYaml(setting->type) ? Quoted(origin.value) : origin.value) + "  # " + origin.source +
           "\n";
  }
  return out;
}

std::string ShowConfigJson(const Config& config) {
  Json settings = Json::object();
  Config readable = config;
  for (const SettingOrigin& origin : config.origins) {
    const Setting* setting = FindSetting(origin.name);
    EPIC_CHECK(setting != nullptr);
    Json row;
    row["value"] = ValueOf(*setting, readable, origin.value);
    row["source"] = origin.source;
    row["default"] = setting->default_text;
    if (!setting->unit.empty()) row["unit"] = setting->unit;
    settings[origin.name] = std::move(row);
  }
  Json out;
  out["settings"] = std::move(settings);
  out["warnings"] = config.warnings;
  return out.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string SettingsMarkdown() {
  std::string out = "| setting | type | default | allowed | flag | what |\n|---|---|---|---|---|---|\n";
  for (const Setting& setting : SettingTable()) {
    const std::string unit = setting.unit.empty() || setting.type == SettingType::kBytes
                                 ? ""
                                 : " (" + std::string(setting.unit) + ")";
    out += "| `" + std::string(setting.name) + "` | " + std::string(NameOf(setting.type)) + unit + " | " +
           (setting.default_text.empty() ? "" : "`" + std::string(setting.default_text) + "`") + " | " +
           AllowedText(setting) + " | " +
           (setting.flag.empty() ? "" : "`" + std::string(setting.flag) + "`") + " | " +
           std::string(setting.help) + " |\n";
  }
  return out;
}

}  // namespace epic
