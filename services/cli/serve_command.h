// The commands that have the node in them: `epic serve`, which runs one until it is told to stop, and
// `epic version`, which says what it computes with. The others know the server by HTTP alone.
#ifndef EPIC_SERVICES_CLI_SERVE_COMMAND_H_
#define EPIC_SERVICES_CLI_SERVE_COMMAND_H_

#include "services/cli/command.h"

namespace epic {

void AddServeCommand(CLI::App* app, CommonFlags* common, Action* chosen);
void AddVersionCommand(CLI::App* app, Action* chosen);

}  // namespace epic

#endif  // EPIC_SERVICES_CLI_SERVE_COMMAND_H_
