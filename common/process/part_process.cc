#include "common/process/part_process.h"

#include <algorithm>
#include <iostream>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "common/base/clock.h"
#include "common/base/stop_signals.h"
#include "common/base/system_random.h"
#include "common/base/version.h"
#include "common/config/settings.h"
#include "common/status/error.h"

namespace epic {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr size_t kNameWidth = 6;

struct Flags {
  std::string config_file;
  std::vector<std::string> sets;
  std::vector<FlagValue> values;
};

void AddFlags(const PartProcess& process, CLI::App* app, Flags* flags) {
  app->add_option("--config", flags->config_file, "A YAML file of settings");
  app->add_option_function<std::string>(
         "--set", [flags](const std::string& set) { flags->sets.push_back(set); }, "A setting, as name=value")
      ->trigger_on_parse();
  for (const Setting& setting : SettingTable()) {
    if (std::find(process.flags.begin(), process.flags.end(), setting.flag) == process.flags.end()) continue;
    const std::string flag(setting.flag), name(setting.name), help(setting.help);
    const auto note = [flags, name, flag](const std::string& value) {
      flags->values.push_back({name, value, flag});
    };
    if (setting.type == SettingType::kSwitch) {
      app->add_flag_callback(
          flag, [note] { note("true"); }, help);
    } else {
      app->add_option_function<std::string>(flag, note, help);
    }
  }
}

int Fail(const PartProcess& process, const absl::Status& status) {
  std::cerr << process.name << ": " << MessageOf(status) << '\n';
  return kFailed;
}

// For people and scripts: the doors are open.
void Tell(const PartProcess& process, const PartServer& server, const Logger& log) {
  std::cout << process.name << " serves\n";
  for (const auto& [name, address] : server.listening()) {
    std::cout << "  " << name << std::string(kNameWidth - std::min(name.size(), kNameWidth - 1), ' ')
              << address << '\n';
    log.Info("listening", {{"door", name}, {"address", address}});
  }
  std::cout << std::flush;
}

int Serve(const PartProcess& process, const Flags& flags) {
  const StopSignals signals;
  ConfigSources sources{
      .file = {}, .environment = ProcessEnvironment(), .sets = flags.sets, .flags = flags.values};
  if (!flags.config_file.empty()) sources.file = flags.config_file;
  const auto config = LoadConfig(sources);
  if (!config.ok()) return Fail(process, config.status());
  for (const std::string& warning : config->warnings) std::cerr << "warning: " << warning << '\n';
  const Logger log(LogOptionsOf(*config));
  const auto server = process.start(*config, log);
  if (!server.ok()) return Fail(process, server.status());
  Tell(process, **server, log);
  signals.Wait();
  log.Info("stopping; running calls may end", {{"drain_ms", config->deadlines.drain_ms}});
  (*server)->Drain();
  (*server)->Stop();
  log.Info("stopped");
  return 0;
}

}  // namespace

int RunPart(const PartProcess& process, int argc, char** argv) {
  CLI::App app(process.about, process.name);
  Flags flags;
  AddFlags(process, &app, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  return Serve(process, flags);
}

absl::StatusOr<std::unique_ptr<HttpServer>> StartAdminDoor(const Config& config,
                                                           std::function<PartHealth()> health,
                                                           std::function<std::string()> metrics) {
  HttpOptions options;
  options.door = HttpDoor::kAdmin;
  options.host = config.listen.admin.host;
  options.port = config.listen.admin.port;
  options.max_connections = static_cast<uint32_t>(config.limits.connections);
  options.version = kVersion;
  options.build = kCommit;
  AdminSource source{.health = std::move(health),
                     .metrics = std::move(metrics),
                     .version = std::string(kVersion),
                     .build = std::string(kCommit)};
  return NamedDoor("--admin", HttpServer::Start(std::move(options), MakeAdminSite(std::move(source)),
                                                SystemClock::Get(), SystemRandom()));
}

}  // namespace epic
