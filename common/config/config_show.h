// Prints settings: what is in effect and where it came from, and the table of all settings for the README.
// Pure functions of their arguments.
#ifndef EPIC_COMMON_CONFIG_CONFIG_SHOW_H_
#define EPIC_COMMON_CONFIG_CONFIG_SHOW_H_

#include <string>

#include "common/config/config.h"

namespace epic {

// A YAML document that LoadConfig reads back, each value with its source in a comment.
std::string ShowConfigYaml(const Config& config);
// {"settings":{name:{"value","source","default","unit"}},"warnings":[...]} in one document.
std::string ShowConfigJson(const Config& config);
// The README table, one row a setting.
std::string SettingsMarkdown();

}  // namespace epic

#endif  // EPIC_COMMON_CONFIG_CONFIG_SHOW_H_
