// `epic serve`: runs a node until it is told to stop.
#ifndef EPIC_SERVICES_CLI_SERVE_COMMAND_H_
#define EPIC_SERVICES_CLI_SERVE_COMMAND_H_

#include "services/cli/command.h"

namespace epic {

void AddServeCommand(CLI::App* app, CommonFlags* common, Action* chosen);

}  // namespace epic

#endif  // EPIC_SERVICES_CLI_SERVE_COMMAND_H_
