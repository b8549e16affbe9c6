// Log lines of key=value text or of JSON, on stderr or a stream of the caller.
//
// A Logger is a cheap handle that is passed in and copied; there is no global one. Copies share one output
// and level; With() adds fields, such as the request id, to every line of the copy. Thread-safe. A line never
// waits for anything but the output itself.
//
// What clients send (texts, token ids, names, tags) never enters a log. Field texts are for our own words and
// for ids; they are cut at 256 bytes and their control characters are escaped, so a line stays a line.
#ifndef EPIC_COMMON_LOG_LOG_H_
#define EPIC_COMMON_LOG_LOG_H_

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace epic {

enum class LogLevel : uint8_t { kTrace, kDebug, kInfo, kWarn, kError };
enum class LogFormat : uint8_t { kText, kJson };

// The names of the settings log.level and log.format; nullopt for any other text.
std::optional<LogLevel> ParseLogLevel(std::string_view text);
std::optional<LogFormat> ParseLogFormat(std::string_view text);

// One key and value of a line. Refers to the caller's text: make it in the call.
struct LogField {
  using Value = std::variant<bool, int64_t, uint64_t, double, std::string_view>;

  LogField(std::string_view name, std::string_view value) : name(name), value(value) {}
  LogField(std::string_view name, const char* value) : name(name), value(std::string_view(value)) {}
  LogField(std::string_view name, const std::string& value) : name(name), value(std::string_view(value)) {}
  LogField(std::string_view name, bool value) : name(name), value(value) {}
  template <std::signed_integral T>
  LogField(std::string_view name, T value) : name(name), value(static_cast<int64_t>(value)) {}
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) LogField(std::string_view name, T value)
      : name(name), value(static_cast<uint64_t>(value)) {}
  template <std::floating_point T>
  LogField(std::string_view name, T value) : name(name), value(static_cast<double>(value)) {}

  std::string_view name;
  Value value;
};
using LogFields = std::initializer_list<LogField>;

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  std::ostream* out = nullptr;  // nullptr: stderr. Must outlive every copy of the logger.
};

class Logger {
 public:
  // Writes nothing.
  Logger() = default;
  explicit Logger(const LogOptions& options);

  // A copy whose lines all have `field` too, after those of this logger.
  Logger With(const LogField& field) const;

  // `message` is a constant of the program, in the present tense, without values: those are fields.
  void Log(LogLevel level, std::string_view message, LogFields fields = {}) const;
  void Debug(std::string_view message, LogFields fields = {}) const {
    Log(LogLevel::kDebug, message, fields);
  }
  void Info(std::string_view message, LogFields fields = {}) const { Log(LogLevel::kInfo, message, fields); }
  void Warn(std::string_view message, LogFields fields = {}) const { Log(LogLevel::kWarn, message, fields); }
  void Error(std::string_view message, LogFields fields = {}) const {
    Log(LogLevel::kError, message, fields);
  }

  bool IsOn(LogLevel level) const;
  // For every copy that shares this logger's output.
  void SetLevel(LogLevel level) const;

 private:
  struct Output;

  std::shared_ptr<Output> output_;  // nullptr: writes nothing
  std::string bound_;               // the fields of With, already written
};

}  // namespace epic

#endif  // EPIC_COMMON_LOG_LOG_H_
