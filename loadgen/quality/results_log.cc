#include "loadgen/quality/results_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "common/base/check.h"
#include "common/status/status_macros.h"

namespace epic::loadgen {
namespace {

using nlohmann::json;

constexpr char kFormat[] = "epic-quality-results-1";
constexpr char kFormatKey[] = "format";
constexpr size_t kReadBytes = 64 << 10;
// A line is one answer and 32 numbers; a file is a few thousand lines.
constexpr uint64_t kMostBytes = 1ull << 30;

absl::Status Failed(const std::string& path, const char* what) {
  return absl::UnavailableError("cannot " + std::string(what) + " the results file '" + path +
                                "': " + std::strerror(errno));
}

absl::StatusOr<std::string> ReadWhole(const std::string& path, int file) {
  std::string text;
  std::string buffer(kReadBytes, '\0');
  while (true) {
    const ssize_t got = ::pread(file, buffer.data(), buffer.size(), static_cast<off_t>(text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed(path, "read");
    if (got == 0) return text;
    text.append(buffer, 0, static_cast<size_t>(got));
    if (text.size() > kMostBytes) return absl::InvalidArgumentError(path + " is longer than 1 GiB");
  }
}

// Invalid UTF-8 of a cut answer becomes U+FFFD.
std::string Dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

absl::Status ComparePins(const std::string& path, const json& header, const json& pins) {
  if (!header.contains(kFormatKey) || header[kFormatKey] != kFormat) {
    return absl::InvalidArgumentError(path + " line 1: this is no results file of epic-loadgen quality");
  }
  for (const auto& [key, value] : pins.items()) {
    const json stored = header.contains(key) ? header[key] : json(nullptr);
    if (stored == value) continue;
    return absl::FailedPreconditionError("the results in '" + path + "' were made with " + key + " " +
                                         Dump(stored) + ", and this run has " + Dump(value) +
                                         ": give the same options, or name another file");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ResultsLog>> ResultsLog::Open(const std::string& path, const json& pins) {
  if (path.empty()) return std::unique_ptr<ResultsLog>(new ResultsLog(path, -1));
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return Failed(path, "open");
  std::unique_ptr<ResultsLog> log(new ResultsLog(path, file));
  if (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError("another run has the results file '" + path + "' open");
  }
  EPIC_RETURN_IF_ERROR(log->Load(pins));
  return log;
}

ResultsLog::~ResultsLog() {
  if (file_ >= 0) ::close(file_);
}

absl::Status ResultsLog::Bad(uint64_t line, const std::string& what) const {
  return absl::InvalidArgumentError(path_ + " line " + std::to_string(line) + ": " + what);
}

absl::Status ResultsLog::Load(const json& pins) {
  EPIC_ASSIGN_OR_RETURN(const std::string text, ReadWhole(path_, file_));
  uint64_t line = 0;
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const json parsed = json::parse(text.begin() + static_cast<ptrdiff_t>(begin),
                                    text.begin() + static_cast<ptrdiff_t>(end), nullptr, false);
    begin = end + 1;
    ++line;
    if (!parsed.is_object()) return Bad(line, "no JSON object");
    EPIC_RETURN_IF_ERROR(line == 1 ? ComparePins(path_, parsed, pins) : Take(line, parsed));
  }
  json header = pins;
  header[kFormatKey] = kFormat;
  // Of a header that a killed run has begun to write, nothing but our own beginning is cut off.
  if (line == 0 && !Dump(header).starts_with(text)) {
    return Bad(1, "this is no results file of epic-loadgen quality");
  }
  if (begin < text.size() && ::ftruncate(file_, static_cast<off_t>(begin)) != 0) return Failed(path_, "cut");
  resumed_ = results_.size();
  return line > 0 ? absl::OkStatus() : Append(header);
}

absl::Status ResultsLog::Take(uint64_t line, const json& json) {
  if (json.contains("skipped")) {
    if (!json.contains("question") || !json["question"].is_number_unsigned() ||
        !json["skipped"].is_string()) {
      return Bad(line, "no question that was left out");
    }
    skipped_[json["question"].get<uint64_t>()] = json["skipped"].get<std::string>();
    return absl::OkStatus();
  }
  absl::StatusOr<PromptResult> result = ParsePromptResult(json);
  if (!result.ok()) return Bad(line, std::string(result.status().message()));
  std::pair<uint64_t, std::string> key(result->question, result->strategy);
  if (!results_.emplace(std::move(key), *std::move(result)).second) {
    return Bad(line, "this question and strategy are there already");
  }
  return absl::OkStatus();
}

absl::Status ResultsLog::Append(const json& json) {
  if (file_ < 0) return absl::OkStatus();
  const std::string line = Dump(json) + "\n";
  for (size_t written = 0; written < line.size();) {
    const ssize_t put = ::write(file_, line.data() + written, line.size() - written);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Failed(path_, "write");
    written += static_cast<size_t>(put);
  }
  return absl::OkStatus();
}

const PromptResult* ResultsLog::Find(uint64_t question, const std::string& strategy) const {
  const auto found = results_.find({question, strategy});
  return found == results_.end() ? nullptr : &found->second;
}

const std::string* ResultsLog::FindSkipped(uint64_t question) const {
  const auto found = skipped_.find(question);
  return found == skipped_.end() ? nullptr : &found->second;
}

absl::Status ResultsLog::Add(PromptResult result) {
  EPIC_RETURN_IF_ERROR(Append(ToJson(result)));
  std::pair<uint64_t, std::string> key(result.question, result.strategy);
  EPIC_CHECK(results_.emplace(std::move(key), std::move(result)).second);
  return absl::OkStatus();
}

absl::Status ResultsLog::AddSkipped(uint64_t question, std::string reason) {
  EPIC_RETURN_IF_ERROR(Append({{"question", question}, {"skipped", reason}}));
  EPIC_CHECK(skipped_.emplace(question, std::move(reason)).second);
  return absl::OkStatus();
}

}  // namespace epic::loadgen
