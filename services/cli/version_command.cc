// `epic version`.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "common/base/version.h"
#include "services/cli/serve_command.h"
#include "services/node/serve.h"

namespace epic {
namespace {

absl::Status Version(const Console& console, const CommonFlags& common) {
  const std::string cpu = CpuInUse();
  if (common.json) {
    *console.out << nlohmann::json{{"version", kVersion}, {"commit", kCommit}, {"cpu", cpu}}.dump(2) << '\n';
  } else {
    *console.out << "epic " << kVersion << " (" << kCommit << "), computes with " << cpu << '\n';
  }
  return absl::OkStatus();
}

}  // namespace

void AddVersionCommand(CLI::App* app, Action* chosen) {
  CLI::App* version = app->add_subcommand("version", "Print the version and what the CPU offers");
  version->callback([chosen] { *chosen = Version; });
}

}  // namespace epic
