#include "services/cli/command.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace epic {

absl::StatusOr<Config> LoadCommandConfig(const CommonFlags& common) {
  ConfigSources sources;
  if (!common.config_file.empty()) sources.file = common.config_file;
  sources.environment = ProcessEnvironment();
  sources.sets = common.sets;
  sources.flags = common.flags;
  return LoadConfig(sources);
}

void AddSettingFlag(CLI::App* app, CommonFlags* common, const std::string& flag, const std::string& name,
                    const std::string& help) {
  app->add_option_function<std::string>(
      flag,
      [common, flag, name](const std::string& value) {
        common->flags.push_back({name, value, flag});
      },
      help);
}

CLI::Option* AddRepeatedOption(CLI::App* app, const std::string& flag, std::vector<std::string>* values,
                               const std::string& help) {
  return app->add_option(flag, *values, help + "; may be repeated")->allow_extra_args(false);
}

void AddServerFlag(CLI::App* app, CommonFlags* common) {
  AddSettingFlag(app, common, "--http", "listen.http", "HOST:PORT of the server's HTTP door");
}

}  // namespace epic
