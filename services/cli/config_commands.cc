// `epic config check|show`.
#include <memory>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "common/config/config_show.h"
#include "common/status/status_macros.h"
#include "services/cli/command.h"

namespace epic {
namespace {

using nlohmann::json;

void PrintWarnings(const Console& console, const Config& config) {
  for (const std::string& warning : config.warnings) *console.err << "warning: " << warning << '\n';
}

absl::Status Check(const Console& console, const CommonFlags& common) {
  EPIC_ASSIGN_OR_RETURN(const Config config, LoadCommandConfig(common));
  PrintWarnings(console, config);
  if (common.json) {
    *console.out << json{{"ok", true}, {"warnings", config.warnings}}.dump(2) << '\n';
  } else {
    *console.out << "the configuration is valid\n";
  }
  return absl::OkStatus();
}

absl::Status Show(const Console& console, const CommonFlags& common) {
  EPIC_ASSIGN_OR_RETURN(const Config config, LoadCommandConfig(common));
  if (!common.json) PrintWarnings(console, config);
  if (common.json) {
    *console.out << ShowConfigJson(config) << '\n';
  } else {
    *console.out << ShowConfigYaml(config);
  }
  return absl::OkStatus();
}

void Add(CLI::App* parent, Action* chosen, const std::string& name, const std::string& help,
         absl::Status (*handler)(const Console&, const CommonFlags&)) {
  CLI::App* command = parent->add_subcommand(name, help);
  command->callback([chosen, handler] { *chosen = handler; });
}

}  // namespace

void AddConfigCommands(CLI::App* app, CommonFlags* common, Action* chosen) {
  CLI::App* config = app->add_subcommand("config", "Check and show the settings in effect");
  config->require_subcommand(1);
  Add(config, chosen, "check", "Read every source of settings and name every problem", Check);
  Add(config, chosen, "show", "Print the settings in effect and where each came from", Show);
}

}  // namespace epic
