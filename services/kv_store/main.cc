// epic-kv-store: one node of the KV store as a process. Serves until SIGINT or SIGTERM, then drains and exits
// with 0; a second signal ends it at once. Exits with 1 when it cannot start, with 2 for wrong usage.
#include <iostream>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "common/base/clock.h"
#include "common/base/stop_signals.h"
#include "common/config/config.h"
#include "common/config/settings.h"
#include "common/log/log.h"
#include "common/status/error.h"
#include "services/kv_store/store_server.h"

namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
// The flags of other processes' settings are not this one's.
constexpr std::string_view kFlags[] = {"--grpc", "--admin", "--insecure", "--data-dir"};

struct Flags {
  std::string config_file;
  std::vector<std::string> sets;
  std::vector<epic::FlagValue> values;
};

void AddFlags(CLI::App* app, Flags* flags) {
  app->add_option("--config", flags->config_file, "A YAML file of settings");
  app->add_option_function<std::string>(
         "--set", [flags](const std::string& set) { flags->sets.push_back(set); }, "A setting, as name=value")
      ->trigger_on_parse();
  for (const epic::Setting& setting : epic::SettingTable()) {
    if (std::find(std::begin(kFlags), std::end(kFlags), setting.flag) == std::end(kFlags)) continue;
    const std::string flag(setting.flag), name(setting.name), help(setting.help);
    const auto note = [flags, name, flag](const std::string& value) {
      flags->values.push_back({name, value, flag});
    };
    if (setting.type == epic::SettingType::kSwitch) {
      app->add_flag_callback(
          flag, [note] { note("true"); }, help);
    } else {
      app->add_option_function<std::string>(flag, note, help);
    }
  }
}

int Fail(const absl::Status& status) {
  std::cerr << "epic-kv-store: " << epic::MessageOf(status) << '\n';
  return kFailed;
}

int Serve(const Flags& flags) {
  const epic::StopSignals signals;
  epic::ConfigSources sources{
      .environment = epic::ProcessEnvironment(), .sets = flags.sets, .flags = flags.values};
  if (!flags.config_file.empty()) sources.file = flags.config_file;
  const auto config = epic::LoadConfig(sources);
  if (!config.ok()) return Fail(config.status());
  for (const std::string& warning : config->warnings) std::cerr << "warning: " << warning << '\n';
  epic::LogOptions log_options;
  log_options.level = epic::ParseLogLevel(config->log.level).value_or(epic::LogLevel::kInfo);
  log_options.format = epic::ParseLogFormat(config->log.format).value_or(epic::LogFormat::kText);
  const epic::Logger log(log_options);
  const auto server = epic::kv_store::StoreServer::Start(*config, epic::SystemClock::Get(), log);
  if (!server.ok()) return Fail(server.status());
  const epic::kv_store::StoreAddresses at = (*server)->addresses();
  // For people and scripts: the doors are open.
  std::cout << "epic-kv-store serves\n  gRPC  " << at.grpc << "\n  admin http://" << at.admin << "\n  shm   "
            << at.shm << std::endl;
  log.Info("serving", {{"grpc", at.grpc}, {"admin", at.admin}, {"shm", at.shm}});
  signals.Wait();
  log.Info("stopping; running calls may end", {{"drain_ms", config->deadlines.drain_ms}});
  (*server)->Drain();
  (*server)->Stop();
  log.Info("stopped");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A node of EPIC's KV store: context records and KV objects over gRPC", "epic-kv-store");
  Flags flags;
  AddFlags(&app, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  return Serve(flags);
}
