// What every subcommand of `epic` shares: where it reads and writes, and the flags that all of them take.
//
// Results go to `out`; progress, hints and errors to `err`. With --json `out` gets one document and nothing
// else.
#ifndef EPIC_SERVICES_CLI_COMMAND_H_
#define EPIC_SERVICES_CLI_COMMAND_H_

#include <functional>
#include <istream>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/config/config.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace epic {

struct Console {
  std::istream* in = nullptr;
  std::ostream* out = nullptr;
  std::ostream* err = nullptr;
};

struct CommonFlags {
  bool json = false;
  std::string config_file;
  std::vector<std::string> sets;
  std::vector<FlagValue> flags;  // filled by the commands' own flags
};

// The settings in effect for a command. Errors: InvalidArgument that names every problem.
absl::StatusOr<Config> LoadCommandConfig(const CommonFlags& common);

// Adds a subcommand; `chosen` is set to what it does when the user chose it. Flags are bound to shared state
// that lives as long as the App.
using Action = std::function<absl::Status(const Console& console, const CommonFlags& common)>;
void AddContextCommands(CLI::App* app, CommonFlags* common, Action* chosen);
void AddChatCommand(CLI::App* app, CommonFlags* common, Action* chosen);
void AddDemoCommand(CLI::App* app, CommonFlags* common, Action* chosen);
void AddStatusCommand(CLI::App* app, CommonFlags* common, Action* chosen);
void AddConfigCommands(CLI::App* app, CommonFlags* common, Action* chosen);
void AddStoreCommands(CLI::App* app, Action* chosen);
void AddBackupCommands(CLI::App* app, CommonFlags* common, Action* chosen);

// Adds an option that takes one value each time it is given, so that what follows it is not taken too.
CLI::Option* AddRepeatedOption(CLI::App* app, const std::string& flag, std::vector<std::string>* values,
                               const std::string& help);
// Adds --http HOST:PORT, the server to talk to (default: the setting listen.http).
void AddServerFlag(CLI::App* app, CommonFlags* common);
// Adds a flag that sets the setting `name`.
void AddSettingFlag(CLI::App* app, CommonFlags* common, const std::string& flag, const std::string& name,
                    const std::string& help);

}  // namespace epic

#endif  // EPIC_SERVICES_CLI_COMMAND_H_
