// The one list of settings: name, type, default, unit, bounds, help, and the field of Config that it fills.
//
// To add a setting: a field in config.h, a row in settings.cc, then the README table (the test prints it).
// Immutable, so safe from every thread. Reading and merging of values is in config.cc, not here.
#ifndef EPIC_COMMON_CONFIG_SETTINGS_H_
#define EPIC_COMMON_CONFIG_SETTINGS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "common/config/config.h"

namespace epic {

enum class SettingType : uint8_t {
  kSwitch,    // true | false
  kNumber,    // a whole number
  kBytes,     // a whole number, or one with KiB, MiB, GiB or TiB behind it
  kMillis,    // a whole number of milliseconds, or one with ms, s or min behind it
  kText,      // free text
  kChoice,    // one of `choices`
  kPath,      // a file or folder; a leading ~/ and ${XDG_CACHE_HOME:-~/.cache}/ are expanded
  kHostPort,  // HOST:PORT
};
std::string_view NameOf(SettingType type);

// Finds the field in a Config.
using SettingField = std::variant<bool* (*)(Config&), int64_t* (*)(Config&), std::string* (*)(Config&),
                                  HostPort* (*)(Config&)>;

struct Setting {
  std::string_view name;  // dotted, unit last
  SettingType type;
  std::string_view default_text;
  SettingField field;
  std::string_view help;
  std::string_view unit = {};     // of numbers
  int64_t min = 0;                // of numbers, inclusive
  int64_t max = 0;                // of numbers, inclusive
  std::string_view choices = {};  // of kChoice: "a|b|c"
  std::string_view flag = {};     // of the command line: "--http"; empty: --set only
  // What a text must satisfy besides its type; returns what is wrong, empty if nothing.
  std::string (*check)(std::string_view value) = nullptr;
};

// Every setting once, in the order in which they are shown.
std::span<const Setting> SettingTable();
// nullptr when there is none of that name.
const Setting* FindSetting(std::string_view name);
// EPIC_ENGINE_THREADS for engine.threads.
std::string EnvironmentName(const Setting& setting);

// The value for paths: HOME and XDG_CACHE_HOME.
using EnvironmentMap = std::map<std::string, std::string>;

// Parses `text` into the setting's field of `config`.
// Errors: InvalidArgument that says what is wrong with the value and what is allowed, without the name.
absl::Status ApplySetting(const Setting& setting, std::string_view text, const EnvironmentMap& environment,
                          Config& config);
// The field's value as text that ApplySetting reads back. Does not change `config`.
std::string SettingValueText(const Setting& setting, Config& config);
// A whole number of bytes, or one with KiB, MiB, GiB or TiB behind it; nullopt for any other text.
std::optional<int64_t> ParseBytes(std::string_view text);
// A number as a setting of `type` is written: 64MiB for 67108864 bytes.
std::string NumberText(SettingType type, int64_t value);

}  // namespace epic

#endif  // EPIC_COMMON_CONFIG_SETTINGS_H_
