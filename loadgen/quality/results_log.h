// The results of a quality run so far: in memory, and where a path is given in a file of JSON lines that a
// later run goes on with.
//
// The first line pins what a result depends on (model, data, options, build); a file with other pins is
// refused. Each further line is one result, or one question that was left out and why. A line counts when it
// is whole: what a killed run has begun to write is cut off when the file is opened. One run at a time owns
// the file (it is locked); one thread at a time.
#ifndef EPIC_LOADGEN_QUALITY_RESULTS_LOG_H_
#define EPIC_LOADGEN_QUALITY_RESULTS_LOG_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "loadgen/quality/prompt_result.h"

namespace epic::loadgen {

class ResultsLog {
 public:
  // Empty path: in memory only. `pins` is a flat object. Errors: FailedPrecondition for a file of other pins
  // (names the first that differs, with both values) or one that another run has open; InvalidArgument with
  // the line for what is no results file; Unavailable where the file cannot be read or written.
  static absl::StatusOr<std::unique_ptr<ResultsLog>> Open(const std::string& path,
                                                          const nlohmann::json& pins);
  ~ResultsLog();
  ResultsLog(const ResultsLog&) = delete;
  ResultsLog& operator=(const ResultsLog&) = delete;

  // nullptr when there is none.
  const PromptResult* Find(uint64_t question, const std::string& strategy) const;
  // nullptr when the question was not left out.
  const std::string* FindSkipped(uint64_t question) const;
  // On return the line is with the operating system: it outlives the process. REQUIRES: not there yet.
  absl::Status Add(PromptResult result);
  absl::Status AddSkipped(uint64_t question, std::string reason);
  // Results that were there when the file was opened.
  size_t resumed() const { return resumed_; }

 private:
  ResultsLog(std::string path, int file) : path_(std::move(path)), file_(file) {}
  absl::Status Load(const nlohmann::json& pins);
  absl::Status Take(uint64_t line, const nlohmann::json& json);
  absl::Status Append(const nlohmann::json& json);
  absl::Status Bad(uint64_t line, const std::string& what) const;

  const std::string path_;
  const int file_;  // -1: none
  std::map<std::pair<uint64_t, std::string>, PromptResult> results_;
  std::map<uint64_t, std::string> skipped_;
  size_t resumed_ = 0;
};

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_QUALITY_RESULTS_LOG_H_
