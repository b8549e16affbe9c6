#include "services/cli/serve_command.h"

#include <string>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "common/config/settings.h"
#include "common/status/status_macros.h"
#include "services/node/serve.h"

namespace epic {
namespace {

void PrintReady(const Console& console, bool json, const ServeAddresses& at) {
  if (json) {
    *console.out << nlohmann::json{{"model", at.model},
                                   {"http", at.http},
                                   {"grpc", at.grpc},
                                   {"admin", at.admin},
                                   {"admin_grpc", at.admin_grpc}}
                        .dump()
                 << std::endl;
    return;
  }
  *console.err << "epic serves " << at.model << "\n  HTTP  http://" << at.http << "\n  gRPC  " << at.grpc
               << "\n  admin http://" << at.admin << ", gRPC " << at.admin_grpc << "\nStop it with Ctrl-C."
               << std::endl;
}

absl::Status RunServe(const Console& console, const CommonFlags& common) {
  EPIC_ASSIGN_OR_RETURN(const Config config, LoadCommandConfig(common));
  for (const std::string& warning : config.warnings) *console.err << "warning: " << warning << '\n';
  ServeHooks hooks;
  hooks.progress = console.err;
  hooks.ready = [&](const ServeAddresses& at) { PrintReady(console, common.json, at); };
  return Serve(config, hooks);
}

}  // namespace

void AddServeCommand(CLI::App* app, CommonFlags* common, Action* chosen) {
  CLI::App* serve =
      app->add_subcommand("serve", "Serve a model: HTTP, gRPC and admin doors with an embedded store");
  for (const Setting& setting : SettingTable()) {
    if (setting.flag.empty()) continue;
    const std::string flag(setting.flag), name(setting.name), help(setting.help);
    if (setting.type == SettingType::kSwitch) {
      serve->add_flag_callback(
          flag,
          [common, name, flag] {
            common->flags.push_back({name, "true", flag});
          },
          help);
    } else {
      AddSettingFlag(serve, common, flag, name, help);
    }
  }
  serve->callback([chosen] { *chosen = RunServe; });
}

}  // namespace epic
