#include "common/process/process_parts.h"

namespace epic {

LogOptions LogOptionsOf(const Config& config) {
  LogOptions options;
  options.level = ParseLogLevel(config.log.level).value_or(LogLevel::kInfo);
  options.format = ParseLogFormat(config.log.format).value_or(LogFormat::kText);
  return options;
}

}  // namespace epic
