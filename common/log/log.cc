#include "common/log/log.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <type_traits>

namespace epic {
namespace {

constexpr size_t kTextLimitBytes = 256;
constexpr std::array<std::string_view, 5> kLevelNames = {"trace", "debug", "info", "warn", "error"};

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

// Writes `text` between quotes so that it is a JSON string and one line: control characters, quotes,
// backslashes and every byte above 0x7e become escapes (bytes as U+00XX: logs stay ASCII).
void AppendQuoted(std::string_view text, std::string& out) {
  const bool cut = text.size() > kTextLimitBytes;
  out += '"';
  for (const char c : text.substr(0, kTextLimitBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte > 0x7e) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  out += cut ? "...\"" : "\"";
}

bool IsPlainWord(std::string_view text) {
  if (text.empty() || text.size() > kTextLimitBytes) return false;
  for (const char c : text) {
    if (c <= ' ' || c > '~' || c == '"' || c == '\\' || c == '=') return false;
  }
  return true;
}

void AppendValue(LogFormat format, const LogField::Value& value, std::string& out) {
  std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool>) {
          out += v ? "true" : "false";
        } else if constexpr (std::is_same_v<T, double>) {
          char text[32];
          std::snprintf(text, sizeof text, "%.6g", v);
          if (std::isfinite(v) || format == LogFormat::kText) {
            out += text;
          } else {
            AppendQuoted(text, out);  // JSON has no NaN
          }
        } else if constexpr (std::is_same_v<T, std::string_view>) {
          if (format == LogFormat::kText && IsPlainWord(v)) {
            out += v;
          } else {
            AppendQuoted(v, out);
          }
        } else {
          out += std::to_string(v);
        }
      },
      value);
}

void AppendField(LogFormat format, const LogField& field, std::string& out) {
  if (format == LogFormat::kJson) {
    out += ',';
    AppendQuoted(field.name, out);
    out += ':';
  } else {
    out += ' ';
    out += field.name;
    out += '=';
  }
  AppendValue(format, field.value, out);
}

}  // namespace

struct Logger::Output {
  LogFormat format;
  spdlog::logger logger;
};

std::optional<LogLevel> ParseLogLevel(std::string_view text) {
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    if (kLevelNames[i] == text) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

std::optional<LogFormat> ParseLogFormat(std::string_view text) {
  if (text == "text") return LogFormat::kText;
  if (text == "json") return LogFormat::kJson;
  return std::nullopt;
}

Logger::Logger(const LogOptions& options) {
  spdlog::sink_ptr sink;
  if (options.out != nullptr) {
    sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(*options.out, /*force_flush=*/true);
  } else {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  }
  output_ = std::make_shared<Output>(Output{options.format, spdlog::logger("epic", std::move(sink))});
  // The level's name is part of the line that Log makes: spdlog's own names differ from the settings'.
  const char* pattern = options.format == LogFormat::kJson ? R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ",%v})"
                                                           : "%Y-%m-%dT%H:%M:%S.%eZ %v";
  output_->logger.set_pattern(pattern, spdlog::pattern_time_type::utc);
  output_->logger.set_level(ToSpdlog(options.level));
}

Logger Logger::With(const LogField& field) const {
  Logger copy = *this;
  if (output_ != nullptr) AppendField(output_->format, field, copy.bound_);
  return copy;
}

void Logger::Log(LogLevel level, std::string_view message, LogFields fields) const {
  if (!IsOn(level)) return;
  std::string line;
  const std::string_view level_name = kLevelNames[static_cast<size_t>(level)];
  if (output_->format == LogFormat::kJson) {
    line += "\"level\":\"" + std::string(level_name) + "\",\"message\":";
    AppendQuoted(message, line);
  } else {
    line += std::string(level_name) + " ";
    line += message;
  }
  line += bound_;
  for (const LogField& field : fields) AppendField(output_->format, field, line);
  output_->logger.log(ToSpdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

bool Logger::IsOn(LogLevel level) const {
  return output_ != nullptr && output_->logger.should_log(ToSpdlog(level));
}

void Logger::SetLevel(LogLevel level) const {
  if (output_ != nullptr) output_->logger.set_level(ToSpdlog(level));
}

}  // namespace epic
