#include "services/node/node_admin.h"

#include <utility>

#include "common/status/error.h"

namespace epic {
namespace {

constexpr std::string_view kLogLevel = "log.level";

}  // namespace

NodeAdmin::NodeAdmin(const Config& config, const Logger& log, DrainNode drain)
    : log_(log), drain_(std::move(drain)) {
  for (const SettingOrigin& origin : config.origins) {
    settings_.push_back({origin.name, origin.value, origin.source});
  }
}

std::vector<EffectiveSetting> NodeAdmin::Settings() const {
  MutexLock lock(&mu_);
  return settings_;
}

absl::StatusOr<std::string> NodeAdmin::SetLogLevel(const std::string& level) {
  const std::optional<LogLevel> parsed = ParseLogLevel(level);
  if (!parsed.has_value()) {
    return Error(ErrorCode::kInvalidRequest, "use trace, debug, info, warn or error", "level");
  }
  std::string previous;
  {
    MutexLock lock(&mu_);
    for (EffectiveSetting& setting : settings_) {
      if (setting.name != kLogLevel) continue;
      previous = std::exchange(setting.value, level);
      setting.source = "admin call";
    }
    log_.SetLevel(*parsed);
  }
  log_.Info("log level changes", {{"from", previous}, {"to", level}});
  return previous;
}

uint64_t NodeAdmin::Drain() {
  const uint64_t running = drain_();
  log_.Info("draining on an admin call", {{"running", running}});
  return running;
}

}  // namespace epic
