// The `epic` command: parses the command line, runs one subcommand, turns its status into an exit code
// (0 done, 1 failed, 2 wrong usage).
#include <iostream>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "common/status/error.h"
#include "services/cli/command.h"
#include "services/cli/serve_command.h"

namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

int Run(int argc, char** argv) {
  CLI::App app("EPIC: position-independent context caching for large language models", "epic");
  app.require_subcommand(1);
  app.fallthrough();
  epic::CommonFlags common;
  epic::Action chosen;
  app.add_flag("--json", common.json, "One JSON document on stdout, all else on stderr");
  app.add_option("--config", common.config_file, "A YAML file of settings");
  epic::AddRepeatedOption(&app, "--set", &common.sets, "A setting, as name=value");
  epic::AddServeCommand(&app, &common, &chosen);
  epic::AddContextCommands(&app, &common, &chosen);
  epic::AddChatCommand(&app, &common, &chosen);
  epic::AddDemoCommand(&app, &common, &chosen);
  epic::AddStatusCommand(&app, &common, &chosen);
  epic::AddConfigCommands(&app, &common, &chosen);
  epic::AddStoreCommands(&app, &chosen);
  epic::AddBackupCommands(&app, &common, &chosen);
  epic::AddVersionCommand(&app, &chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    // Without a subcommand, what was left over is a word that is none.
    const std::vector<std::string> left = app.remaining(/*recurse=*/true);
    if (left.empty()) return app.exit(error) == 0 ? 0 : kUsage;
    std::cerr << "epic: there is no command '" << left.front() << "'; --help lists those that there are\n";
    return kUsage;
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : kUsage;
  }
  const epic::Console console{&std::cin, &std::cout, &std::cerr};
  const absl::Status status = chosen(console, common);
  if (status.ok()) return 0;
  std::cerr << "epic: " << epic::MessageOf(status) << '\n';
  return kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  return Run(argc, argv);
}
